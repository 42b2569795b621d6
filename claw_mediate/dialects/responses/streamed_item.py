"""An item of a stream, put together of its events.

The assembler of a provider's stream needs it, and the writer of a runner's: each must be able to
say what an item is so far.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.dialects.base import MAX_PARTS, UnreadableResponseError
from claw_mediate.dialects.bodies import Changes
from claw_mediate.dialects.members import split_array, split_object, string_member
from claw_mediate.dialects.responses.channels import ADDED, DONE, PART_PREFIXES
from claw_mediate.dialects.responses.item_events import tell_item
from claw_mediate.dialects.responses.items import join_items

_ARRAYS: Final = {"content": "part", "summary": "summary"}
"""Members that are arrays of parts, and the beginning of their channels."""
_PART_TEXTS: Final = ("text", "refusal")
_ITEM_TEXTS: Final = ("arguments", "input")


class StreamedItem:
    """One item, as far as its events have told of it."""

    def __init__(self, piece: int, kind: EventKind) -> None:
        self.piece = piece
        self.kind: EventKind = kind
        """The kind of the item's events, besides the closing ones."""
        self.done: bytes | None = None
        """The item as its last event gives it; None before that."""
        self._added = b"{}"
        self._texts: dict[str, list[str]] = {}
        self._parts: dict[str, list[bytes]] = {}
        self._annotations: dict[str, list[bytes]] = {}
        self._told: Counter[str] = Counter()  # Events without text, by channel

    def note(self, event: ReplyEvent) -> None:
        """Take one more event of the item."""
        channel = event.channel
        if event.text:
            texts = self._texts.get(channel)
            if texts is None:
                self._texts[channel] = [event.text]
            else:
                texts.append(event.text)
            return

        self._told[channel] += 1
        if channel == ADDED:
            self._added = bytes(event.data["item"])
        elif channel == DONE:
            self.done = bytes(event.data["item"])
        elif "part" in event.data and channel.startswith(PART_PREFIXES):
            self._note_part(channel, bytes(event.data["part"]))
        elif "annotation" in event.data and channel.endswith(".annotation"):
            part = channel.removesuffix(".annotation")
            self._annotations.setdefault(part, []).append(bytes(event.data["annotation"]))

    def _note_part(self, channel: str, part: bytes) -> None:
        prefix, index, _ = channel.split(".", 2)
        parts = self._parts.setdefault(prefix, [])
        if int(index) == len(parts):
            parts.append(part)
        else:
            parts[int(index)] = part

    def count_parts(self, prefix: str) -> int:
        """Return how many parts have begun: of the content (``part``), or of the ``summary``."""
        return len(self._parts.get(prefix, ()))

    def has_text(self, channel: str) -> bool:
        return channel in self._texts

    def text(self, channel: str) -> str:
        """Return the text of a channel so far."""
        return "".join(self._texts.get(channel, ()))

    def has_told(self, channel: str) -> bool:
        """Return True if an event without text was one of this channel."""
        return channel in self._told

    def so_far(self) -> bytes:
        """Return the item as far as it is known."""
        return self.with_texts(self._added) if self.done is None else self.done

    def missing_events(self, whole: bytes) -> Iterator[ReplyEvent]:
        """Yield those events of the whole item that have not come yet."""
        told = self._told.copy()
        for event in tell_item(self.piece, whole):
            if event.text:
                if not self.has_text(event.channel):
                    yield event
            elif told[event.channel]:
                told[event.channel] -= 1
            else:
                yield event

    def with_texts(self, item: bytes) -> bytes:
        """Return the item with the texts that came, and the parts that it lacks.

        Raise ``UnreadableResponseError`` if they differ in a call: it must be clear what to run.
        """
        if self.kind == "call":
            self._check_call(item)
        return self.as_shown(item)

    def _check_call(self, item: bytes) -> None:
        members = split_object(item)
        for name in _ITEM_TEXTS:
            stated = string_member(members, name)
            if stated and name in self._texts and stated != self.text(name):
                raise UnreadableResponseError(
                    "a call of the provider's stream differs from what its deltas say"
                )

    def as_shown(self, item: bytes) -> bytes:
        """Return the item with the texts that came, and the parts that it lacks.

        Where a text differs from the one that came, that one counts: a runner may have seen it.
        """
        if not self._texts and not self._parts:
            return item

        members = split_object(item)
        changes: Changes = {}
        for name, prefix in _ARRAYS.items():
            array = members.get(name, b"")
            parts = split_array(array) if array[:1] == b"[" else []
            filled = self._fill(parts, prefix)
            if filled != parts:
                changes[name] = join_items(filled)

        for name in _ITEM_TEXTS:
            if name in self._texts:
                text = self.text(name)
                if string_member(members, name) != text:
                    changes[name] = msgspec.json.encode(text)

        return json_splice.edit(item, changes) if changes else item

    def _fill(self, parts: list[bytes], prefix: str) -> list[bytes]:
        """Return the parts, with what came of them, and with those that came but are not there."""
        streamed = self._parts.get(prefix, [])
        filled = parts + streamed[len(parts) :]
        for index, part in enumerate(filled[: len(streamed)]):
            filled[index] = self._fill_part(part, f"{prefix}.{index}", is_new=index >= len(parts))
        return filled

    def part_as_shown(self, part: bytes, channel: str) -> bytes:
        """Return a part with the texts that came. ``channel``: of its last event."""
        return self._fill_part(part, channel.removesuffix(".done"), is_new=False)

    def _fill_part(self, part: bytes, channel: str, *, is_new: bool) -> bytes:
        changes: Changes = {}
        for name in _PART_TEXTS:
            if self.has_text(f"{channel}.{name}"):
                text = self.text(f"{channel}.{name}")
                if string_member(split_object(part), name) != text:
                    changes[name] = msgspec.json.encode(text)

        annotations = self._annotations.get(channel)
        if is_new and annotations and not self.has_told(f"{channel}.done"):
            changes["annotations"] = join_items(annotations)

        return json_splice.edit(part, changes) if changes else part


def check_count(count: int) -> None:
    """Raise ``UnreadableResponseError`` for more items, or parts, than a body may have."""
    if count > MAX_PARTS:
        raise UnreadableResponseError(f"the provider's response holds more than {MAX_PARTS} parts")
