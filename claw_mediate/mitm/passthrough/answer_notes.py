"""Notes of a forwarded answer.

They are its usage, its id, its size in tokens, and the ids of what its provider made for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from claw_mediate.core.cost import count_event_tokens, count_tokens
from claw_mediate.core.object_ids import AnswerShape, GivenObject, find_given_objects

_USAGE: Final = b'"usage"'
_RESPONSE: Final = b'"response"'

type OnId = Callable[[str], None]
type OnGiven = Callable[[Sequence[GivenObject]], None]


class _UsageHolder(msgspec.Struct):
    usage: dict[str, Any] | None = None
    id: Any = None


class _WireDocument(_UsageHolder):
    """The places of a usage.

    OpenAI's is at the top, Anthropic's in ``message_start``, and that of Responses in the
    ``response`` of the last event.
    """

    message: _UsageHolder | str | None = None
    response: _UsageHolder | str | None = None


_decoder = msgspec.json.Decoder(_WireDocument)


class AnswerNotes:
    """The facts of one answer, taken from its JSON documents as they come."""

    def __init__(
        self,
        on_id: OnId | None = None,
        shape: AnswerShape | None = None,
        on_given: OnGiven | None = None,
        *,
        measures: bool = False,
    ) -> None:
        """Begin the notes of an answer.

        ``on_id`` is called once, with the id of what the provider keeps; ``on_given`` with the
        objects at the places of ``shape``. Both are called before the bytes with the ids go on.
        ``measures``: tokens are counted, too.
        """
        self.usage: dict[str, Any] = {}
        self.is_usage_final = False
        """True if the usage is of the whole answer so far.

        Anthropic's ``message_start`` is not: it counts the prompt, and one token of the answer.
        """
        self.tokens = 0.0  # Of what was received
        self.measures = measures
        self._on_id = on_id  # None once the id is known, or where nobody asks for it
        self._shape = shape
        self._on_given = on_given
        self._needles = self._find_needles()

    @property
    def wants_objects(self) -> bool:
        return self._shape is not None

    def concern(self, events: bytes) -> bool:
        """Return whether some events have to be read: most hold nothing but words."""
        for needle in self._needles:  # a loop, because this runs for each part of each stream
            if needle in events:
                return True
        return self.measures

    def take_event(self, document: bytes) -> None:
        """Note what the data of one event tells."""
        if self.measures:
            self.tokens += count_event_tokens(document)
        if _USAGE in document or (self._on_id is not None and _RESPONSE in document):
            self._take_usage(document)
        self.take_objects(document)

    def take_document(self, document: bytes | bytearray) -> None:
        """Note what an answer of one document tells."""
        self._take_usage(document)
        self.take_objects(document)

    def take_objects(self, document: bytes | bytearray) -> None:
        """Note the objects that a document gives."""
        if self._shape is None or self._on_given is None:
            return

        given = find_given_objects(document, self._shape)
        if given:
            self._on_given(given)

    def count_bytes(self, piece: bytes) -> None:
        """Count a piece of a document."""
        if self.measures:
            self.tokens += count_tokens(piece)

    def add_usage(self, usage: dict[str, Any]) -> None:
        """Add what the answer says of its tokens by now."""
        self.usage |= {name: value for name, value in usage.items() if value is not None}

    def report_id(self, object_id: object) -> None:
        """Report the id of the answer, unless it is none, or one was reported."""
        on_id = self._on_id
        if on_id is None or not isinstance(object_id, str) or not object_id:
            return

        self._on_id = None
        self._needles = self._find_needles()
        on_id(object_id)

    def _take_usage(self, document: bytes | bytearray) -> None:
        try:
            decoded = _decoder.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return

        response = decoded.response
        kept = response if isinstance(response, _UsageHolder) else decoded
        self.report_id(kept.id)
        for holder in (decoded, decoded.message, response):
            if isinstance(holder, _UsageHolder) and holder.usage is not None:
                self.add_usage(holder.usage)
                self.is_usage_final |= holder is not decoded.message

    def _find_needles(self) -> tuple[bytes, ...]:
        """Return the words of which every event that tells something has one."""
        needles = (_USAGE,) if self._on_id is None else (_USAGE, _RESPONSE)
        return needles if self._shape is None else (*needles, *self._shape.needles)
