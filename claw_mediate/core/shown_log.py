"""Everything that the runners of one turn were shown, in order. Pure.

Each runner reads it from the beginning with a cursor of its own, so that one that joins late gets
the same pieces. The older parts of one text are joined: a turn holds its text once, and not an
object for each of a hundred thousand deltas. A runner that is far behind gets longer deltas.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from claw_mediate.core.reply_events import ReplyEvent

_BLOCK_PARTS: Final = 256


class NextReply:
    """The mark between two replies."""


NEXT_REPLY: Final = NextReply()


class ShownText:
    """The parts of one text that came right behind each other.

    The newest parts stay as they came, so that a runner which is not far behind gets them so. The
    older ones are joined, ``_BLOCK_PARTS`` of them to one block.
    """

    def __init__(self, first: ReplyEvent) -> None:
        self.head = first
        self._blocks: list[str] = []
        self._parts = [first.text]

    def continues_with(self, event: ReplyEvent) -> bool:
        """Return whether an event has the next part of this text, and nothing else."""
        head = self.head
        return (
            event.piece == head.piece
            and event.channel == head.channel
            and event.kind == head.kind
            and event.data == head.data
        )

    def add(self, text: str) -> None:
        self._parts.append(text)
        if len(self._parts) == 2 * _BLOCK_PARTS:
            self._blocks.append("".join(self._parts[:_BLOCK_PARTS]))
            del self._parts[:_BLOCK_PARTS]

    def read(self, cursor: "Cursor") -> Iterator[ReplyEvent]:
        """Yield what the cursor has not read of this text, and move it.

        What is added while this is read is yielded, too.
        """
        while text := self._take(cursor):
            yield replace(self.head, text=text)

    def _take(self, cursor: "Cursor") -> str:
        """Return the next part that the cursor has not read, and move it; "" if it has read all."""
        block, part = divmod(cursor.part, _BLOCK_PARTS)
        if block < len(self._blocks):
            text = self._blocks[block][cursor.character :]
            cursor.part += _BLOCK_PARTS - part
            cursor.character = 0
            return text

        place = cursor.part - len(self._blocks) * _BLOCK_PARTS
        if place == len(self._parts):
            return ""

        text = self._parts[place]
        cursor.part += 1
        is_block_read = part + 1 == _BLOCK_PARTS
        cursor.character = 0 if is_block_read else cursor.character + len(text)
        return text


@dataclass(slots=True)
class Cursor:
    """The place up to which one runner has read."""

    entry: int = 0
    part: int = 0  # Within the text of this entry
    character: int = 0  # Within the block that the part is in, or will be in
    size: int = 0
    """The part of ``ShownLog.size`` that is before this place."""

    def leave_entry(self) -> None:
        """Move behind the entry, all of which was read."""
        self.entry += 1
        self.part = 0
        self.character = 0


type Entry = ReplyEvent | ShownText | NextReply

_EVENT_SIZE: Final = 256
"""Bytes that an event without text counts for: about what its members take."""


class ShownWords(NamedTuple):
    """The words that one reply has shown."""

    text: str = ""  # What a person reads
    reasoning: str = ""
    pieces: int = 0  # Choices, blocks or items, without those of reasoning


class ShownLog:
    """The events that all replies of a turn have shown."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.size = 0
        """A measure of what was added, in characters; events without text count for some."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def extent(self) -> tuple[int, int]:
        """Return what changes whenever something is added."""
        return len(self._entries), self.size

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply."""
        self._entries.append(NEXT_REPLY)

    def add_told(self, event: ReplyEvent) -> None:
        """Add an event that is told of a body: its parts stay as they are told."""
        self.size += _size_of(event)
        self._entries.append(event)

    def add(self, event: ReplyEvent) -> None:
        """Add an event as it came: the parts of one text are joined."""
        self.size += _size_of(event)
        if not event.text:
            self._entries.append(event)
            return

        last = self._entries[-1] if self._entries else None
        if isinstance(last, ShownText) and last.continues_with(event):
            last.add(event.text)
        else:
            self._entries.append(ShownText(event))

    def words(self, start: int) -> ShownWords:
        """Return what the reply has shown that begins with the entry ``start`` (``len``)."""
        text: list[str] = []
        reasoning: list[str] = []
        pieces: set[int] = set()
        for event in self._unread(Cursor(entry=start)):
            if isinstance(event, NextReply):
                continue
            if event.kind == "reasoning":
                reasoning.append(event.text)
            elif event.kind == "content":
                pieces.add(event.piece)
                if is_visible(event.channel):
                    text.append(event.text)
        return ShownWords("".join(text), "".join(reasoning), len(pieces))

    def read(self, cursor: Cursor) -> Iterator[ReplyEvent | NextReply]:
        """Yield what came since the cursor's place, and move it.

        What is added while this is read is yielded, too.
        """
        for event in self._unread(cursor):
            if isinstance(event, ReplyEvent):
                cursor.size += _size_of(event)
            yield event

    def _unread(self, cursor: Cursor) -> Iterator[ReplyEvent | NextReply]:
        while cursor.entry < len(self._entries):
            entry = self._entries[cursor.entry]
            if not isinstance(entry, ShownText):
                cursor.leave_entry()
                yield entry
                continue

            yield from entry.read(cursor)
            if cursor.entry == len(self._entries) - 1:
                return  # The next part of this text may go into the same entry.
            cursor.leave_entry()


def is_visible(channel: str) -> bool:
    """Return whether the texts of a channel are what a person reads of an answer."""
    return channel in {"content", "text"} or channel.endswith(".text")


def _size_of(event: ReplyEvent) -> int:
    return len(event.text) or _EVENT_SIZE
