"""Side requests of a runner: they are recognized by its program's own text, and
never by a user's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.side_requests import CLAUDE_CODE_QUOTA, RULES, find_side_request
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT

OPENCODE = (
    "You are a title generator. You output ONLY a thread title. Nothing "
    "else.\n\n<task>\nGenerate a brief title"
)
CLAUDE = (
    "x-anthropic-billing-header: cc_version=2.1.197.1c0; cc_entrypoint=sdk-cli;\n"
    "You are Claude Code, Anthropic's official CLI for Claude.\n"
    "Generate a concise, sentence-case title (3-7 words) that captures the main topic or goal of "
    "this coding session. The title"
)
CLAUDE_OLD = (
    "You are Claude Code.\nSummarize this coding conversation in under 50 "
    "characters.\nCapture the main task"
)
TOPIC = (
    "You are Claude Code.\nAnalyze if this message indicates a new conversation topic. If it "
    "does, extract a 2-3 word title"
)
QWEN_TITLE = (
    "Generate a concise, sentence-case title (3-7 words) that captures what this "
    "programming-assistant session is about. "
    "Think of it as a git commit subject"
)
QWEN_FORK = (
    "You are now acting as the managed memory extraction subagent for an AI coding "
    "assistant.\n\nThe recent"
)
FILES = (
    "read_file",
    "grep_search",
    "glob",
    "list_directory",
    "run_shell_command",
    "write_file",
    "edit",
)


@dataclass(frozen=True)
class RequestView:
    system: str = ""
    user_texts: tuple[str, ...] = ("Say hello",)
    declared_tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    side_request: str | None = None


@pytest.mark.requirement("housekeeping:told-apart")
@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (RequestView(OPENCODE), "opencode-title"),
        (RequestView(CLAUDE, max_tokens=32000), "claude-code-title"),
        (RequestView(CLAUDE_OLD), "claude-code-summary-title"),
        (RequestView(TOPIC), "claude-code-topic"),
        (
            RequestView(
                "Write a short summary label describing what these tool calls accomplished. It"
            ),
            "tool-label",
        ),
        (
            RequestView(
                "\n- you will generate a short title based on the first message a user "
                "begins a conversation with"
            ),
            "crush-title",
        ),
        (RequestView(QWEN_TITLE, declared_tools=("respond_in_schema",)), "qwen-title"),
        (RequestView(QWEN_FORK, declared_tools=FILES), "qwen-memory-extraction"),
        (
            RequestView(
                "You are performing a managed memory dream — a reflective pass",
                declared_tools=FILES,
            ),
            "qwen-memory-dream",
        ),
        (
            RequestView("You generate session recaps for a programming assistant CLI.\n\nThe user"),
            "qwen-recap",
        ),
        (
            RequestView(
                "You are selecting memories that will be useful to an AI coding assistant as",
                declared_tools=("respond_in_schema",),
            ),
            "qwen-memory-selection",
        ),
        (RequestView("", user_texts=("quota",), max_tokens=1), CLAUDE_CODE_QUOTA),
    ],
)
def test_each_rule_knows_its_runners_request(asked: RequestView, rule: str) -> None:
    assert find_side_request(asked) == rule


@pytest.mark.requirement("housekeeping:told-apart")
def test_requests_are_told_apart_as_they_come_over_the_wire() -> None:
    blocks = [{"type": "text", "text": line} for line in CLAUDE.split("\n")]
    said = [{"role": "user", "content": "<session>\nfix it\n</session>"}]
    title = {"model": "claude", "max_tokens": 512, "system": blocks, "messages": said}
    quota = {"model": "claude", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    fork = {
        "model": "qwen",
        "messages": [
            {"role": "system", "content": QWEN_FORK},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
        ],
        "tools": [{"type": "function", "function": {"name": name}} for name in FILES],
    }
    for dialect, body, rule in (
        (ANTHROPIC_MESSAGES, title, "claude-code-title"),
        (ANTHROPIC_MESSAGES, quota, CLAUDE_CODE_QUOTA),
        (OPENAI_CHAT, fork, "qwen-memory-extraction"),
        (ANTHROPIC_MESSAGES, {**title, "tools": [{"name": "Bash"}]}, None),
        (OPENAI_CHAT, {**fork, "messages": fork["messages"][1:]}, None),
    ):
        assert find_side_request(dialect.read_request(json.dumps(body).encode())) == rule


TURNS: list[RequestView] = [
    RequestView(),
    RequestView("You are opencode, an interactive CLI tool.", declared_tools=("bash", "edit")),
    RequestView(OPENCODE, declared_tools=("bash",)),
    RequestView(CLAUDE, declared_tools=("Bash",)),
    RequestView(QWEN_TITLE),
    RequestView(QWEN_TITLE, declared_tools=("respond_in_schema", "shell")),
    RequestView(f"You are Qwen Code. A user wrote:\n{QWEN_FORK}", declared_tools=FILES),
    RequestView("", user_texts=(OPENCODE,)),
    RequestView("You are an assistant.", user_texts=(CLAUDE, QWEN_FORK, TOPIC)),
    RequestView("", user_texts=("quota",)),
    RequestView("", user_texts=("quota",), max_tokens=100),
    RequestView("", user_texts=("hello", "quota"), max_tokens=1),
    RequestView("You are an assistant.", user_texts=("quota",), max_tokens=1),
    RequestView("", user_texts=("quota",), max_tokens=1, declared_tools=("shell",)),
    RequestView(
        "The title generator of ours says: You are a title generator. You output ONLY a "
        "thread title."
    ),
]


@pytest.mark.requirement("housekeeping:told-apart")
@pytest.mark.parametrize("asked", TURNS)
def test_what_lacks_one_part_of_the_evidence_is_a_turn(asked: RequestView) -> None:
    assert find_side_request(asked) is None


@pytest.mark.requirement("housekeeping:told-apart")
@given(st.data())
def test_no_text_of_a_user_makes_a_turn_housekeeping(data: Any) -> None:
    lines = [sign.line for sign in RULES] + ["quota"]
    said = data.draw(
        st.lists(st.one_of(st.sampled_from(lines), st.text(max_size=20)), max_size=4).map(tuple)
    )
    declared = data.draw(st.sampled_from([(), ("shell",), ("respond_in_schema",), FILES]))
    assert (
        find_side_request(
            RequestView(
                "You are a trading agent.", said, declared, data.draw(st.none() | st.just(1))
            )
        )
        is None
    )


def test_every_rule_says_whose_it_is_and_why() -> None:
    assert len({sign.id for sign in RULES}) == len(RULES)
    assert all(sign.runner and sign.reason and sign.line for sign in RULES)
