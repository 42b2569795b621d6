"""What a log adds to history: interventions, errors of the proxy itself, and turns that history does not have.

Rules. A turn that is in history counts there, and so do its calls, and the interventions that its trace tells of. Calls of a
turn stand before the event that ends it. A turn that failed may be gone on with: then its ends count once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from claw_audit.bounded import Known
from claw_audit.events import Event
from claw_audit.turns import Call, Tokens, Turn
from claw_contract.interventions import CALL_INTERVENTIONS, ROUND_INTERVENTIONS

_MOST_OPEN = 10_000
"""Turns that are under way at once, or that failed and may be gone on with."""
_MOST_CALLS = 10_000
"""Of one turn."""
_OF_TRACE = frozenset({*ROUND_INTERVENTIONS.values(), *CALL_INTERVENTIONS.values()})


@dataclass(slots=True)
class _Open:
    """A turn that has not ended."""

    begun: Event | None = None
    calls: list[Call] = field(default_factory=list)
    resumed: bool = False


class LogTurns:
    """Puts the events of turns together."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._open: OrderedDict[tuple[str, str], _Open] = OrderedDict()
        self._failed: OrderedDict[tuple[str, str], Turn] = OrderedDict()

    def add(self, event: Event) -> Iterator[Turn]:
        """One event; the turns that are over by it."""
        key = (event.agent, event.turn_id)
        if not event.turn_id or key in self._known:
            return
        if event.ends_a_turn:
            turn = self._ended(key, event)
            if turn.outcome == "ok":
                yield turn
            else:
                self._failed[key] = turn
                if len(self._failed) > _MOST_OPEN:
                    yield self._failed.popitem(last=False)[1]
        elif event.kind in {"request", "tool_call", "resume"}:
            self._note(key, event)
            if len(self._open) > _MOST_OPEN:
                yield from self._unfinished(self._open.popitem(last=False)[1])

    def rest(self) -> Iterator[Turn]:
        """Those that failed, and those of whose end nothing was told."""
        yield from self._failed.values()
        for left in self._open.values():
            yield from self._unfinished(left)

    def _note(self, key: tuple[str, str], event: Event) -> None:
        turn = self._open.setdefault(key, _Open())
        match event.kind:
            case "tool_call" if len(turn.calls) < _MOST_CALLS:
                turn.calls.append(event.call())
            case "resume":
                turn.resumed = True
            case _:
                turn.begun = turn.begun or event

    def _ended(self, key: tuple[str, str], event: Event) -> Turn:
        under_way = self._open.pop(key, _Open())
        turn = event.turn(tuple(under_way.calls), resumed=under_way.resumed)
        earlier = self._failed.pop(key, None)
        if earlier is None:
            return turn
        # What an earlier attempt ran is not told of again.
        return replace(turn, calls=earlier.calls + turn.calls, tokens=_both(earlier.tokens, turn.tokens))

    def _unfinished(self, left: _Open) -> Iterator[Turn]:
        if left.begun is not None:
            turn = left.begun.turn(tuple(left.calls), resumed=left.resumed)
            yield replace(turn, outcome="unfinished", code="", latency_ms=None)


def is_told_by_history(event: Event, known: Known) -> bool:
    """Whether an intervention is in the trace of a turn that history has."""
    return (event.agent, event.turn_id) in known and event.intervention.partition(":")[0] in _OF_TRACE


def interventions(turn: Turn) -> Iterator[str]:
    """Those that a turn's calls tell of, once for each round."""
    seen: set[tuple[int, str]] = set()
    for call in turn.calls:
        name = ROUND_INTERVENTIONS.get(call.code) or (
            f"{CALL_INTERVENTIONS[call.code]}:{call.tool}" if call.code in CALL_INTERVENTIONS else ""
        )
        if name and (call.round, name) not in seen:
            seen.add((call.round, name))
            yield name


def _both(one: Tokens, other: Tokens) -> Tokens:
    costs = [tokens.cost for tokens in (one, other) if tokens.cost is not None]
    return Tokens(
        one.prompt + other.prompt,
        one.completion + other.completion,
        one.cached + other.cached,
        sum(costs) if costs else None,
    )
