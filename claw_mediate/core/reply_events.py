"""The events of one model reply, as they come in a stream or are told of a whole body.

A protocol's own event is kept in ``data``; ``kind`` says what the rules of a stream need to know of
it. Ids, indexes and sequence numbers of the stream are not in ``data``: the writer of a stream adds
its own, because a stream may be made of several replies (docs/spec/live.md section 4).

A reply that is read from a stream and the same reply told of its body have the same pieces and
channels, with the same text in each. So what a runner was shown of a reply while it came can be
left out of what is told of its body (``core.live``).
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

type EventKind = Literal[
    "opening",  # The head of the reply: its id, model and first usage
    "content",  # Text, or another piece that cannot turn out to be a part of a call
    "reasoning",  # The model's thinking: a piece whose provider may want it back as it was
    "object",  # Members that SDKs join over replies, so that they belong to the last reply only
    "call",  # A part of a call that is not the provider's own
    "closing",  # The end of one piece, or of a part of it
    "end",  # The end of the reply: its reason, its usage, its last event
]


class CallPart(NamedTuple):
    """The call that an event is a part of."""

    number: int  # Tells it from the other calls of its piece
    id: str  # The provider's; "" for none
    tool: str
    """The name of its tool; "" while more of it may come, and for a call without a tool."""
    closes: bool = False  # True for the end of the call, or of its arguments


class ReplyEvent(msgspec.Struct, frozen=True):
    """One event of a reply."""

    kind: EventKind
    piece: int
    """The place of the event's piece in the reply: of a choice, a block or an item, from 0.

    0 for the opening and the end.
    """
    data: Mapping[str, Any]
    """The members of the protocol's event. What is passed on as it came is a ``msgspec.Raw``."""
    channel: str = ""
    """The name, unique in its piece, of what the event is a part of.

    Of an event with ``text`` it is the text that the events of this channel make together. Of one
    without, it tells its kind of event from the piece's others: the events of one channel come in
    the same order, and as many, whether they are read from a stream or told of a body.
    """
    text: str = ""
    """The next part of the channel's text; it is not in ``data``."""
    call: CallPart | None = None
    """The call, for an event of kind ``call`` in a provider's stream."""


def with_data(event: ReplyEvent, data: bytes) -> ReplyEvent:
    """Return an event with other members. ``data``: the changed JSON of its own.

    What was read of them is read again, and what is passed on as it came stays ``msgspec.Raw``.
    """
    return replace(event, data=_read_like(event.data, data))


def _read_like(before: Mapping[str, Any], data: bytes | msgspec.Raw) -> dict[str, Any]:
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return {name: _value_like(before.get(name, raw), raw) for name, raw in members.items()}


def _value_like(before: Any, raw: msgspec.Raw) -> Any:
    if isinstance(before, msgspec.Raw):
        return raw
    return _read_like(before, raw) if isinstance(before, Mapping) else msgspec.json.decode(raw)
