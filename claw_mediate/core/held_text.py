"""The part of an answer that its runner holds already, from a turn that failed on its way.

docs/spec/live.md sections 6 and 9. Pure. Such a runner sends its request again with that part at
the end. The turn is resumed, and what the runner holds is not shown again:

    what the turn showed     the runner holds    it is shown
    ───────────────────────  ──────────────────  ───────────────────────────────────────────────
    rounds that are whole    all of them         nothing of them, then the next reply
                             a beginning         the rest of them, then the next reply
    an unfinished reply      a part of it        the next reply, whole: it says other words

Texts are compared, and counted, without white space: runners trim and join.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.shown_log import Cursor, NextReply, ShownLog, is_visible

MAX_SHOWN_BYTES: Final = 64 * 1024
"""Bytes of the shown text that are recorded of a failed turn: its beginning decides."""
MIN_TELLING: Final = 20
"""Characters by which an answer is known whose turn recorded only a part of it."""

_HELD_KINDS: Final = frozenset({"content", "reasoning", "closing"})


class ShownRecord(NamedTuple):
    """The text that a turn has shown, without white space."""

    text: str
    is_whole: bool  # False if the turn may have shown more


def compact(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def write_shown(text: str) -> bytes:
    """Return the record of the text that a failed turn has shown."""
    return compact(text).encode(errors="replace")[:MAX_SHOWN_BYTES]


def read_shown(record: bytes) -> ShownRecord:
    """Return the record that ``write_shown`` has written."""
    # A character may have been cut in two at the end.
    return ShownRecord(record.decode(errors="ignore"), len(record) < MAX_SHOWN_BYTES)


def may_be_beginning(held: str, shown: ShownRecord, *, is_session_named: bool = False) -> bool:
    """Return whether a runner's text is the beginning of what a turn has shown.

    If the record may not be whole, the runner's text may go on behind its end. Then it must have
    ``MIN_TELLING`` characters, or the runner must name the session.
    """
    # Surrogates, which UTF-8 can't encode, are replaced as they were in the record.
    part = compact(held).encode(errors="replace").decode()
    if not part:
        return False
    if shown.text.startswith(part):
        return True

    may_go_on = not shown.is_whole and part.startswith(shown.text)
    if not may_go_on:
        return False
    return is_session_named or len(part) >= MIN_TELLING


def visible_text(events: Iterable[ReplyEvent]) -> str:
    """Return what a person reads of these events."""
    return "".join(
        event.text for event in events if event.kind == "content" and is_visible(event.channel)
    )


class HeldText:
    """Leaves out of a stream what its runner holds: a text, in any white space.

    ``whole_pieces``: a piece of which it holds a part only is shown whole.
    """

    def __init__(self, text: str, *, whole_pieces: bool = False) -> None:
        self._left = compact(text)
        self._whole_pieces = whole_pieces
        self._pieces: dict[int, list[ReplyEvent]] = {}
        """The pieces of this reply of which nothing was passed on, with what waits of each."""

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply."""
        self._pieces = {}

    def pass_on(self, event: ReplyEvent, *, is_known: bool) -> Iterator[ReplyEvent]:
        """Yield what a runner has not got of an event.

        ``is_known``: an earlier attempt showed this, so that the runner may hold it.
        """
        if not is_known:
            # The runner holds nothing from here on.
            self._left = ""

        if event.kind not in _HELD_KINDS:
            yield event
            return

        is_piece_held_back = event.piece in self._pieces
        if not is_piece_held_back and not self._left:
            yield event
            return

        # Until a text comes that the runner has not got, it holds all of the piece: also its
        # reasoning and its end, which are left out.
        waiting = self._pieces.setdefault(event.piece, [])
        if event.kind != "content":
            return

        if not event.text:
            # The beginning of a piece is needed if some of its text is passed on.
            waiting.append(event)
            return

        if not is_visible(event.channel):
            return

        rest = self._take(event.text)
        if rest:
            yield from waiting
            del self._pieces[event.piece]
            yield event if self._whole_pieces else replace(event, text=rest)
        elif self._whole_pieces:
            # If more of the piece follows, it is shown from its beginning.
            waiting.append(event)

    def _take(self, text: str) -> str:
        """Return what is left of a text behind that which the runner holds."""
        words = compact(text)
        place = self._left.find(words)
        if place >= 0:
            # What is before it is of an unfinished reply, which left the transcript.
            self._left = self._left[place + len(words) :]
            return ""

        held = _overlap(self._left, words)
        self._left = ""
        return _behind(text, held)


def _overlap(held: str, words: str) -> int:
    """Return how many characters at the end of ``held`` are the beginning of ``words``."""
    longest = min(len(held), len(words))
    return next(size for size in range(longest, -1, -1) if held.endswith(words[:size]))


def _behind(text: str, characters: int) -> str:
    """Return what is behind so many characters, of which white space is none.

    Return "" if only white space is behind them.
    """
    if not characters:
        return text

    left = characters
    for place, character in enumerate(text):
        if character.isspace():
            continue

        left -= 1
        if not left:
            rest = text[place + 1 :]
            return rest if rest.strip() else ""
    return ""


class UnheldLog:
    """The log of what was shown, as a runner reads it that holds a part.

    ``known_end``: returns the place in the log up to which the runner may hold something.
    """

    def __init__(self, log: ShownLog, held: HeldText, known_end: Callable[[], int]) -> None:
        self._log = log
        self._held = held
        self._known_end = known_end

    def read(self, cursor: Cursor) -> Iterator[ReplyEvent | NextReply]:
        """Yield what came since the cursor's place, and move it (``ShownLog.read``)."""
        for event in self._log.read(cursor):
            if isinstance(event, NextReply):
                self._held.begin_reply()
                yield event
                continue

            # The cursor is at a text while that is read, and behind any other event.
            entry = cursor.entry if event.text else cursor.entry - 1
            yield from self._held.pass_on(event, is_known=entry < self._known_end())
