"""The rules that tell a runner's side requests from turns (docs/spec/mediation.md section 8).

Pure; the table ``RULES`` is all of it.

A side request gets no tools and no context: a title needs neither, and nobody would use the result
of a tool there. The evidence is text of the runner's program: a sentence of its system prompt,
together with the tools that the request declares. A user's text alone is no evidence, or a user
could take an agent's tools away. So side requests that differ from a turn only in their last
message count as turns: Claude Code's memory extraction and its names for sessions, Qwen Code's
suggestions, OpenClaw's file names.

The sentences are those of the runners' own packages (OpenCode 1.18.33, Claude Code 2.1.197, Qwen
Code 0.15.10); those of OpenCode and of Qwen's fork were also seen on the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

type DeclaredTools = Literal["none", "schema", "any"]
"""The tools that the request declares.

None, only the one that carries a schema for the answer, or any (a fork has its parent's tools).
"""
_SCHEMA_TOOL: Final = ("respond_in_schema",)  # Qwen Code's way to ask for JSON


class RequestView(Protocol):
    """The parts of a request that the rules read."""

    @property
    def system(self) -> str: ...

    @property
    def user_texts(self) -> Sequence[str]: ...

    @property
    def declared_tools(self) -> Sequence[str]: ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def side_request(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """The mark of one kind of side request: a line of its system prompt begins with ``line``."""

    id: str
    runner: str
    reason: str
    line: str
    tools: DeclaredTools = "none"


RULES: Final = (
    Rule(
        "opencode-title",
        "OpenCode",
        "a thread's title",
        "You are a title generator. You output ONLY a thread title.",
    ),
    Rule(
        "claude-code-title",
        "Claude Code",
        "a session's title",
        "Generate a concise, sentence-case title (3-7 words) that captures the main topic "
        "or goal of this coding session.",
    ),
    Rule(
        "claude-code-summary-title",
        "Claude Code before 2.1",
        "a session's title",
        "Summarize this coding conversation in under 50 characters.",
    ),
    Rule(
        "claude-code-topic",
        "Claude Code before 2.1",
        "the terminal's title",
        "Analyze if this message indicates a new conversation topic.",
    ),
    Rule(
        "tool-label",
        "Claude Code, Qwen Code",
        "a label for tool calls that are done",
        "Write a short summary label describing what these tool calls accomplished.",
    ),
    Rule(
        "crush-title",
        "Crush",
        "a session's title",
        "you will generate a short title based on the first message a user begins a "
        "conversation with",
    ),
    Rule(
        "qwen-title",
        "Qwen Code",
        "a session's title",
        "Generate a concise, sentence-case title (3-7 words) that captures what this "
        "programming-assistant session is about.",
        tools="schema",
    ),
    Rule(
        "qwen-memory-selection",
        "Qwen Code",
        "which memory files to read",
        "You are selecting memories that will be useful to an AI coding assistant",
        tools="schema",
    ),
    Rule(
        "qwen-recap",
        "Qwen Code",
        "a recap for a user who returns",
        "You generate session recaps for a programming assistant CLI.",
    ),
    Rule(
        "qwen-memory-extraction",
        "Qwen Code",
        "a fork that writes memory files",
        "You are now acting as the managed memory extraction subagent for an AI coding assistant.",
        tools="any",
    ),
    Rule(
        "qwen-memory-dream",
        "Qwen Code",
        "a fork that tidies memory files",
        "You are performing a managed memory dream",
        tools="any",
    ),
)

# Characters. A prompt may be 60 MB, and each of its lines becomes a string.
_MAX_SEARCHED: Final = 1 << 16
CLAUDE_CODE_QUOTA: Final = "claude-code-quota"
"""The id of Claude Code's probe, which only reads the headers of the response.

It has no system prompt, no tools, room for one token, and a message of one word.
"""


def find_side_request(request: RequestView) -> str | None:
    """Return the id of the rule that fits a side request; None for a turn."""
    if request.side_request is not None:
        return request.side_request

    if not request.system:
        return CLAUDE_CODE_QUOTA if _is_quota_probe(request) else None

    for rule in RULES:
        if _has_tools(request, rule.tools) and _has_line(request.system, rule):
            return rule.id
    return None


def _is_quota_probe(request: RequestView) -> bool:
    return (
        not request.declared_tools
        and request.max_tokens == 1
        and tuple(request.user_texts) == ("quota",)
    )


def _has_tools(request: RequestView, tools: DeclaredTools) -> bool:
    match tools:
        case "none":
            return not request.declared_tools
        case "schema":
            return tuple(request.declared_tools) == _SCHEMA_TOOL
        case "any":
            return True


def _has_line(system: str, rule: Rule) -> bool:
    """Return True if the prompt begins with the rule's line.

    In a request without tools any line may be it: Claude Code has two others before.
    """
    opening = system[:_MAX_SEARCHED].lstrip()
    lines = opening.splitlines() if rule.tools == "none" else [opening]
    return any(line.lstrip(" -").casefold().startswith(rule.line.casefold()) for line in lines)
