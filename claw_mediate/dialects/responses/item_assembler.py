"""One item of a provider's stream: what each of its events tells.

Servers leave events out. What is missing is told all the same: a part that begins without its own
event, a text that only its last event has, the ends of parts. So a piece always has the
channels of a whole one.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import CallPart, ReplyEvent
from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.dialects.members import split_object
from claw_mediate.dialects.responses.channels import (
    ADDED,
    DONE,
    FORMS,
    ITEM_ADDED,
    ITEM_DONE,
    PLACES,
    Form,
    is_closing,
)
from claw_mediate.dialects.responses.item_events import item_kind, tell_item
from claw_mediate.dialects.responses.items import (
    CUSTOM,
    FUNCTION,
    Item,
    check_parts,
    item_name,
    read_item,
)
from claw_mediate.dialects.responses.streamed_item import StreamedItem, check_count

type Members = dict[str, Any]
"""The members of an event: each a ``msgspec.Raw``, or a value of ours."""


_NEW_PARTS: Final = {
    "response.refusal": {"type": "refusal", "refusal": ""},
    "response.reasoning_text": {"type": "reasoning_text", "text": ""},
    "response.reasoning_summary_text": {"type": "summary_text", "text": ""},
}
"""Parts that begin without an event of their own, by the type of their first event."""
_NEW_TEXT: Final = {"type": "output_text", "text": "", "annotations": []}
_OF_STREAM: Final = ("sequence_number", "output_index", "item_id")
"""Members that each stream has its own of."""
_NO_TEXT: Final = (b'""', b"null")

_text_decoder = msgspec.json.Decoder(str)
_index_decoder: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
NULL: Final = msgspec.Raw(b"null")


def read_text(raw: msgspec.Raw) -> str:
    """Return the text of a member. Raise ``DecodeError`` for anything else."""
    return _text_decoder.decode(raw)


def read_index(raw: msgspec.Raw) -> int | None:
    """Return the number of a member; None for null. Raise ``DecodeError`` for anything else."""
    return _index_decoder.decode(raw)


class ItemAssembler(StreamedItem):
    """Puts one streamed item together, and says what its events tell.

    Every event that it returns is noted.
    """

    def __init__(self, piece: int, view: Item) -> None:
        """``view``: the item as it begins."""
        kind = item_kind(view)
        if view.kind == "tool_search_call" and view.execution != "server":
            kind = "call"  # It may turn out to be the client's.
        super().__init__(piece, kind)
        self.view = view
        self._call: CallPart | None = None

    def begin(self, raw: bytes, members: Members) -> Iterator[ReplyEvent]:
        """Yield the item's beginning, and what it holds already.

        ``members``: of the event, without the item.
        """
        if self.kind == "call":
            self._call = _call_part(self.view, raw)
            # Its arguments may come again in deltas, so that they are told at its end.
            yield self._tell(ADDED, ITEM_ADDED, {**members, "item": msgspec.Raw(raw)})
            return

        added, *others = tell_item(self.piece, raw)
        item = added.data["item"]
        if self.kind == "reasoning" and self.view.encrypted_content is not None:
            # Only its end says whether it may be sent back: then, what it led to is known.
            item = msgspec.Raw(json_splice.edit(bytes(item), {"encrypted_content": None}))
        yield self._tell(ADDED, ITEM_ADDED, {**members, "item": item})

        for event in others:
            if not is_closing(event.channel):
                yield self._noted(event)

    def take(self, name: str, form: Form, members: Members) -> Iterator[ReplyEvent]:
        """Yield what an event of a part or a text tells."""
        channel = form.suffix
        if form.prefix:
            index, is_new = self._find_part(form, members)
            channel = f"{form.prefix}.{index}.{form.suffix}"
            if is_new and form.suffix != "added":
                yield self._begin_part(form, name, index)

        delta = ""
        if form.text == "delta":
            delta = read_text(members.pop("delta", NULL))
            if not delta:
                return

        # Nothing of a text may come after its end, a second end included.
        ended_by = channel if is_closing(channel) else f"{channel}.done"
        if self.has_told(ended_by):
            raise UnreadableResponseError("a text of the provider's stream goes on behind its end")

        if delta:
            yield self._tell(channel, name, members, delta)
        elif form.suffix == "added":
            yield from self._take_part(channel, name, members)
        else:
            is_end_of_text = bool(form.text)
            if is_end_of_text:
                yield from self._take_whole_text(channel, name, members.get(form.text), members)
            yield self._tell(channel, name, members)

    def _find_part(self, form: Form, members: Members) -> tuple[int, bool]:
        """Return the index of an event's part, and True if the part is new.

        An event without an index belongs to the last part, or begins the next one.
        """
        count = self.count_parts(form.prefix)
        begins = form.suffix == "added"
        name = "summary_index" if form.prefix == "summary" else "content_index"

        index = read_index(members.get(name, NULL))
        if index is None:
            index = count if begins else max(count - 1, 0)
            members[name] = index

        is_known = 0 <= index < count
        if index != count and (begins or not is_known):
            raise UnreadableResponseError("the provider's stream has a part in a wrong place")
        check_count(index + 1)
        return index, index == count

    def _begin_part(self, form: Form, name: str, index: int) -> ReplyEvent:
        """Return the beginning of a part that the provider did not tell of."""
        part = _NEW_PARTS.get(name.rpartition(".")[0], _NEW_TEXT)
        is_summary = form.prefix == "summary"
        kind = "response.reasoning_summary_part" if is_summary else "response.content_part"
        data = {
            "summary_index" if is_summary else "content_index": index,
            "part": msgspec.Raw(msgspec.json.encode(part)),
        }
        return self._tell(f"{form.prefix}.{index}.added", f"{kind}.added", data)

    def _take_part(self, channel: str, name: str, members: Members) -> Iterator[ReplyEvent]:
        """Yield the beginning of a part. A text that it has already comes as a delta."""
        part = bytes(members.get("part", NULL))
        texts = split_object(part)
        member = "refusal" if "refusal" in texts else "text"
        raw = texts.get(member, b"")
        if raw[:1] != b'"' or raw == b'""':
            yield self._tell(channel, name, members)
            return

        empty = json_splice.edit(part, {member: b'""'})
        yield self._tell(channel, name, {**members, "part": msgspec.Raw(empty)})
        text_channel = f"{channel.removesuffix('added')}{member}"
        kind = self._text_type(channel, member)
        yield self._tell(
            text_channel, f"{kind}.delta", _place(members), read_text(msgspec.Raw(raw))
        )

    def _text_type(self, channel: str, member: str) -> str:
        """Return the beginning of the type of the events of a part's text."""
        if channel.startswith("summary."):
            return "response.reasoning_summary_text"
        if member == "refusal":
            return "response.refusal"
        return "response.reasoning_text" if self.kind == "reasoning" else "response.output_text"

    def _take_whole_text(
        self, channel: str, name: str, raw: msgspec.Raw | None, members: Members
    ) -> Iterator[ReplyEvent]:
        """Yield a text that came with its last event only."""
        text_channel = channel.removesuffix(".done")
        if self.has_text(text_channel) or raw is None or bytes(raw)[:1] != b'"':
            return

        text = read_text(raw)
        if text:
            delta = f"{name.removesuffix('.done')}.delta"
            yield self._tell(text_channel, delta, _place(members), text)

    def pass_on(self, name: str, members: Members) -> Iterator[ReplyEvent]:
        """Yield an event of a type that a body does not tell of."""
        places = [bytes(members[place]).decode() for place in PLACES if place in members]
        channel = ".".join(["other", name, *places])

        is_text = name.endswith(".delta") and bytes(members.get("delta", NULL))[:1] == b'"'
        text = read_text(members.pop("delta")) if is_text else ""
        if text or not is_text:
            yield self._tell(channel, name, members, text)

    def close(self, raw: bytes, members: Members) -> Iterator[ReplyEvent]:
        """Yield what of the item was not told yet, and its end.

        ``raw``: the item at its end. ``members``: of its last event, without the item.
        """
        self.check(raw)
        whole = self.with_texts(raw)
        for event in self.missing_events(whole):
            if event.channel == DONE:
                yield self._tell(DONE, ITEM_DONE, {**members, "item": msgspec.Raw(whole)})
            else:
                yield self._noted(event)

    def check(self, raw: bytes) -> None:
        """Raise ``UnreadableResponseError`` if the item is another one than it began as."""
        view = read_item(raw)
        check_parts(view)
        is_new_call = view.is_call and self.kind != "call"
        if is_new_call or view.kind != self.view.kind:
            raise UnreadableResponseError("an item of the provider's stream changes its type")

    def whole(self, stated: bytes | None) -> bytes:
        """Return the item as the reply has it.

        ``stated``: the same item in the reply's last event, None if it is not there.
        """
        if stated is None and self.done is not None:
            return self.done

        if stated is not None:
            self.check(stated)
            return stated if stated == self.done else self.with_texts(stated)

        # The provider ended the reply without it. A call like this is never run.
        so_far = self.so_far()
        if self.kind == "call" or "status" in split_object(so_far):
            return json_splice.edit(so_far, {"status": b'"incomplete"'})
        return so_far

    def _tell(self, channel: str, name: str, members: Members, text: str = "") -> ReplyEvent:
        """Return an event of the item, without what belongs to its stream."""
        for member in _OF_STREAM:
            members.pop(member, None)
        members["type"] = name

        is_known = name in FORMS or channel == DONE
        closes = is_known and self.kind != "call" and is_closing(channel)
        kind = "closing" if closes else self.kind
        return self._noted(ReplyEvent(kind, self.piece, members, channel, text))

    def _noted(self, event: ReplyEvent) -> ReplyEvent:
        self.note(event)
        if self._call is None:
            return event

        part = self._call._replace(closes=is_closing(event.channel))
        return msgspec.structs.replace(event, call=part)


def _call_part(view: Item, raw: bytes) -> CallPart:
    """Return the call that an item begins.

    It has no id if it can't be shown as it comes: if it is of no declared tool, or begins with
    arguments, which may come again.
    """
    members = split_object(raw)
    is_named = view.kind in {FUNCTION, CUSTOM} and not view.namespace
    is_empty = all(members.get(name, b'""') in _NO_TEXT for name in ("arguments", "input"))
    call_id = view.own_call_id if is_named and is_empty else ""
    return CallPart(0, call_id if isinstance(call_id, str) else "", item_name(view))


def _place(members: Members) -> Members:
    """Return the members that say which part an event belongs to."""
    return {name: members[name] for name in PLACES if name in members}
