"""Everything that a turn has shown, as its runners have it: one answer of several replies."""

from collections.abc import Iterable, Mapping, Sequence

from claw_contract.secret import DOTS
from claw_mediate.core.held_text import HeldText, UnheldLog, compact, visible_text
from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.core.shown import GLUE, needs_glue
from claw_mediate.core.shown_log import Cursor, NextReply, ShownLog, ShownWords
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.dialects.streams import OwnOpening, StreamWriter


class ShownAnswer:
    """The replies of one turn, as far as its runners were shown them.

    ``own``: the opening of a stream that must begin before any reply. ``first_held``: the text that
    the runner which began this attempt holds, of an earlier one.
    """

    def __init__(
        self, dialect: Dialect, view: RunnerRequest, own: OwnOpening, first_held: str = ""
    ) -> None:
        self.dialect = dialect
        self.view = view
        self.log = ShownLog()
        self._own = own
        self._first_held = first_held

        # The stream as a whole
        self.has_content = False
        """True if the runner has something of any reply of this turn."""
        self.has_own_id = False
        """True if a keepalive has shown an id of ours, before a reply gave one."""
        self._opening_id = ""  # Of the reply that was shown first
        self.rounds: dict[int, ShownWords] = {}
        """The words of each hidden round that showed some, by its number."""
        self.ended_rounds = 0
        """Rounds whose replies are over."""
        self._open_closings: Sequence[ReplyEvent] = ()
        """Closings of an ended reply's last pieces, until a later reply shows something."""
        self.has_left_out = False
        """True if a part of the last reply was shown that is not in its body."""
        self.known_rounds = 0
        """Replies that an earlier attempt has shown."""
        self._known_end = 0  # The place in the log behind them

        # The reply that comes now
        self._is_marked = False  # True if the log knows that this reply began
        self._reply_start = 0  # The place of that in the log
        self._reply_has_content = False
        self.last_kind: EventKind = "opening"

    # What is added

    def begin_reply(self) -> None:
        """Note that what is added next is of another reply, or of another attempt at one."""
        self._is_marked = False
        self._reply_has_content = False

    def add(self, event: ReplyEvent, *, is_told: bool = False) -> None:
        """Add an event, behind what was left open by an earlier reply.

        ``is_told``: it did not come, but is told of a body.
        """
        if not self._is_marked:
            self._mark_reply()

        if is_told:
            self.log.add_told(event)
        else:
            self.log.add(event)
        self.last_kind = event.kind
        if event.kind != "opening":
            self.has_content = self._reply_has_content = True
        elif not self._opening_id:
            writer = self.new_writer()
            writer.write(event)
            self._opening_id = writer.id

    def _mark_reply(self) -> None:
        self._is_marked = True
        self._close_pieces()
        self._reply_start = len(self.log)
        if self.has_content:
            self.log.begin_reply()

    def _close_pieces(self) -> None:
        for closing in self._open_closings:
            self.log.add(closing)
        self._open_closings = ()

    def end_round(self, number: int) -> None:
        """Note that the reply of a hidden round is over."""
        self.ended_rounds = number
        if self._reply_has_content:
            self.rounds[number] = self.log.words(self._reply_start)

    def leave_open(self, closings: Iterable[ReplyEvent]) -> None:
        """End a reply whose last pieces are closed only before a later reply shows something."""
        self._open_closings = [*closings]
        self.begin_reply()

    def note_known(self) -> None:
        """Note that an earlier attempt has shown all up to here, one reply more."""
        self.known_rounds += 1
        self._known_end = len(self.log)

    def end(self, ends: Iterable[ReplyEvent]) -> None:
        """Add the end of the answer."""
        self._close_pieces()
        for event in ends:
            self.log.add(event)

    # What is read

    @property
    def id(self) -> str:
        """Return the id that the stream has for every runner; "" before it has one."""
        return self._own.id if self.has_own_id else self._opening_id

    def words(self) -> dict[int, ShownWords]:
        """Return the words of each reply that has shown something, by its round.

        They are as they stand in the answer: where a protocol has one text for all replies, what
        was put between it and an earlier one is part of a text.
        """
        words = {**self.rounds}
        if self._reply_has_content:  # Of the answer, or of the reply with which the turn failed
            words[self.last_round] = self.last_words()
        if not self.dialect.split_rules.joins_text:
            return words

        before = ""
        for number, each in words.items():
            if needs_glue(before, each.text):
                words[number] = each._replace(text=GLUE + each.text)
            before = each.text or before
        return words

    def text(self, held: str = "") -> str:
        """Return the text of all that was shown, over all replies.

        ``held``: what a runner had before, which it was not shown again.
        """
        if not held:
            return self.log.words(0).text

        events = self.log_for(held).read(Cursor())
        return visible_text(event for event in events if not isinstance(event, NextReply))

    def last_words(self) -> ShownWords:
        """Return what was shown of the last reply."""
        return self.log.words(self._reply_start) if self._is_marked else ShownWords()

    def known_text(self) -> str:
        """Return the text that earlier attempts have shown of the rounds that are recorded."""
        known = (words.text for number, words in self.rounds.items() if number <= self.known_rounds)
        return "".join(known)

    def answer(self, body: bytes, held: str = "") -> bytes:
        """Return the answer with all that was shown: the body itself if one reply showed it all.

        ``held``: what a runner had before, which is left out.
        """
        if not (self.rounds or self.has_left_out or self.differs_from(body)):
            return body

        writer = self._begin_writing()
        for event in self.log_for(held).read(Cursor()):
            if isinstance(event, NextReply):
                writer.begin_reply()
            else:
                writer.write(event)
        if not self._is_marked:
            writer.begin_reply()  # The last reply has shown nothing
        return writer.answer(body)

    def differs_from(self, body: bytes) -> bool:
        """Return whether the last reply was shown with other words than its body has.

        Of a secret that came in parts, the first characters may have been shown before its dots.
        """
        shown = self.last_words().text
        return DOTS in shown and shown != visible_text(self.dialect.tell(body, self.view))

    @property
    def last_round(self) -> int:
        """Return the number of the round behind those that are over."""
        return self.ended_rounds + 1

    def minted_ids(self) -> Mapping[int, Mapping[str, str]]:
        """Return the item ids that the stream made up, by the number of the round.

        Each has the id that the provider gave to the item; "" if it gave none.
        """
        writer = self._begin_writing()
        minted: list[dict[str, str]] = [{}]
        known: set[str] = set()
        begun: set[int] = set()  # Pieces of the present reply: their beginnings have their ids
        for event in self.log.read(Cursor()):
            if isinstance(event, NextReply):
                writer.begin_reply()
                begun.clear()
                minted.append({})
                continue

            if event.kind == "opening":
                writer.write(event)
            elif event.kind != "end" and event.piece not in begun:
                begun.add(event.piece)
                writer.write(event)
                minted[-1] |= {
                    own: given for own, given in writer.minted.items() if own not in known
                }
                known.update(writer.minted)

        return dict(zip([*self.rounds, self.last_round], minted, strict=False))

    # How it is written

    def new_writer(self) -> StreamWriter:
        return self.dialect.writer(self.view, self._own)

    def _begin_writing(self) -> StreamWriter:
        """Return a writer that has begun as those of the runners have."""
        writer = self.new_writer()
        if self.has_own_id:
            writer.beat("", "native")
        return writer

    def log_for(self, held: str) -> ShownLog | UnheldLog:
        """Return what a runner reads that holds this."""
        if not held:
            return self.log

        # It holds what an earlier attempt has shown; or, if it has lost this one, what that shows.
        # The model may say again what it said when the earlier one failed.
        is_of_earlier = compact(held) == compact(self._first_held)
        is_of_this = not is_of_earlier and compact(self.text()).startswith(compact(held))
        known_end = len(self.log) if is_of_this else 0
        unheld = HeldText(held, whole_pieces=self.dialect.answers_in_items)
        return UnheldLog(self.log, unheld, lambda: max(known_end, self._known_end))
