"""history.jsonl: one line for each turn (docs/spec/contract.md "history.jsonl")."""

import json
from math import isfinite
from typing import Any, Literal

from claw_contract.base import Contract, JsonObject
from claw_contract.manifest import Delivery, Effect


class McpRecord(Contract):
    """The session in which a call over MCP was made."""

    server: str  # Name and version, as the server gives them; it may give none
    session: str | None  # The beginning of the session's id. None: the server has no sessions
    protocol: str  # The revision of the protocol


class ToolCallRecord(Contract):
    """One managed call and its result. ``arguments`` is text if the model's JSON did not parse."""

    name: str
    arguments: Any
    result: JsonObject
    latency_ms: int
    service: str
    status: Literal["ok", "error"]
    status_code: int | None = None
    duplicate: bool = False
    duplicate_of_round: int | None = None
    duplicate_count: int | None = None
    # The effect in the tool's manifest. None: no tool of that name was granted.
    effect: Effect | None = None
    # True if the service was called. A repeated call, or one answered with advice, does not run.
    ran: bool = True
    mcp: McpRecord | None = None  # None: the call was not sent over MCP


class TokenUsage(Contract):
    """Token counts, under the same names for every provider."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class RoundRecord(Contract):
    """One response of the model that the proxy answered by itself."""

    round: int
    wall_time_ms: int
    tool_calls: tuple[ToolCallRecord, ...]
    round_usage: TokenUsage | None = None
    shown: int | None = None
    """Characters of the answer's text that this response showed before its calls ran.

    What the proxy put between two responses in one text is counted with the second. None: nothing,
    as in every turn that is buffered.
    """
    shown_reasoning: int | None = None
    """The same of its reasoning."""


class UsageRecord(TokenUsage):
    """Tokens of all model calls of the turn."""

    reported_cost_usd: float | None = None
    total_rounds: int = 0
    estimated_cost_usd: float | None = None
    """The estimate that was charged to a budget for model calls whose cost nobody knows.

    It is not part of ``reported_cost_usd``. None: there was no such call.
    """


class ResponseRecord(Contract):
    """The runner's response.

    ``json`` is a parsed body; ``text`` is a stream, or a body that is not JSON.
    """

    format: Literal["json", "sse"]
    json_body: Any = None
    text: str | None = None
    shown: Any = None
    """The text that a live turn without an answer has shown, whose error is ``json``.

    One that is too long is cut and marked, as a body is.
    """


class WithheldTool(Contract):
    """A tool by its canonical name.

    ``reason``: over_limit, side_request, native, "quarantined: …", or the form of the request.
    """

    name: str
    reason: str


class HistoryEntry(Contract):
    """One turn. ``prev``, ``id`` and ``hash`` are the line's seal (``claw_contract/chain.py``)."""

    version: Literal[1] = 1
    id: str
    turn_id: str
    digest: str | None
    status: Literal["ok", "error"]
    ts: str
    claw_id: str
    path: str
    requested_model: str
    effective_provider: str
    effective_model: str
    status_code: int
    latency_ms: int | None = None
    error: str | None = None  # Our code of an error, ours or the provider's
    stream: bool
    delivery: Delivery = "mediated"
    """``native``: the line is one call that the runner made at the broker; no model was asked."""
    resumed: bool = False
    """True if an earlier attempt began this turn.

    ``usage`` covers this attempt, ``tool_trace`` the whole turn.
    """
    tools_offered: tuple[str, ...] = ()
    """The aliases of the managed tools that were offered to the model."""
    tools_withheld: tuple[WithheldTool, ...] = ()
    """Granted tools that were not offered."""
    request_original: Any
    request_effective: Any
    response: JsonObject
    usage: UsageRecord
    tool_trace: tuple[RoundRecord, ...] = ()
    prev: str
    hash: str


def decode_recorded(data: bytes | str) -> Any:
    """Return recorded JSON as data. Raise ``ValueError`` and ``RecursionError``.

    A number that Python can't hold becomes its text: a peer may have written any number.
    """
    return json.loads(data, parse_float=_read_float, parse_int=_read_int)


def _read_float(text: str) -> float | str:
    number = float(text)
    return number if isfinite(number) else text


def _read_int(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # thousands of digits
        return text
