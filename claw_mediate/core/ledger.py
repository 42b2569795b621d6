"""The record of what a turn has spent and seen: a frozen value. Every change makes a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from claw_contract.base import JsonObject
from claw_mediate.core.types import Limits, ModelResponse, Round, ToolCall, ToolResult, ToolUse


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    result: ToolResult
    round: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of one turn. Times are seconds of one clock, whose zero does not matter."""

    limits: Limits
    started_at: float
    now: float
    model_call_at: float
    rounds: tuple[Round, ...] = ()
    answered_calls: tuple[AnsweredCall, ...] = ()  # In the order of answering
    usage: tuple[JsonObject, ...] = ()
    tool_use: ToolUse = ToolUse.AS_REQUESTED

    @classmethod
    def start(cls, limits: Limits, now: float) -> Ledger:
        return cls(limits, started_at=now, now=now, model_call_at=now)

    @property
    def seconds_left(self) -> float:
        return self.started_at + self.limits.total_seconds - self.now

    @property
    def tool_seconds_left(self) -> float:
        """Seconds until the soft deadline: the time behind it is kept for the model's last response."""
        return self.started_at + self.limits.soft_seconds - self.now

    @property
    def round(self) -> int:
        """The number of the round that is open, from 1."""
        return len(self.rounds) + 1

    @property
    def has_spent_rounds(self) -> bool:
        return len(self.rounds) >= self.limits.max_rounds

    @property
    def idle_rounds(self) -> int:
        """The number of rounds at the end, in a row, that held nothing but repeated calls."""
        count = 0
        for past in reversed(self.rounds):
            if not past.results or any(result.first_round is None for result in past.results):
                break
            count += 1
        return count

    def find_equal(self, call: ToolCall) -> tuple[AnsweredCall, ...]:
        """Return the equal calls that this turn has answered, oldest first."""
        return tuple(past for past in self.answered_calls if past.result.call.signature == call.signature)

    def wrote_since(self, earlier: AnsweredCall) -> bool:
        """Return True if a call that may write ran in that call's service after it."""
        later = self.answered_calls[self.answered_calls.index(earlier) + 1 :]
        return any(past.result.ran and may_write(past.result.call, earlier.result.call.service) for past in later)

    def start_model_call(self) -> Ledger:
        """Return the ledger of which the open round is timed from now."""
        return replace(self, model_call_at=self.now)

    def add_response(self, response: ModelResponse, now: float) -> Ledger:
        return replace(self, now=now, usage=(*self.usage, response.usage))

    def add_results(self, results: tuple[ToolResult, ...], now: float) -> Ledger:
        answered = (AnsweredCall(result, self.round) for result in results)
        return replace(self, now=now, answered_calls=(*self.answered_calls, *answered))

    def close_round(self, response: ModelResponse, results: tuple[ToolResult, ...], tool_use: ToolUse) -> Ledger:
        """Return the ledger with the open round closed; ``tool_use`` is for the next model call."""
        wall_ms = round((self.now - self.model_call_at) * 1000)
        return replace(self, rounds=(*self.rounds, Round(self.round, response, results, wall_ms)), tool_use=tool_use)


def may_write(call: ToolCall, service: str) -> bool:
    """Return True if the call belongs to that service and is not known to be a read."""
    return call.tool is not None and call.service == service and call.tool.effect != "read"
