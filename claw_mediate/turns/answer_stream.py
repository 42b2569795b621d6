"""The stream of one turn's answer, for all runners that wait for it.

    provider ─▶ assembler ─▶ ReplyGate ─▶ TextWindow ─▶ ShownLog ─▶ the writer of each runner
                             what flows   no secrets    once        its own bytes

Of a live turn it is the sink of the model calls (docs/spec/live.md). A verdict ends each
reply: ``drop`` a hidden one, ``release`` the answer. Of a buffered turn everything comes with
``release``. In both, ``finish`` adds the end when all that later requests need is stored: the next
request may come right behind it.

A provider is read no further than ``MAX_AHEAD`` ahead of the fastest runner.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from claw_contract.log import CutPlace
from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.window import TextWindow
from claw_mediate.agents.directory import Agent
from claw_mediate.core.held_text import HeldText, UnheldLog, compact, visible_text
from claw_mediate.core.http import KeepaliveChunk
from claw_mediate.core.live import Reasoning, ReplyGate, until_first_call
from claw_mediate.core.reply_events import EventKind, ReplyEvent, with_data
from claw_mediate.core.shown import GLUE, needs_glue
from claw_mediate.core.shown_log import Cursor, NextReply, ShownLog, ShownWords
from claw_mediate.core.types import Round, ToolUse
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.dialects.streams import Assembler, Keepalive, OwnOpening, StreamWriter
from claw_mediate.turns.context import ShownCharacters, StreamFigures

MAX_AHEAD: Final = 1 << 20
"""Characters, about, that a reply is read ahead of the fastest runner."""
_MAX_CHUNK: Final = 16 * 1024  # Bytes that are written at once


def streams_live(agent: Agent, view: RunnerRequest) -> bool:
    """Return whether the answer to a request is shown while it comes (docs/spec/live.md)."""
    return view.stream and agent.stream == "live" and view.buffered_reason is None


class StreamForm(NamedTuple):
    """The form in which a request's dialect reads and writes its streams."""

    dialect: Dialect
    view: RunnerRequest
    own: OwnOpening

    @property
    def reasoning(self) -> Reasoning:
        return "flows" if self.view.reasoning_flows else "waits"

    def assembler(self) -> Assembler:
        return self.dialect.assembler()

    def tell(self, body: bytes) -> Iterator[ReplyEvent]:
        return self.dialect.tell(body, self.view)

    def unseal(self, closing: ReplyEvent) -> ReplyEvent:
        return self.dialect.replay_rules.unseal(closing)

    def writer(self) -> StreamWriter:
        return self.dialect.writer(self.view, self.own)


class _Channel(NamedTuple):
    """A text under way: the window over it, and the event that began it."""

    window: TextWindow
    head: ReplyEvent


class AnswerStream:
    """The stream of a turn's answer, and the runners that read it.

    ``elapsed`` returns the seconds since the request was there. ``shows``: whether replies are
    shown while they come.
    """

    def __init__(
        self,
        form: StreamForm,
        redactor: Redactor,
        elapsed: Callable[[], float],
        *,
        shows: bool,
    ) -> None:
        self._form = form
        self._redactor = redactor
        self._elapsed = elapsed
        self._shows = shows
        self._log = ShownLog()
        self._readers: list[AnswerReader] = []
        self._was_read = asyncio.Event()
        self._channels: dict[tuple[int, str], _Channel] = {}
        self._open_closings: list[ReplyEvent] = []
        """Closings of a dropped reply's last pieces, until a later reply shows something."""
        self._rounds = 0  # Rounds whose replies are dropped
        self._held_since: float | None = None
        self.first_held = ""
        """The text that the runner which began this attempt holds, of an earlier one."""
        self.known_rounds = 0
        """Replies that an earlier attempt at the turn has shown."""
        self._known_end = 0  # The place in the log behind them
        self._tool_use = ToolUse.AS_REQUESTED  # Of the model call that is under way
        self._gate = self._new_gate()
        self._is_marked = False  # True if the log knows that this reply began
        self._reply_start = 0  # The place of that in the log
        self._ends: list[ReplyEvent] = []
        self._last_kind: EventKind = "opening"
        self._opening_id = ""  # Of the reply that was shown first
        self.shown_rounds: dict[int, ShownWords] = {}
        """The words of each hidden round that showed some, by its number."""
        self._held_seconds = 0.0  # From the first call of each reply to its verdict
        self._asked_at: float | None = None  # Of the first model call
        self._upstream_seconds: float | None = None  # From it to its first content
        self._first_shown_at: float | None = None
        self.shows_own_id = False
        """True if a keepalive has shown an id of ours, before a reply gave one."""

    def _new_gate(self) -> ReplyGate:
        view = self._form.view
        # A choice that was released, or forbids tools, is no longer the runner's.
        calls_flow = self._tool_use is ToolUse.AS_REQUESTED and view.calls_flow
        early = frozenset(view.declared_tools) if calls_flow else frozenset()
        return ReplyGate(shows=self._shows, reasoning=self._form.reasoning, early=early)

    # The sink of a model call

    @property
    def has_shown(self) -> bool:
        """True if the runner has something of the reply that comes."""
        return self._gate.has_shown

    @property
    def has_shown_call(self) -> bool:
        """True if the runner has a part of a call of the reply that comes."""
        return self._gate.has_shown_call

    @property
    def id(self) -> str:
        """Return the id that the stream has for every runner; "" before it has one."""
        return self._form.own.id if self.shows_own_id else self._opening_id

    def ids(self) -> set[str]:
        """Return the ids that the stream has for its runners: a late one may have another."""
        return {self.id, *(reader.id for reader in self._readers)} - {""}

    @property
    def has_shown_anything(self) -> bool:
        """True if the runner has something of any reply of this turn."""
        return self._first_shown_at is not None

    def note_asked(self, tool_use: ToolUse = ToolUse.AS_REQUESTED) -> None:
        """Note that a model call is about to be sent, with this use of tools."""
        self._tool_use = tool_use
        if self._asked_at is None:
            self._asked_at = self._elapsed()

    def begin(self) -> Assembler:
        """Return what puts a new attempt's reply together. Nothing of it is shown yet."""
        self._gate = self._new_gate()
        self._channels.clear()
        self._is_marked = False
        return self._form.assembler()

    @property
    def is_far_ahead(self) -> bool:
        """True if every runner is far behind what was shown."""
        readers = self._readers
        return bool(readers) and all(
            self._log.size - reader.cursor.size > MAX_AHEAD for reader in readers
        )

    async def wait_for_runner(self) -> None:
        """Wait until a runner is not far behind, or all have left."""
        while self.is_far_ahead:
            self._was_read.clear()
            await self._was_read.wait()

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Show what may be shown of a reply."""
        # What an earlier attempt has recorded says nothing of how fast the provider is.
        is_first = self._asked_at is not None and self._upstream_seconds is None
        if is_first and any(event.kind != "opening" for event in events):
            self._upstream_seconds = self._elapsed() - (self._asked_at or 0.0)

        before = len(self._log), self._log.size
        for event in events:
            self._pass(event)
            if event.kind == "closing":
                # Its text is complete: what waited because it may begin a secret was none.
                self._flush(event.piece)

        if self._gate.has_call and self._held_since is None:
            self._held_since = self._elapsed()
            self._flush()
        if before != (len(self._log), self._log.size):
            self.wake()

    def _pass(self, event: ReplyEvent) -> None:
        passing = self._gate.let_pass([event])
        # Reasoning that ends right before other reasoning has led to nothing that is shown.
        is_unsealed = bool(passing) and passing[-1].kind == "reasoning"
        for each in passing:
            if each.text:
                self._add_text(each)
                continue
            if each.kind == "call":
                self._flush()  # What came before it, or the text that it ends, is complete.

            is_unsealed_closing = is_unsealed and each.kind == "closing"
            shown = self._form.unseal(each) if is_unsealed_closing else each
            self._add(self._redact(shown))

    def _add_text(self, event: ReplyEvent) -> None:
        place = event.piece, event.channel
        channel = self._channels.get(place)
        if channel is None:
            channel = self._channels[place] = _Channel(TextWindow(self._redactor), event)

        text = channel.window.feed(event.text)
        if text:
            self._add(replace(event, text=text))

    def _flush(self, piece: int | None = None) -> None:
        """Show the ends of texts that waited: of one piece, or of all."""
        for place, channel in [*self._channels.items()]:
            if piece is None or place[0] == piece:
                del self._channels[place]
                text = channel.window.flush()
                if text:
                    self._add(replace(channel.head, text=text))

    def _redact(self, event: ReplyEvent) -> ReplyEvent:
        """Return an event without secrets in its members."""
        data = msgspec.json.encode(event.data)
        redacted = self._redactor.document(data)
        return event if redacted == data else with_data(event, redacted)

    def _add(self, event: ReplyEvent, *, is_told: bool = False) -> None:
        """Add an event to the log, behind what was left open by an earlier reply.

        ``is_told``: it did not come, but is told of a body.
        """
        if not self._is_marked:
            self._is_marked = True
            self._add_open_closings()
            self._reply_start = len(self._log)
            if self.has_shown_anything:
                self._log.begin_reply()

        self._gate.note_shown(event)
        if is_told:
            self._log.add_told(event)
        else:
            self._log.add(event)
        self._last_kind = event.kind
        if event.kind == "opening" and not self._opening_id:
            writer = self._new_writer()
            writer.write(event)
            self._opening_id = writer.id
        if self._first_shown_at is None and event.kind != "opening":
            self._first_shown_at = self._elapsed()

    def _add_open_closings(self) -> None:
        for closing in self._open_closings:
            self._log.add(closing)
        self._open_closings = []

    # The verdicts

    def replay(self, body: bytes) -> None:
        """Show a reply that an earlier attempt at the turn has recorded, up to its first call."""
        self.begin()
        self.show(until_first_call(self._form.tell(body)))
        self._flush()
        self.known_rounds += 1
        self._known_end = len(self._log)

    def note_verdict(self) -> None:
        """Note that it is known what becomes of the calls of a reply, which waited for that."""
        if self._held_since is not None:
            self._held_seconds += self._elapsed() - self._held_since
            self._held_since = None

    def drop(self, rounds: Sequence[Round]) -> None:
        """End the replies of these rounds, which the proxy answers itself.

        Nothing more of them is shown. Rounds that were dropped before are passed over.
        """
        for past in rounds[self._rounds :]:
            self.note_verdict()
            self._rounds = past.number
            self._flush()
            if not self._gate.has_shown:
                continue

            gate = self._gate
            self.shown_rounds[past.number] = self._log.words(self._reply_start)
            told = self._form.tell(past.response.body)
            # What they end has led to nothing that is shown.
            self._open_closings = [*map(self._form.unseal, gate.open_closings(told))]
            self._gate = self._new_gate()
            self._is_marked = False
        self.wake()

    def release(self, body: bytes, *, terminal: bool) -> None:
        """Show the rest of the answer, but for its end.

        ``body``: as the dialect writes it for the runner, redacted. A ``terminal`` one, of a turn
        that a tool ended, is told only if nothing was shown before: its reply was hidden.
        """
        self.note_verdict()
        self._flush()
        if terminal:
            self.begin()  # The body says nothing of the reply that was read last.

        adds_nothing = terminal and self.has_shown_anything
        for event in self._gate.rest(self._form.tell(body)):
            if event.kind == "end":
                self._ends.append(event)
            elif not adds_nothing:
                self._add(event, is_told=True)
        self.wake()

    def finish(self) -> None:
        """Add the end, after which the stream is over."""
        assert self._ends
        self._add_open_closings()
        for event in self._ends:
            self._log.add(event)
        self.wake()

    def shown_words(self) -> dict[int, ShownWords]:
        """Return the words of each reply that has shown something, by its round.

        They are as they stand in the answer: where a protocol has one text for all replies, what
        was put between it and an earlier one is part of a text.
        """
        words = {**self.shown_rounds}
        if self._gate.has_shown:  # Of the answer, or of the reply with which the turn failed
            words[self._rounds + 1] = self.last_words()
        if not self._form.dialect.split_rules.joins_text:
            return words

        before = ""
        for number, each in words.items():
            if needs_glue(before, each.text):
                words[number] = each._replace(text=GLUE + each.text)
            before = each.text or before
        return words

    def shown_text(self, held: str = "") -> str:
        """Return the text of all that was shown, over all replies.

        ``held``: what a runner had before, which it was not shown again.
        """
        if not held:
            return self._log.words(0).text

        events = self._log_for(held).read(Cursor())
        return visible_text(event for event in events if not isinstance(event, NextReply))

    def last_words(self) -> ShownWords:
        """Return what was shown of the last reply."""
        return self._log.words(self._reply_start) if self._is_marked else ShownWords()

    def known_text(self) -> str:
        """Return the text that earlier attempts have shown of the rounds that are recorded."""
        known = (
            words.text for number, words in self.shown_rounds.items() if number <= self.known_rounds
        )
        return "".join(known)

    def answer(self, body: bytes, held: str = "") -> bytes:
        """Return the answer with all that was shown: the body itself if one reply showed it all.

        ``held``: what a runner had before, which is left out.
        """
        if not self.shown_rounds:
            return body

        writer = self._new_writer()
        if self.shows_own_id:
            writer.beat("", "native")
        for event in self._log_for(held).read(Cursor()):
            if isinstance(event, NextReply):
                writer.begin_reply()
            else:
                writer.write(event)
        if not self._is_marked:
            writer.begin_reply()  # The last reply has shown nothing
        return writer.answer(body)

    def minted_ids(self) -> Mapping[int, Sequence[str]]:
        """Return the item ids that the stream made up, by the number of the hidden round."""
        writer = self._new_writer()
        if self.shows_own_id:
            writer.beat("", "native")

        minted: list[list[str]] = [[]]
        known = 0
        begun: set[int] = set()  # Pieces of the present reply: their beginnings have their ids
        for event in self._log.read(Cursor()):
            if isinstance(event, NextReply):
                writer.begin_reply()
                begun.clear()
                minted.append([])
                continue

            if event.kind == "opening":
                writer.write(event)
            elif event.kind != "end" and event.piece not in begun:
                begun.add(event.piece)
                writer.write(event)
                minted[-1] += [*writer.minted][known:]
                known = len(writer.minted)

        return dict(zip(self.shown_rounds, minted, strict=False))

    @property
    def place(self) -> CutPlace:
        """Return where the stream is, for the log of one that is cut."""
        if not self._gate.has_shown and not self._gate.has_call:
            return "opening"
        if self._gate.has_call:
            return "held"
        return "thinking" if self._last_kind == "reasoning" else "text"

    def figures(self) -> StreamFigures:
        """Return how the stream came to its runners."""
        if not self._form.view.is_live:
            return StreamFigures("buffered")

        return StreamFigures(
            "live",
            ttft_ms=_milliseconds(self._first_shown_at),
            upstream_ttft_ms=_milliseconds(self._upstream_seconds),
            held_ms=_milliseconds(self._held_seconds),
            shown={number: _count(words) for number, words in self.shown_words().items()},
        )

    # The runners

    def attach(self, held: str = "", writer: StreamWriter | None = None) -> "AnswerReader":
        """Return the stream for one more runner, from its beginning.

        ``held``: what it has of it, and is not shown again. ``writer``: of the runner's stream, if
        that has begun.
        """
        reader = AnswerReader(self, self._log_for(held), writer or self._new_writer())
        self._readers.append(reader)
        return reader

    def _log_for(self, held: str) -> ShownLog | UnheldLog:
        """Return what a runner reads that holds this."""
        if not held:
            return self._log

        # It holds what an earlier attempt has shown; or, if it has lost this one, what that shows.
        # The model may say again what it said when the earlier one failed.
        is_of_earlier = compact(held) == compact(self.first_held)
        is_of_this = not is_of_earlier and compact(self.shown_text()).startswith(compact(held))
        known_end = len(self._log) if is_of_this else 0
        unheld = HeldText(held, whole_pieces=self._form.dialect.answers_in_items)
        return UnheldLog(self._log, unheld, lambda: max(known_end, self._known_end))

    def detach(self, reader: "AnswerReader") -> None:
        self._readers.remove(reader)
        self.note_read()

    def note_read(self) -> None:
        self._was_read.set()

    def wake(self) -> None:
        """Let every runner look for more."""
        for reader in self._readers:
            reader.ready.set()

    def _new_writer(self) -> StreamWriter:
        return self._form.writer()


class AnswerReader:
    """The stream of a turn for one runner."""

    def __init__(self, turn: AnswerStream, log: ShownLog | UnheldLog, writer: StreamWriter) -> None:
        self._turn = turn
        self._log = log
        self._writer = writer
        self.cursor = Cursor()
        self.ready = asyncio.Event()

    @property
    def id(self) -> str:
        """Return the id that this runner's stream has shown; "" before it has shown one."""
        return self._writer.id

    def read(self) -> bytes:
        """Return what the runner has not got: about ``_MAX_CHUNK`` at most; b"" if nothing."""
        chunks: list[bytes] = []
        size = 0
        if self._turn.shows_own_id and not self._writer.id:
            # Another runner was told an id of ours: the stream has the same one for all.
            chunks.append(self._writer.beat("", "native"))

        for event in self._log.read(self.cursor):
            if isinstance(event, NextReply):
                self._writer.begin_reply()
                continue

            chunk = self._writer.write(event)
            chunks.append(chunk)
            size += len(chunk)
            if size >= _MAX_CHUNK:
                break

        self._turn.note_read()
        return b"".join(chunks)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for more to read. Return False if the seconds were over before."""
        try:
            async with asyncio.timeout(seconds):
                await self.ready.wait()
        except TimeoutError:
            return False
        self.ready.clear()
        return True

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that says that the turn is alive."""
        had_id = bool(self._writer.id)
        beat = write_beat(self._writer, note, kind)
        if not had_id and self._writer.id:
            self._turn.shows_own_id = True
        return beat

    def error(self, error: bytes) -> bytes:
        return self._writer.error(error)

    def close(self) -> None:
        self._turn.detach(self)


def write_beat(writer: StreamWriter, note: str, kind: Keepalive) -> bytes:
    """Return a keepalive. One that tells the answer's id must arrive, any other may be dropped."""
    had_id = bool(writer.id)
    beat = writer.beat(note, kind)
    return KeepaliveChunk(beat) if had_id or not writer.id else beat


def _count(words: ShownWords) -> ShownCharacters:
    return ShownCharacters(len(words.text), len(words.reasoning))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
