"""The vocabulary of a turn: calls, responses, results, rounds, limits, and what a
turn yields, receives and returns.

Values only: nothing here decides or waits. ``Command``, ``TurnInput`` and ``Outcome`` are closed
unions.
"""

import math
from collections.abc import Generator
from enum import Enum
from typing import Any, Literal, NamedTuple

import msgspec

from claw_contract.base import JsonObject
from claw_contract.history import McpRecord
from claw_contract.manifest import Policy, Tool
from claw_mediate.core.json_splice import Object

type Owner = Literal["managed", "native", "unknown"]


class Arguments(msgspec.Struct, frozen=True):
    """A call's arguments: parsed to be checked, and the exact JSON text of each to
    be sent (numbers keep their spelling).
    """

    values: JsonObject
    raw: dict[str, bytes]
    signature: str  # Canonical JSON with exact numbers: equal arguments have equal signatures


class UnreadableArguments(msgspec.Struct, frozen=True):
    """Arguments that are not one JSON object. They are never run, and never replaced by ``{}``."""

    reason: str
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    # The model's own spelling: an alias, a canonical name, a native name, or an invented one
    name: str
    owner: Owner
    arguments: Arguments | UnreadableArguments
    tool: Tool | None = None  # The granted tool. Managed calls only.
    safe_name: str | None = (
        None  # The name in later requests, where providers do not take ``name`` back
    )
    # False if nobody but the runner can answer it, so that it can only leave the transcript
    is_answerable: bool = True
    sent: bool = False
    """True if an earlier attempt at this turn made the call: its journaled result
    counts, whatever is granted now.
    """

    @property
    def canonical(self) -> str:
        return self.tool.name if self.tool else self.name

    @property
    def service(self) -> str:
        return self.tool.execution.service if self.tool else ""

    @property
    def signature(self) -> str | None:
        """The text that equal calls have in common; None when the arguments could not be read."""
        return (
            f"{self.canonical}\0{self.arguments.signature}"
            if isinstance(self.arguments, Arguments)
            else None
        )


class ModelResponse(msgspec.Struct, frozen=True):
    """One response of the model: the wire bytes as they came, and the view that the rules need."""

    body: bytes
    message: bytes  # The assistant's message within the body, verbatim
    calls: tuple[ToolCall, ...]
    usage: JsonObject = msgspec.field(default_factory=dict)
    id: str = ""  # The provider's own id, in dialects in which a request can name it
    is_kept: bool = False  # True if the provider says that it keeps the response
    pending_results: tuple[bytes, ...] = ()
    """Results for calls we dropped from the view; a provider that keeps the response still expects
    them.
    """
    # The provider and model that made it; "" where an earlier attempt at the turn recorded it
    maker: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # The headers that the runner may see
    parsed: Object | None = None  # The members of ``body``, where they have been found


class Image(NamedTuple):
    """An image in a result. ``data`` is base64."""

    media_type: str
    data: str


class ToolResult(msgspec.Struct, frozen=True):
    """The result of one call as the model receives it: ``content`` is an envelope
    of docs/spec/mediation.md section 4.
    """

    call: ToolCall
    content: bytes
    ok: bool
    code: str | None = None
    status_code: int | None = None
    latency_ms: int = 0
    ran: bool = False  # True if the service was called: only then may the call have had an effect
    first_round: int | None = None  # Duplicates only: the round whose result counts
    repeats: int = 0
    replayed: bool = False  # True if an earlier attempt at this turn ran the call
    started: str | None = None  # When this attempt began to run the call
    mcp: McpRecord | None = None  # The session in which the call was made
    images: tuple[Image, ...] = ()  # For dialects whose results hold images; ``content`` names them


class Round(msgspec.Struct, frozen=True):
    """One response that the proxy answered itself.

    ``results`` cover the calls that stay in the transcript, in their order.
    """

    number: int
    response: ModelResponse
    results: tuple[ToolResult, ...]
    wall_ms: int = 0


class Limits(msgspec.Struct, frozen=True):
    """The limits of a turn, in seconds, counts and bytes."""

    max_rounds: int
    tool_seconds: float  # For one call
    total_seconds: float
    soft_seconds: float  # Until the soft deadline, after which no tool starts
    result_bytes: int
    max_parallel: int
    on_budget: Literal["finalize", "error"]

    @classmethod
    def from_policy(cls, policy: Policy) -> "Limits":
        total_seconds = policy.total_timeout_ms / 1000
        return cls(
            max_rounds=policy.max_rounds,
            tool_seconds=policy.timeout_per_tool_ms / 1000,
            total_seconds=total_seconds,
            soft_seconds=total_seconds * policy.soft_deadline_ratio,
            result_bytes=policy.max_tool_result_bytes,
            max_parallel=policy.max_parallel,
            on_budget=policy.on_budget,
        )


class ToolUse(Enum):
    """The use of tools in the next model call."""

    AS_REQUESTED = "as requested"  # The runner's own ``tool_choice`` holds
    RELEASED = "released"
    """A forced choice has been obeyed.

    From here on it is ``auto``, else the model could never end the turn.
    """
    FORBIDDEN = "forbidden"
    """The last call of a turn whose budget is spent: tools stay in the request and
    are forbidden by ``tool_choice``.
    """


class AskModel(msgspec.Struct, frozen=True):
    """Ask the model, with the hidden rounds so far. ``seconds`` is what is left of the turn."""

    rounds: tuple[Round, ...]
    tool_use: ToolUse
    seconds: float
    keeps_rounds: bool = False  # True if the provider has all but the answers of the last round


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls at the same time; the results keep their order.

    ``seconds`` bounds each of them.
    """

    calls: tuple[ToolCall, ...]
    round: int
    seconds: float


class ModelReplied(msgspec.Struct, frozen=True):
    """The model's response to ``AskModel``.

    ``now`` is when it came, in seconds of the turn's clock.
    """

    response: ModelResponse
    now: float


class ModelFailed(msgspec.Struct, frozen=True):
    """The model could not be asked, or answered with an error.

    ``body`` is the provider's own error, if it sent one.
    """

    status: int
    code: str
    message: str
    now: float
    body: bytes | None = None
    content_type: str = "application/json"
    retry_after: str = ""  # The value of the provider's header
    headers: tuple[tuple[str, str], ...] = ()  # Those that the runner may see


class ToolsAnswered(msgspec.Struct, frozen=True):
    """The results of ``RunTools``, in the order of its calls."""

    results: tuple[ToolResult, ...]
    now: float


class Deliver(msgspec.Struct, frozen=True):
    """The turn's response for the runner.

    ``terminal``: a tool ended the turn, and its call is not shown.
    """

    response: ModelResponse
    rounds: tuple[Round, ...]
    usage: tuple[dict[str, object], ...]
    terminal: bool = False


class Refuse(msgspec.Struct, frozen=True):
    """The error of a failed turn.

    ``failure`` is the provider's own error where it must be passed on.
    """

    status: int
    code: str
    message: str
    rounds: tuple[Round, ...] = ()
    usage: tuple[dict[str, object], ...] = ()
    failure: ModelFailed | None = None


type Command = AskModel | RunTools
type TurnInput = ModelReplied | ModelFailed | ToolsAnswered
type Outcome = Deliver | Refuse
type TurnGenerator[T] = Generator[Command, TurnInput, T]


def add_usage(parts: tuple[JsonObject, ...]) -> JsonObject:
    """Return the sum of provider usage objects: numbers and nested objects add up,
    anything else keeps its last value.

    >>> add_usage(({"prompt_tokens": 3, "details": {"cached": 1}}, {"prompt_tokens": 4, "details":
    {"cached": 2}})) {'prompt_tokens': 7, 'details': {'cached': 3}}
    """
    total: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = _add(total.get(key), value)
    return total


def runner_usage(parts: tuple[JsonObject, ...]) -> JsonObject:
    """Return the usage that the runner is shown: the input of the last model call,
    the output of all of them.

    Runners decide by the input when to compact a conversation; the last call's input already holds
    the hidden rounds (docs/spec/mediation.md section 4, "The runner's side"). ``total_tokens`` is
    the last call's, plus the output of the others.

    >>> runner_usage(({"prompt_tokens": 3, "completion_tokens": 1}, {"prompt_tokens": 4,
    "completion_tokens": 2})) {'prompt_tokens': 4, 'completion_tokens': 3}
    """
    latest = next((part for part in reversed(parts) if not _INPUT_USAGE.isdisjoint(part)), {})
    usage = {
        name: latest[name] if name in _INPUT_USAGE else value
        for name, value in add_usage(parts).items()
        if name not in _INPUT_USAGE or name in latest
    }
    last = next((part for part in reversed(parts) if part.get("total_tokens") is not None), {})
    counted = "completion_tokens" if "completion_tokens" in usage else "output_tokens"
    total, own, output = last.get("total_tokens"), last.get(counted), usage.get(counted)
    if isinstance(total, int) and isinstance(own, int) and isinstance(output, int):
        usage["total_tokens"] = total + output - own
    return usage


_INPUT_USAGE = frozenset(
    {
        "prompt_tokens",
        "prompt_tokens_details",
        "input_tokens",
        "input_tokens_details",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
    }
)
"""Members of a usage object that count a model call's input (OpenAI in both
protocols, Anthropic).
"""


def _add(before: Any, value: Any) -> Any:
    if isinstance(value, bool) or isinstance(before, bool):
        return value
    if isinstance(value, int | float) and isinstance(before, int | float):
        total = before + value
        return total if abs(total) < math.inf else before  # JSON can't spell an infinite sum.
    if isinstance(value, dict):
        return add_usage((before, value)) if isinstance(before, dict) else value
    return before if value is None else value
