"""The writer of a runner's stream of the Responses API (docs/spec/live.md section 4).

    what counts over the stream  rule
    ───────────────────────────  ────────────────────────────────────────────────────────────────
    the response's id            the first one that was shown, in every event that has one
    sequence_number              all events, from 0
    output_index                 the items that are shown, from 0, over all replies
    an item's id                 the provider's, unless an earlier reply of the turn has shown it:
                                   some servers count from msg_0 in each reply
    output                       every item that was shown, in order, as it was shown

Strict clients read each of these: another id of the response, an item without its place, or a
lifecycle event that has lost the items, ends their reading.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from claw_contract.secret import DOTS
from claw_mediate.core import json_splice
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.members import (
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from claw_mediate.dialects.responses.channels import ADDED, DONE, FORMS, PLACES, is_closing
from claw_mediate.dialects.responses.echo import echo_changes
from claw_mediate.dialects.responses.items import join_items, mint_item_id, read_item
from claw_mediate.dialects.responses.stream import BEGUN
from claw_mediate.dialects.responses.streamed_item import StreamedItem
from claw_mediate.dialects.streams import Keepalive, OwnOpening

_TERMINAL: Final = {"incomplete": "response.incomplete", "failed": "response.failed"}
_CODES: Final = {
    "server_error",
    "rate_limit_exceeded",
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_prompt",
}
"""Error codes that runners know. Any other code goes into the message."""
_NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
_OUTPUT_TEXT: Final = "response.output_text.delta"

type _Members = dict[str, Any]


class _ShownItem:
    """An item of the stream, with what was shown of it."""

    def __init__(self, index: int, item_id: str, parts: StreamedItem) -> None:
        self.index = index
        self.id = item_id
        self._shown: StreamedItem | bytes = parts  # The whole item, once its last event was shown
        self._beat: _Members | None = None

    @property
    def beat(self) -> _Members | None:
        """Return an event that may come again without saying anything; None if there is none.

        It is an empty delta of the text that is open, or the last progress of a hosted item.
        """
        return None if self._beat is None else dict(self._beat)

    def note(self, event: ReplyEvent, name: str) -> None:
        """Take an event that was shown. ``name``: its type."""
        if isinstance(self._shown, bytes):
            return

        self._beat = None
        if event.text:
            places = {place: event.data[place] for place in PLACES if place in event.data}
            logprobs: _Members = {"logprobs": []} if name == _OUTPUT_TEXT else {}
            self._beat = {"type": name, "delta": "", **logprobs, **places}
        elif event.channel.startswith("other.") and event.data.keys() == {"type"}:
            # With other members it would say something again: a part of an image, say.
            self._beat = {"type": name}

        self._shown.note(event)
        if self._shown.done is not None:
            self._shown = self._shown.done  # Its texts are in it.

    def close_as_shown(self, event: ReplyEvent) -> ReplyEvent:
        """Return an event that ends a text, a part or the item, with the texts that were shown.

        Of a secret that came in parts, the first characters were shown before its dots. A client
        may read the deltas, or what ends them.
        """
        shown, data = self._shown, event.data
        if isinstance(shown, bytes) or not is_closing(event.channel) or not _has_dots(data):
            return event

        if event.channel == DONE:
            item = shown.as_shown(bytes(data["item"]))
            return replace(event, data={**data, "item": msgspec.Raw(item)})
        if "part" in data:
            part = shown.part_as_shown(bytes(data["part"]), event.channel)
            return replace(event, data={**data, "part": msgspec.Raw(part)})

        form = FORMS.get(_text(data.get("type")))
        channel = event.channel.removesuffix(".done")
        if form is None or not form.text or not shown.has_text(channel):
            return event
        return replace(event, data={**data, form.text: shown.text(channel)})

    def so_far(self) -> bytes:
        """Return the item as it was shown."""
        return self._shown if isinstance(self._shown, bytes) else self._shown.so_far()


class ResponseWriter:
    """Writes one stream (``streams.StreamWriter``)."""

    def __init__(self, request: RunnerRequest, own: OwnOpening) -> None:
        self._request = request
        self._own = own
        self._response: _Members | None = None
        """The response as the stream began with it; None before that."""
        self._id = ""
        self._numbers = 0  # Events so far
        self._items: list[_ShownItem] = []
        self._pieces: dict[int, _ShownItem] = {}  # Those of the present reply
        self._earlier_ids: set[str] = set()  # Of items of earlier replies
        self._last: _ShownItem | None = None  # The item of the last event
        self._minted: dict[str, str] = {}

    @property
    def id(self) -> str:
        return self._id

    @property
    def minted(self) -> Mapping[str, str]:
        """Return the items' ids that the stream made up.

        Each has the id that the provider gave to the item; "" if it gave none.
        """
        return self._minted

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply (``streams.StreamWriter``)."""
        self._earlier_ids |= {item.id for item in self._pieces.values()}
        self._pieces = {}

    def write(self, event: ReplyEvent) -> bytes:
        """Return what an event adds to the stream (``streams.StreamWriter``)."""
        if event.kind == "opening":
            return b"" if self._response is not None else self._open(dict(event.data))

        opening = b"" if self._response is not None else self._open(self._own_response())
        if event.kind == "end":
            return opening + self._end(dict(event.data))
        return opening + self._write_item_event(event)

    def _open(self, response: _Members) -> bytes:
        """Return the events with which a stream begins."""
        return self._create(response) + self._lifecycle("response.in_progress")

    def _create(self, response: _Members) -> bytes:
        """Return the first event of a stream, which gives the response its id."""
        response |= self._echo(response)
        self._id = _text(response.get("id")) or self._own.id
        self._response = self._with_own_id(response)
        return self._lifecycle("response.created")

    def _with_own_id(self, response: _Members) -> _Members:
        """Return a response under the id of the stream, spelled as the provider spells it."""
        is_own = _text(response.get("id")) == self._id
        return response if is_own else {**response, "id": self._id}

    def _own_response(self) -> _Members:
        """Return a response as it is when a stream begins that no reply has begun."""
        return {
            "id": self._own.id,
            "object": "response",
            "created_at": self._own.created,
            "model": self._own.model,
            "status": "in_progress",
            **BEGUN,
            **dict.fromkeys(("instructions", "metadata", "temperature", "top_p")),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def _echo(self, response: _Members) -> _Members:
        """Return the changes that make a response repeat the runner's request."""

        def value(name: str) -> bytes | None:
            raw = response.get(name)
            return bytes(raw) if isinstance(raw, msgspec.Raw) else None

        changes = echo_changes(value, self._request)
        return as_raw({name: without_line_breaks(raw) for name, raw in changes.items()})

    def _write_item_event(self, event: ReplyEvent) -> bytes:
        shown = self._pieces.get(event.piece)
        if shown is None:
            shown = self._show_item(event)
        self._last = shown

        event = shown.close_as_shown(event)
        data = dict(event.data)
        name = _text(data.pop("type"))

        place: _Members = {"output_index": shown.index}
        if event.channel in {ADDED, DONE}:
            data["item"] = msgspec.Raw(_with_id(bytes(data["item"]), shown.id))
            event = replace(event, data=data)
        else:
            place["item_id"] = shown.id
        shown.note(event, name)

        if event.text and name == _OUTPUT_TEXT:
            return self._event(name, {**place, "delta": event.text, **data})
        if event.text:
            return self._event(name, {**place, **data, "delta": event.text})
        return self._event(name, {**place, **data})

    def _show_item(self, event: ReplyEvent) -> _ShownItem:
        """Return a new item of the stream. ``event``: its beginning."""
        view = read_item(bytes(event.data["item"]))
        given = view.id if isinstance(view.id, str) else ""
        index = len(self._items)

        item_id = given
        if not given or given in self._earlier_ids:
            seed = hashlib.sha256(f"{self._id} {given}".encode()).hexdigest()[:16]
            item_id = mint_item_id(view.kind, seed, index)
            self._minted[item_id] = given

        parts = StreamedItem(event.piece, event.kind)
        shown = self._pieces[event.piece] = _ShownItem(index, item_id, parts)
        self._items.append(shown)
        return shown

    def _end(self, response: _Members) -> bytes:
        """Return the last event, of the last reply's response."""
        response |= self._echo(response)
        status = _text(response.get("status")) or "completed"
        if _is_null(response.get("usage")):
            # Strict clients read its numbers.
            response["usage"] = _NO_USAGE

        stated = response.get("output")
        output = self._output(bytes(stated) if isinstance(stated, msgspec.Raw) else b"")
        whole = {**self._with_own_id(response), "output": msgspec.Raw(output)}
        name = _TERMINAL.get(status, "response.completed")
        return self._event(name, {"response": whole})

    def _output(self, stated: bytes) -> bytes:
        """Return all items that were shown. ``stated``: the output of the last reply.

        If that is all, these are its bytes.
        """
        items = [item.so_far() for item in self._items]
        is_array = stated[:1] == b"["
        if is_array and [*map(_compact, split_array(stated))] == [*map(_compact, items)]:
            return stated
        return join_items(items)

    def answer(self, body: bytes) -> bytes:
        """Return the last reply's body with all that was shown (``streams.StreamWriter``)."""
        parsed = json_splice.Object(body)
        stated = parsed.value("output") or b""
        output = self._output(stated)
        changes = {} if output == stated else {"output": output}
        stated_id = msgspec.Raw(parsed.value("id") or b"null")
        if self._id and _text(stated_id) != self._id:
            changes["id"] = msgspec.json.encode(self._id)
        return parsed.edit(changes) if changes else body

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that says nothing new (``streams.StreamWriter``).

        ``response.in_progress`` without the items that were shown would make clients forget them.
        """
        if kind == "comment":
            return sse.comment(note)
        if self._response is None:
            return self._open(self._own_response())

        last = self._last
        repeated = None if last is None else last.beat
        if last is None or repeated is None:
            return self._lifecycle("response.in_progress")
        place = {"output_index": last.index, "item_id": last.id}
        return self._event(repeated.pop("type"), {**place, **repeated})

    def error(self, error: bytes) -> bytes:
        """Return the two events of an error (``streams.StreamWriter``).

        Clients in JavaScript read the first one, and Codex the second. Strict clients expect
        ``response.created`` before them.
        """
        details = msgspec.json.decode(error).get("error") or {}
        code = str(details.get("code") or "server_error")
        message = str(details.get("message") or "the request failed")
        if code not in _CODES:
            message = f"{code}: {message}"
            code = "server_error"
        shown = {"code": code, "message": message}

        created = b"" if self._response is not None else self._create(self._own_response())
        flat = self._event("error", {**shown, "param": None})
        failed = self._lifecycle("response.failed", {"status": "failed", "error": shown})
        return created + flat + failed

    def _lifecycle(self, name: str, changes: Mapping[str, Any] | None = None) -> bytes:
        """Return an event with the response as it began, and the items that were shown since."""
        response = {**(self._response or {}), **(changes or {})}
        if self._items:
            response["output"] = msgspec.Raw(join_items(item.so_far() for item in self._items))
        return self._event(name, {"response": response})

    def _event(self, name: str, members: _Members) -> bytes:
        data = msgspec.json.encode({"type": name, "sequence_number": self._numbers, **members})
        self._numbers += 1
        return sse.event(data, name)


_DOTS: Final = (DOTS.encode(), json.dumps(DOTS)[1:-1].encode())
"""A secret's dots in JSON, in either spelling."""


def _has_dots(data: Mapping[str, Any]) -> bool:
    """Return whether dots are in the members of an event, which a secret may have left."""
    encoded = msgspec.json.encode(data)
    return any(form in encoded for form in _DOTS)


def _text(value: Any) -> str:
    """Return a member that is a text; "" for any other."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    return value if isinstance(value, str) else ""


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")


def _with_id(item: bytes, item_id: str) -> bytes:
    if string_member(split_object(item), "id") == item_id:
        return item
    return json_splice.edit(item, {"id": msgspec.json.encode(item_id)})


def _compact(item: bytes) -> bytes:
    """Return an item as it is compared: without line breaks, and spaces between its members."""
    return msgspec.json.encode(as_raw(split_object(without_line_breaks(item))))
