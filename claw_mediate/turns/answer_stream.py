"""The stream of one turn's answer: what of each reply is shown, and when.

    provider ─▶ assembler ─▶ ReplyGate ─▶ EventRedactor ─▶ ShownAnswer ─▶ AnswerReaders
                             what flows   no secrets       once           each runner's own bytes

Of a live turn it is the sink of the model calls (docs/spec/live.md). A verdict ends each
reply: ``drop`` a hidden one, ``release`` the answer. Of a buffered turn everything comes with
``release``. In both, ``finish`` adds the end when all that later requests need is stored: the next
request may come right behind it.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from claw_contract.log import CutPlace
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.event_redactor import EventRedactor
from claw_mediate.core.live import Reasoning, ReplyGate, until_first_call
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.shown_log import ShownWords
from claw_mediate.core.types import Round, ToolUse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.streams import Assembler
from claw_mediate.turns.answer_reader import AnswerReaders
from claw_mediate.turns.context import ShownCharacters, StreamFigures
from claw_mediate.turns.shown_answer import ShownAnswer
from claw_mediate.turns.stream_times import StreamTimes


def streams_live(agent: Agent, view: RunnerRequest) -> bool:
    """Return whether the answer to a request is shown while it comes (docs/spec/live.md)."""
    return view.stream and agent.stream == "live" and view.buffered_reason is None


class AnswerStream:
    """Shows a turn's answer in ``shown`` to the runners in ``readers``.

    ``elapsed`` returns the seconds since the request was there. ``shows``: whether replies are
    shown while they come.
    """

    def __init__(
        self,
        shown: ShownAnswer,
        redactor: Redactor,
        elapsed: Callable[[], float],
        *,
        shows: bool,
    ) -> None:
        self.shown = shown
        self.readers = AnswerReaders(shown)
        self._redactor = EventRedactor(redactor)
        self._times = StreamTimes(elapsed)
        self._shows = shows
        self._tool_use = ToolUse.AS_REQUESTED  # Of the model call that is under way
        self._gate = self._new_gate()
        self._assembler: Assembler | None = None  # Of the same call
        self._ends: list[ReplyEvent] = []

    def _new_gate(self) -> ReplyGate:
        view = self.shown.view
        reasoning: Reasoning = "flows" if view.reasoning_flows else "waits"

        # A choice that was released, or forbids tools, is no longer the runner's.
        calls_flow = self._tool_use is ToolUse.AS_REQUESTED and view.calls_flow
        early = frozenset(view.declared_tools) if calls_flow else frozenset()
        return ReplyGate(shows=self._shows, reasoning=reasoning, early=early)

    # The sink of a model call

    @property
    def has_shown(self) -> bool:
        """True if the runner has something of the reply that comes."""
        return self._gate.has_shown

    @property
    def has_shown_call(self) -> bool:
        """True if the runner has a part of a call of the reply that comes."""
        return self._gate.has_shown_call

    def note_asked(self, tool_use: ToolUse = ToolUse.AS_REQUESTED) -> None:
        """Note that a model call is about to be sent, with this use of tools."""
        self._tool_use = tool_use
        self._times.note_asked()

    def begin(self) -> Assembler:
        """Return what puts a new attempt's reply together. Nothing of it is shown yet."""
        self._gate = self._new_gate()
        self._redactor.clear()
        self.shown.begin_reply()
        self._assembler = self.shown.dialect.assembler()
        return self._assembler

    @property
    def is_far_ahead(self) -> bool:
        """True if every runner is far behind what was shown."""
        return self.readers.is_far_behind

    async def wait_for_runner(self) -> None:
        """Wait until a runner is not far behind, or all have left."""
        await self.readers.wait_for_one()

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Show what may be shown of a reply."""
        self._times.note_events(events)
        before = self.shown.log.extent
        for event in events:
            self._pass(event)
            if event.kind == "closing":
                # Its text is complete: what waited because it may begin a secret was none.
                self._flush(event.piece)

        if self._gate.has_call and self._times.note_call():
            self._flush()
        if self.shown.log.extent != before:
            self.readers.wake()

    def _pass(self, event: ReplyEvent) -> None:
        passing = self._gate.let_pass(event)
        # Reasoning that ends right before other reasoning has led to nothing that is shown.
        is_unsealed = bool(passing) and passing[-1].kind == "reasoning"
        for each in passing:
            if each.text:
                redacted = self._redactor.redact_text(each)
                if redacted is not None:
                    self._add(redacted)
                continue
            if each.kind == "call":
                self._flush()  # What came before it, or the text that it ends, is complete.

            is_unsealed_closing = is_unsealed and each.kind == "closing"
            shown = self._unseal(each) if is_unsealed_closing else each
            self._add(self._redactor.redact_members(shown))

    def _flush(self, piece: int | None = None) -> None:
        """Show the ends of texts that waited: of one piece, or of all."""
        for event in self._redactor.flush(piece):
            self._add(event)

    def _unseal(self, closing: ReplyEvent) -> ReplyEvent:
        return self.shown.dialect.replay_rules.unseal(closing)

    def _add(self, event: ReplyEvent, *, is_told: bool = False) -> None:
        self._gate.note_shown(event, self._redactor.take_early())
        if event.kind != "opening" and not self.shown.has_content:
            self._times.note_first_shown()
        self.shown.add(event, is_told=is_told)

    # The verdicts

    def replay(self, body: bytes) -> None:
        """Show a reply that an earlier attempt at the turn has recorded, up to its first call."""
        self.begin()
        self.show(until_first_call(self._tell(body)))
        self._flush()
        self.shown.note_known()

    def _tell(self, body: bytes) -> Iterator[ReplyEvent]:
        return self.shown.dialect.tell(body, self.shown.view)

    def note_verdict(self) -> None:
        """Note that it is known what becomes of the calls of a reply, which waited for that."""
        self._times.note_verdict()

    def drop(self, rounds: Sequence[Round]) -> None:
        """End the replies of these rounds, which the proxy answers itself.

        Nothing more of them is shown. Rounds that were dropped before are passed over.
        """
        before = self.shown.log.extent
        for past in rounds[self.shown.ended_rounds :]:
            self.note_verdict()
            self._flush()
            self.shown.end_round(past.number)
            if not self._gate.has_shown:
                continue

            # What they end has led to nothing that is shown.
            closings = self._gate.open_closings(self._tell(past.response.body))
            self.shown.leave_open(map(self._unseal, closings))
            self._gate = self._new_gate()
        if self.shown.log.extent != before:
            self.readers.wake()

    def release(self, body: bytes, *, terminal: bool, places: Sequence[int] | None = None) -> None:
        """Show the rest of the answer, but for its end.

        ``body``: as the dialect writes it for the runner, redacted. A ``terminal`` one, of a turn
        that a tool ended, is told only if nothing was shown before: its reply was hidden.
        ``places``: of the body's pieces in the reply as it came; None if it has all of them.
        """
        self.note_verdict()
        self._flush()
        if terminal:
            self.begin()  # The body says nothing of the reply that was read last.

        told = self._tell(body)
        if places is not None and self._gate.has_shown:
            self._close_left_out(places)
            told = (_at_place(event, places) for event in told)

        adds_nothing = terminal and self.shown.has_content
        for event in self._gate.rest(told):
            if event.kind == "end":
                self._ends.append(event)
            elif not adds_nothing:
                self._add(event, is_told=True)
        self.readers.wake()

    def _close_left_out(self, places: Sequence[int]) -> None:
        """End the pieces that were shown and are not in the answer: nothing that they led to is."""
        assert self._assembler is not None
        self.shown.has_left_out = True
        for closing in self._gate.open_closings(self._tell(self._assembler.body())):
            if closing.piece not in places:
                self._add(self._unseal(closing))

    def finish(self) -> None:
        """Add the end, after which the stream is over."""
        assert self._ends
        self.shown.end(self._ends)
        self.readers.wake()

    # What is said of it

    @property
    def place(self) -> CutPlace:
        """Return where the stream is, for the log of one that is cut."""
        if not self._gate.has_shown and not self._gate.has_call:
            return "opening"
        if self._gate.has_call:
            return "held"
        return "thinking" if self.shown.last_kind == "reasoning" else "text"

    def figures(self) -> StreamFigures:
        """Return how the stream came to its runners."""
        if not self.shown.view.is_live:
            return StreamFigures("buffered")

        times = self._times
        return StreamFigures(
            "live",
            ttft_ms=_milliseconds(times.to_first_shown),
            upstream_ttft_ms=_milliseconds(times.of_provider),
            held_ms=_milliseconds(times.held),
            shown={number: _count(words) for number, words in self.shown.words().items()},
        )


def _at_place(event: ReplyEvent, places: Sequence[int]) -> ReplyEvent:
    """Return an event of a body as that of its piece in the reply as it came."""
    is_of_piece = event.kind not in {"opening", "end"}
    return replace(event, piece=places[event.piece]) if is_of_piece else event


def _count(words: ShownWords) -> ShownCharacters:
    return ShownCharacters(len(words.text), len(words.reasoning))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
