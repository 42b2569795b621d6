"""The vocabulary of a turn: calls, responses, results, rounds and limits.

It also has what a turn yields (``Command``), receives (``TurnInput``) and returns (``Outcome``):
three closed unions. All are values: nothing here decides or waits.
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
    """A call's arguments: parsed, to be checked, and as text, to be sent."""

    values: JsonObject
    # The exact JSON text of each argument, so that numbers keep their spelling
    raw: dict[str, bytes]
    # Canonical JSON with exact numbers: equal arguments have equal signatures
    signature: str


class UnreadableArguments(msgspec.Struct, frozen=True):
    """Arguments that are not one JSON object. They are never run, and never replaced by ``{}``."""

    reason: str
    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call in a response of the model, with the owner of the tool that it names."""

    id: str
    # The model's own spelling: an alias, a canonical name, a native name, or an invented one
    name: str
    owner: Owner
    arguments: Arguments | UnreadableArguments
    tool: Tool | None = None  # The granted tool. Managed calls only.
    # The name in later requests, if providers would reject ``name`` there
    safe_name: str | None = None
    # False if only the runner can answer the call: the proxy can then only drop it
    is_answerable: bool = True
    sent: bool = False
    """True if an earlier attempt at this turn made the call.

    Its journaled result counts then, whatever is granted now.
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
        if isinstance(self.arguments, UnreadableArguments):
            return None
        return f"{self.canonical}\0{self.arguments.signature}"


class ModelResponse(msgspec.Struct, frozen=True):
    """One response of the model: the wire bytes as they came, and the view that the rules need."""

    body: bytes
    message: bytes  # The assistant's message within the body, verbatim
    calls: tuple[ToolCall, ...]
    usage: JsonObject = msgspec.field(default_factory=dict)
    id: str = ""  # The provider's own id, in dialects in which a request can name it
    is_kept: bool = False  # True if the provider says that it keeps the response
    # Results for calls we dropped from the view; a provider that keeps the response expects them
    pending_results: tuple[bytes, ...] = ()
    # The places in the provider's reply of the items that are in ``message``; None if all are
    places: tuple[int, ...] | None = None
    # The provider and model that made it; "" if an earlier attempt at the turn recorded it
    maker: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # The headers that the runner may see
    parsed: Object | None = None  # The members of ``body``, if they were already found


class Image(NamedTuple):
    """An image in a result. ``data`` is base64."""

    media_type: str
    data: str


class ToolResult(msgspec.Struct, frozen=True):
    """The result of one call as the model receives it.

    ``content`` is an envelope of docs/spec/mediation.md section 4.
    """

    call: ToolCall
    content: bytes
    ok: bool
    code: str | None = None
    status_code: int | None = None
    latency_ms: int = 0
    ran: bool = False  # True if the service was called: only then may the call have had an effect
    first_round: int | None = None  # Of a repeated call: the round whose result counts
    repeats: int = 0  # Of a repeated call: how often it was made before
    replayed: bool = False  # True if an earlier attempt at this turn ran the call
    started: str | None = None  # When this attempt began to run the call
    mcp: McpRecord | None = None  # The MCP session in which the call was made
    # For dialects whose results can hold images; ``content`` names them
    images: tuple[Image, ...] = ()


class Round(msgspec.Struct, frozen=True):
    """One response that the proxy answered itself.

    ``results`` answer the calls that stay in the transcript, in their order.
    """

    number: int
    response: ModelResponse
    results: tuple[ToolResult, ...]
    wall_ms: int = 0


class TurnLimits(msgspec.Struct, frozen=True):
    """The limits of a turn, in seconds, counts and bytes."""

    max_rounds: int
    tool_seconds: float  # For one call
    total_seconds: float
    soft_seconds: float  # Until the soft deadline, after which no tool starts
    result_bytes: int
    max_parallel: int
    on_budget: Literal["finalize", "error"]

    @property
    def reserve_seconds(self) -> float:
        """Return the time that is reserved for the model's last response."""
        return self.total_seconds - self.soft_seconds

    @property
    def longest_seconds(self) -> float:
        """Return how long a turn may take, the time apart in which its replies flow.

        Behind a reply that flowed, the reserve comes on top of the turn's time.
        """
        return self.total_seconds + self.reserve_seconds

    @classmethod
    def from_policy(cls, policy: Policy) -> "TurnLimits":
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
    """The ``tool_choice`` of the next model call."""

    AS_REQUESTED = "as requested"
    """The runner's own ``tool_choice`` holds."""
    RELEASED = "released"
    """The model obeyed a forced choice, which is ``auto`` from now on.

    Otherwise the model could never end the turn.
    """
    FORBIDDEN = "forbidden"
    """The turn's budget is spent, and this is its last model call.

    Tools stay in the request, and ``tool_choice`` forbids them.
    """


class AskModel(msgspec.Struct, frozen=True):
    """Ask the model, with the hidden rounds so far. ``seconds`` is what is left of the turn."""

    rounds: tuple[Round, ...]
    tool_use: ToolUse
    seconds: float
    # True if the provider has everything except the results of the last round
    keeps_rounds: bool = False


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls at the same time; the results keep their order.

    ``seconds`` bounds each of them.
    """

    calls: tuple[ToolCall, ...]
    round: int
    seconds: float


class ModelReplied(msgspec.Struct, frozen=True):
    """The model's response to ``AskModel``.

    ``now`` is when it came, in seconds of the turn's clock. ``has_flowed``: the runner was shown
    something of it while it came, and the clock stood still meanwhile.
    """

    response: ModelResponse
    now: float
    has_flowed: bool = False


class ModelFailed(msgspec.Struct, frozen=True):
    """The model could not be asked, or answered with an error."""

    status: int
    code: str
    message: str
    now: float
    body: bytes | None = None  # The provider's own error, if it sent one
    content_type: str = "application/json"
    retry_after: str = ""  # The provider's ``Retry-After`` header
    headers: tuple[tuple[str, str], ...] = ()  # The headers that the runner may see
    is_cut: bool = False
    """True if the reply has no end, and the runner has its beginning: its stream is cut, too."""


class ToolsAnswered(msgspec.Struct, frozen=True):
    """The results of ``RunTools``, in the order of its calls."""

    results: tuple[ToolResult, ...]
    now: float


class Deliver(msgspec.Struct, frozen=True):
    """Give the runner this response, which ends the turn."""

    response: ModelResponse
    rounds: tuple[Round, ...]
    usage: tuple[dict[str, object], ...]
    terminal: bool = False  # True if a tool ended the turn: its call is not shown


class Refuse(msgspec.Struct, frozen=True):
    """Give the runner this error, which ends the turn."""

    status: int
    code: str
    message: str
    rounds: tuple[Round, ...] = ()
    usage: tuple[dict[str, object], ...] = ()
    failure: ModelFailed | None = None  # The provider's own error, if it must be passed on


type Command = AskModel | RunTools
type TurnInput = ModelReplied | ModelFailed | ToolsAnswered
type Outcome = Deliver | Refuse
type TurnGenerator[T] = Generator[Command, TurnInput, T]


def add_usage(parts: tuple[JsonObject, ...]) -> JsonObject:
    """Return the sum of provider usage objects.

    Numbers and nested objects add up; anything else keeps its last value.

    >>> first = {"prompt_tokens": 3, "details": {"cached": 1}}
    >>> second = {"prompt_tokens": 4, "details": {"cached": 2}}
    >>> add_usage((first, second))
    {'prompt_tokens': 7, 'details': {'cached': 3}}
    """
    total: dict[str, Any] = {}

    for part in parts:
        for key, value in part.items():
            total[key] = _add(total.get(key), value)

    return total


def runner_usage(parts: tuple[JsonObject, ...]) -> JsonObject:
    """Return the usage that the runner is shown.

    It has the input of the last model call and the output of all of them. Runners decide by the
    input when to compact a conversation, and the last call's input already holds the hidden rounds
    (docs/spec/mediation.md section 4, "The runner's side"). ``total_tokens`` is the last call's,
    plus the output of the others.

    >>> first = {"prompt_tokens": 3, "completion_tokens": 1}
    >>> second = {"prompt_tokens": 4, "completion_tokens": 2}
    >>> runner_usage((first, second))
    {'prompt_tokens': 4, 'completion_tokens': 3}
    """
    last_input: JsonObject = {}
    last_total: JsonObject = {}
    for part in parts:
        if not _INPUT_USAGE.isdisjoint(part):
            last_input = part
        if part.get("total_tokens") is not None:
            last_total = part

    usage: JsonObject = {}
    for name, value in add_usage(parts).items():
        if name not in _INPUT_USAGE:
            usage[name] = value
        elif name in last_input:
            usage[name] = last_input[name]

    output_name = "completion_tokens" if "completion_tokens" in usage else "output_tokens"
    total = last_total.get("total_tokens")
    last_output = last_total.get(output_name)
    output = usage.get(output_name)
    if isinstance(total, int) and isinstance(last_output, int) and isinstance(output, int):
        usage["total_tokens"] = total + output - last_output

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
"""Members of a usage object that count a model call's input, in all three protocols."""


def _add(before: Any, value: Any) -> Any:
    if isinstance(value, bool) or isinstance(before, bool):
        return value

    if isinstance(value, int | float) and isinstance(before, int | float):
        total = before + value
        # JSON can't spell an infinite sum.
        return total if abs(total) < math.inf else before

    if isinstance(value, dict):
        return add_usage((before, value)) if isinstance(before, dict) else value

    return before if value is None else value
