"""The ids that a forwarded answer gives, read from a copy while its own bytes go through (``core/object_ids.py``).

The copy may be packed, cut anywhere, hostile or endless, so its cost is bounded: a document or a line that is longer than the
bound gives nothing. A document is one JSON value; a stream of events, or of results, has one in each line.
"""

import logging
from collections.abc import Callable, Sequence

from claw_mediate.core.object_ids import AnswerShape, GivenObject, find_given_objects
from claw_mediate.http.content_coding import Decoder, DecodingError

_MAX_DOCUMENT = 8 << 20
_MAX_UNPACKED = 1 << 30
_log = logging.getLogger(__name__)

type OnGiven = Callable[[Sequence[GivenObject]], None]


class ObjectTap:
    """A reader of a copy: bytes in, and ``on_given`` is told of the objects. It never raises, which would hang the runner."""

    def __init__(self, content_type: str, applied: tuple[str, ...], shape: AnswerShape, on_given: OnGiven) -> None:
        plain = content_type.lower()
        self._is_document = "json" in plain and not plain.startswith(("application/x-jsonl", "application/jsonl"))
        self._shape = shape
        self._on_given = on_given
        self._buffer = bytearray()
        self._is_too_long = False  # The line, or the document, that is being read
        try:
            self._unpacking: Decoder | None = Decoder(applied, _MAX_UNPACKED)
        except DecodingError:
            self._unpacking = None

    def read(self, data: bytes) -> None:
        """Read a part of the answer; ``b""`` at its end."""
        if self._unpacking is None:
            return

        try:
            for piece in self._unpacking.feed(data):
                self._feed(piece)
            if not data:
                self._take(bytes(self._buffer))
                self._unpacking = None
        except DecodingError:
            self._unpacking = None
        except Exception as error:  # noqa: BLE001 - nothing that a copy holds may harm the response itself
            _log.warning("the ids of a response are not read: %s", type(error).__name__)
            self._unpacking = None

    def _feed(self, piece: bytes) -> None:
        if self._is_document:
            self._append(piece)
            return

        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if not end:
            self._append(piece)
            return

        lines = self._complete_lines(piece[:end])
        self._buffer.clear()
        self._is_too_long = False
        if self._shape.may_give(lines):  # most parts of a stream hold words alone
            for line in lines.split(b"\n"):
                self._take(line)
        self._append(piece[end:])

    def _complete_lines(self, piece: bytes) -> bytes:
        """Return the lines that end in a piece, with line feeds; without the first where it is too long."""
        plain = piece.replace(b"\r", b"\n")
        if self._is_too_long or len(self._buffer) + len(piece) > _MAX_DOCUMENT:
            return plain.partition(b"\n")[2]

        return bytes(self._buffer) + plain

    def _append(self, piece: bytes) -> None:
        if self._is_too_long or len(self._buffer) + len(piece) > _MAX_DOCUMENT:
            self._is_too_long = True
            self._buffer.clear()
        else:
            self._buffer += piece

    def _take(self, document: bytes) -> None:
        given = find_given_objects(document.removeprefix(b"data:"), self._shape)
        if given:
            self._on_given(given)
