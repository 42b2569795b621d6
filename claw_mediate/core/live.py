"""The rules for showing a reply to a runner while it comes (docs/spec/live.md section 3).

Pure. Whether a reply belongs to the answer is known only when all of it is there: a managed call
may stand behind a native one. So a reply flows until its first call, and waits from there on:

    the event      before the first call          from the first call on
    ─────────────  ─────────────────────────────  ──────────────────────────────────────────────
    opening        waits for the first content    waits
    content        is shown                       waits
    reasoning      is shown, or waits for the     waits
                     next content (``Reasoning``)
    object         waits                          waits
    call           waits, and all behind it       waits
    closing        waits for the next content     waits
    end            waits                          waits

Where the runner's choice leaves the model no managed tool, its own calls do not wait for the
verdict, and what comes behind them flows (``early``: the names of its tools):

    the call                                      before any other call        behind that
    ────────────────────────────────────────────  ───────────────────────────  ─────────────
    names a tool of ``early``, and has an id of   is shown; its end waits for  waits
      its own                                       the next content or call
    may name one: its name is not whole           waits for its name           waits
    any other, and one between the parts of       waits, and all behind it     waits
      another

    the verdict         what waits
    ──────────────────  ─────────────────────────────────────────────────────────────────────────
    deliver             is told of the body, without what was shown (``ReplyGate.rest``)
    run, or answered    is dropped, but for the closing of the last piece that was shown: that one
                          is written before the next piece of a later reply

Why a closing waits: runners keep the pieces that are finished. Of a piece that is not, nothing is
kept, so that the retry of a turn that failed right behind a preamble is the same request.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from claw_mediate.core.reply_events import CallPart, ReplyEvent

type Reasoning = Literal["flows", "waits"]
"""``waits``: reasoning is shown only right before the next content of its reply."""


class ShownPart(msgspec.Struct):
    """The part of one channel that was shown."""

    characters: int = 0
    events: int = 0  # Those without text


type CallFlow = Literal["flows", "waits", "held"]
"""``waits``: for the next content. ``held``: until the verdict, with all behind it."""


class EarlyCalls:
    """Decides which calls are shown before the verdict: the second table above."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._ids: dict[tuple[int, int], str] = {}
        """The ids of the calls that are shown, by piece and number."""
        self._unnamed: tuple[int, int] | None = None
        """The call whose beginning waits for its name."""

    @property
    def has_shown(self) -> bool:
        return bool(self._ids)

    def judge(self, event: ReplyEvent) -> CallFlow:
        """Return what becomes of an event of a call."""
        part = event.call
        if part is None:
            return "held"

        place = event.piece, part.number
        if self._unnamed not in {None, place}:
            return "held"  # Two calls at once, one of them without a name
        if place in self._ids:
            return "waits" if part.closes else "flows"

        if not part.tool:
            self._unnamed = place
            return "waits"
        if not self._may_show(part):
            return "held"

        self._unnamed = None
        self._ids[place] = part.id
        return "flows"

    def _may_show(self, part: CallPart) -> bool:
        """Return whether a call is certain to reach the runner as it came."""
        # A call without an id of its own gets one of ours, when its reply is read.
        has_own_id = bool(part.id) and part.id not in self._ids.values()
        return has_own_id and part.tool in self._tools


class ReplyGate:
    """Decides what of one reply is shown, and knows what was.

    ``shows``: False if everything waits for the verdict (``preamble: hide``). ``early``: the tools
    whose calls do not wait.
    """

    def __init__(
        self, *, shows: bool, reasoning: Reasoning, early: Collection[str] = frozenset()
    ) -> None:
        self._shows = shows
        self._reasoning = reasoning
        self._early = EarlyCalls(early) if early else None
        self._opening: list[ReplyEvent] = []
        self._waiting: list[ReplyEvent] = []
        """Reasoning, closings and beginnings of calls that are shown with the next content."""
        self._shown: dict[tuple[int, str], ShownPart] = {}
        self._told_opening = False
        self.has_call = False
        """True if the reply has a call that is not the provider's own, and that waits."""

    @property
    def has_shown(self) -> bool:
        """True if the runner has some content or reasoning of this reply."""
        return bool(self._shown)

    @property
    def shown_pieces(self) -> frozenset[int]:
        """Return the places of the pieces of which something was shown."""
        return frozenset(piece for piece, _ in self._shown)

    @property
    def has_shown_call(self) -> bool:
        """True if the runner has a part of a call."""
        return self._early is not None and self._early.has_shown

    def let_pass(self, event: ReplyEvent) -> Sequence[ReplyEvent]:
        """Return what is shown now that this event has come, in order."""
        if self.has_call:
            return ()  # All behind a call waits.
        if not self._shows:
            # Nothing is shown, but that the reply has a call is to be known here, too.
            self.has_call = event.kind == "call"
            return ()

        match event.kind:
            case "content":
                return self._with_waiting(event)
            case "reasoning" if self._reasoning == "flows":
                return self._with_waiting(event)
            case "reasoning" | "closing":
                self._waiting.append(event)
            case "opening":
                self._opening.append(event)
            case "call":
                return self._let_call_pass(event)
            case "object" | "end":
                pass
        return ()

    def _let_call_pass(self, event: ReplyEvent) -> Sequence[ReplyEvent]:
        flow: CallFlow = "held" if self._early is None else self._early.judge(event)
        match flow:
            case "held":
                self.has_call = True
                return ()
            case "waits":
                self._waiting.append(event)
                return ()
            case "flows":
                return self._with_waiting(event)
            case _:
                assert_never(flow)

    def _with_waiting(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Return an event behind all that waited for it."""
        passing = [*self._opening, *self._waiting, event]
        self._opening.clear()
        self._waiting.clear()
        return passing

    def note_shown(self, event: ReplyEvent, early: int = 0) -> None:
        """Note that an event was shown, with the text that it has now.

        The text may be another than that of ``let_pass``: a secret in it was replaced, or the
        beginning of one waits for the next event. ``early``: the characters that are in no text
        told of the body (``TextWindow.early``).
        """
        if event.kind == "opening":
            self._told_opening = True
            return

        place = event.piece, event.channel
        part = self._shown.get(place)
        if part is None:
            part = self._shown[place] = ShownPart()
        if event.text:
            part.characters += len(event.text) - early
        else:
            part.events += 1

    def open_closings(self, told: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        """Return the closings of shown pieces that were not shown, of a reply that is dropped.

        ``told``: the events of its body.
        """
        pieces = self.shown_pieces
        return [
            event for event in self.rest(told) if event.kind == "closing" and event.piece in pieces
        ]

    def rest(self, told: Iterable[ReplyEvent]) -> Iterator[ReplyEvent]:
        """Yield the events of the whole reply without what was shown.

        ``told``: the events of its body.
        """
        # What was shown and has not been met among the events yet: it is counted down.
        unmet = {
            place: ShownPart(part.characters, part.events) for place, part in self._shown.items()
        }
        for event in told:
            if event.kind == "opening":
                if not self._told_opening:
                    yield event
                continue

            part = unmet.get((event.piece, event.channel))
            if part is None:
                yield event
            elif event.text:
                shown = min(part.characters, len(event.text))
                part.characters -= shown
                if shown < len(event.text):
                    yield replace(event, text=event.text[shown:])
            elif part.events:
                part.events -= 1
            else:
                yield event


def until_first_call(told: Iterable[ReplyEvent]) -> Sequence[ReplyEvent]:
    """Return the events of a body up to its first call: all that may be shown of a hidden reply."""
    events: list[ReplyEvent] = []
    for event in told:
        if event.kind == "call":
            break
        events.append(event)
    return events
