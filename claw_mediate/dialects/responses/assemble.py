"""The stream of a provider's response, put together (docs/spec/responses.md sections 4 to 7).

event                                 becomes
────────────────────────────────────  ───────────────────────────────────────────────────────
response.created, .in_progress        the opening, once
response.output_item.added            the beginning of the next piece
the events of an item                 its parts and texts (``channels``)
response.output_item.done             what of the item was not told yet, and its end
response.completed, .incomplete       items that were not told yet, and the reply's end
response.failed, error                ``error``
keepalive, and unknown events that    nothing
  belong to no item
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from claw_contract.sse import SseEvent
from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from claw_mediate.dialects.responses.channels import FORMS, ITEM_ADDED, ITEM_DONE
from claw_mediate.dialects.responses.failures import failed_response
from claw_mediate.dialects.responses.item_assembler import (
    NULL,
    ItemAssembler,
    read_index,
    read_text,
)
from claw_mediate.dialects.responses.items import Item, join_items, read_item
from claw_mediate.dialects.responses.matching import match_items
from claw_mediate.dialects.responses.stream import begun
from claw_mediate.dialects.responses.streamed_item import check_count

type _EventMembers = dict[str, Any]

_OPENINGS: Final = {"response.created", "response.in_progress", "response.queued"}
_INCOMPLETE: Final = "response.incomplete"
_ENDS: Final = {"response.completed", _INCOMPLETE}
_FAILURES: Final = {"response.failed", "error"}

_decoder = cast("msgspec.json.Decoder[_EventMembers]", msgspec.json.Decoder(dict[str, msgspec.Raw]))


class ResponseAssembler:
    """Puts one streamed response together (``streams.Assembler``)."""

    def __init__(self) -> None:
        self._items: list[ItemAssembler] = []
        self._by_index: dict[int, ItemAssembler] = {}
        self._by_id: dict[str, ItemAssembler] = {}
        self._is_open = False
        self._id = b""  # Of the response, as JSON
        self._error: FailedResponseError | None = None
        self._body: bytes | None = None
        self._usage: bytes | None = None

    @property
    def is_whole(self) -> bool:
        return self._body is not None

    @property
    def is_over(self) -> bool:
        return self.is_whole

    @property
    def error(self) -> FailedResponseError | None:
        return self._error

    def usage(self) -> bytes | None:
        return self._usage

    def body(self) -> bytes:
        """Return the response of the last event, with the items and texts that came before it.

        Where the provider states an item as it streamed it, these are its own bytes
        (``streams.Assembler``).
        """
        if self._body is None:
            raise UnreadableResponseError("the provider's stream ended before its response")
        return self._body

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        """Return what an event tells (``streams.Assembler``)."""
        if event.data == b"[DONE]":
            return ()

        try:
            json_splice.check_utf8(event.data)
            members = _decoder.decode(without_line_breaks(event.data))
            return tuple(self._take(_event_type(members, event.name), members))
        except json_splice.JsonSpliceError as error:
            raise UnreadableResponseError(f"the provider's stream is ambiguous: {error}") from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise UnreadableResponseError(
                "the provider's stream is not one of the Responses API"
            ) from error

    def _take(self, name: str, members: _EventMembers) -> Iterator[ReplyEvent]:
        form = FORMS.get(name)
        if form is not None:
            yield from self._open_item(members).take(name, form, members)
        elif name == ITEM_ADDED:
            yield from self._begin_item(members)
        elif name == ITEM_DONE:
            yield from self._end_item(members)
        elif name in _OPENINGS:
            yield from self._open(members)
        elif name in _ENDS:
            yield from self._end(name, members)
        elif name in _FAILURES:
            self._fail(members)
        elif name != "keepalive":
            item = self._find_item(members)
            if item is not None and item.done is None:
                yield from item.pass_on(name, members)

    def _open(self, members: _EventMembers) -> Iterator[ReplyEvent]:
        if not self._is_open:
            self._is_open = True
            response = split_object(bytes(members.get("response", NULL)))
            self._id = response.get("id", b"")
            self._note_usage(response)
            yield ReplyEvent("opening", 0, begun(response))

    def _begin_item(self, members: _EventMembers) -> Iterator[ReplyEvent]:
        raw = bytes(members.pop("item", NULL))
        index = read_index(members.get("output_index", NULL))
        item = self._add_item(read_item(raw), index)
        yield from item.begin(raw, members)

    def _add_item(self, view: Item, index: int | None) -> ItemAssembler:
        """Return a new item, at the next place. ``index``: its ``output_index``, if it has one."""
        if self._body is not None:
            raise UnreadableResponseError("the provider's stream goes on behind its end")
        if index is not None and index in self._by_index:
            raise UnreadableResponseError("the provider's stream has two items with one index")

        check_count(len(self._items) + 1)
        item = ItemAssembler(len(self._items), view)
        self._items.append(item)
        if index is not None:
            self._by_index[index] = item
        if isinstance(view.id, str) and view.id:
            self._by_id[view.id] = item
        return item

    def _open_item(self, members: _EventMembers) -> ItemAssembler:
        item = self._find_item(members)
        if item is None or item.done is not None or self._body is not None:
            raise UnreadableResponseError("the provider's stream tells of an item that is not open")
        return item

    def _find_item(self, members: _EventMembers) -> ItemAssembler | None:
        """Return the item that an event belongs to, by its index, else by its id."""
        index = read_index(members.get("output_index", NULL))
        if index is not None:
            return self._by_index.get(index)

        raw_id = members.get("item_id", NULL)
        return None if bytes(raw_id) == b"null" else self._by_id.get(read_text(raw_id))

    def _end_item(self, members: _EventMembers) -> Iterator[ReplyEvent]:
        raw = bytes(members.pop("item", NULL))
        view = read_item(raw)

        index = read_index(members.get("output_index", NULL))
        if index is not None:
            item = self._by_index.get(index)
        else:
            item = self._by_id.get(view.id) if isinstance(view.id, str) else None

        if item is None:
            item = self._add_item(view, index)  # Some servers tell of its end only.
        elif item.done is not None or self._body is not None:
            raise UnreadableResponseError("the provider's stream ends an item twice")
        yield from item.close(raw, members)

    def _end(self, name: str, members: _EventMembers) -> Iterator[ReplyEvent]:
        """Yield what was not told yet, and the end of the reply."""
        if self._body is not None:
            raise UnreadableResponseError("the provider's stream has two ends")

        raw = bytes(members.get("response", NULL))
        response = split_object(raw)
        self._note_usage(response)
        output = response.get("output", b"")
        stated = split_array(output) if output[:1] == b"[" else []

        matched = match_items([item.view for item in self._items], stated)
        items: list[bytes] = []
        for item, same in zip(list(self._items), matched.same, strict=True):
            whole = item.whole(same)
            items.append(whole)
            if item.done is None:
                yield from item.close(whole, {})

        for extra in matched.others:
            items.append(extra)
            yield from self._add_item(read_item(extra), None).close(extra, {})

        changes = self._mend(name, response)
        if items != stated or not output:
            changes["output"] = join_items(items)
        self._body = json_splice.edit(raw, changes) if changes else raw
        yield ReplyEvent("end", 0, as_raw({**response, **changes}))

    def _mend(self, name: str, response: Members) -> dict[str, bytes]:
        """Return the changes by which a response says the same as the type of its event."""
        changes: dict[str, bytes] = {}
        status = string_member(response, "status")
        is_cut = name == _INCOMPLETE and status in {None, "completed"}
        if is_cut or status in {"in_progress", "queued"}:
            changes["status"] = b'"incomplete"' if name == _INCOMPLETE else b'"completed"'
        if self._id and "id" not in response:
            changes["id"] = self._id
        return changes

    def _note_usage(self, response: Members) -> None:
        usage = response.get("usage", b"")
        if usage[:1] == b"{":
            self._usage = usage

    def _fail(self, members: _EventMembers) -> None:
        """Note the failure that an event tells of. The first one counts."""
        nested = bytes(members.get("error", NULL))
        if "response" in members:
            response = split_object(bytes(members["response"]))
            self._note_usage(response)
            told = response.get("error", b"null")
        else:
            told = nested if nested[:1] == b"{" else msgspec.json.encode(members)

        if self._error is None:
            self._error = failed_response(msgspec.json.decode(told))


def _event_type(members: _EventMembers, name: bytes) -> str:
    """Return the type of an event; "" if it names none."""
    raw = members.get("type")
    if raw is not None:
        return read_text(raw)
    if name != b"message":
        return name.decode(errors="replace")
    return "error" if "error" in members else ""
