"""What a turn has spent and seen: a frozen value. Every change makes a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from claw_contract.base import JsonObject
from claw_mediate.core.types import Limits, ModelResponse, Round, ToolCall, ToolResult, ToolUse


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call that the turn has answered, in the order of answering."""

    answer: ToolResult
    round: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of one turn. Times are seconds of one clock, whose zero does not matter."""

    limits: Limits
    started: float
    now: float
    asked_at: float
    rounds: tuple[Round, ...] = ()
    seen: tuple[AnsweredCall, ...] = ()
    usage: tuple[JsonObject, ...] = ()
    use: ToolUse = ToolUse.AS_ASKED

    @classmethod
    def opened(cls, limits: Limits, now: float) -> Ledger:
        return cls(limits, started=now, now=now, asked_at=now)

    @property
    def seconds_left(self) -> float:
        return self.started + self.limits.total - self.now

    @property
    def tool_seconds_left(self) -> float:
        """Until the soft deadline: what lies behind it is kept for the model's last word."""
        return self.started + self.limits.soft - self.now

    @property
    def round(self) -> int:
        """The number of the round that is open, from 1."""
        return len(self.rounds) + 1

    @property
    def rounds_spent(self) -> bool:
        return len(self.rounds) >= self.limits.max_rounds

    @property
    def idle_rounds(self) -> int:
        """How many of the last rounds, in a row, held nothing but repeated calls."""
        count = 0
        for past in reversed(self.rounds):
            if not past.answers or any(answer.first_round is None for answer in past.answers):
                break
            count += 1
        return count

    def equal(self, call: ToolCall) -> tuple[AnsweredCall, ...]:
        """Return the answers that this turn gave to equal calls, oldest first."""
        return tuple(seen for seen in self.seen if seen.answer.call.signature == call.signature)

    def wrote_since(self, earlier: AnsweredCall) -> bool:
        """Return whether a call that may write ran in that call's service after it."""
        later = self.seen[self.seen.index(earlier) + 1 :]
        return any(seen.answer.ran and writes(seen.answer.call, earlier.answer.call.service) for seen in later)

    def asking(self, now: float) -> Ledger:
        return replace(self, now=now, asked_at=now)

    def heard(self, reply: ModelResponse, now: float) -> Ledger:
        return replace(self, now=now, usage=(*self.usage, reply.usage))

    def answered(self, answers: tuple[ToolResult, ...], now: float) -> Ledger:
        return replace(self, now=now, seen=(*self.seen, *(AnsweredCall(answer, self.round) for answer in answers)))

    def closed(self, reply: ModelResponse, answers: tuple[ToolResult, ...], use: ToolUse) -> Ledger:
        """The open round is over; ``use`` says what the next model call may do."""
        wall_ms = round((self.now - self.asked_at) * 1000)
        return replace(self, rounds=(*self.rounds, Round(self.round, reply, answers, wall_ms)), use=use)


def writes(call: ToolCall, service: str) -> bool:
    """Whether the call belongs to that service and is not known to be a read."""
    return call.tool is not None and call.service == service and call.tool.effect != "read"
