"""Reading a multipart form (RFC 7578), so strictly that no other parser finds other fields in it.

What a lenient parser might read otherwise (bare line feeds, folded lines, escapes, a preamble, encoded parts) is no form here.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import Final, NamedTuple

from claw_mediate.dialects.base import UnreadableRequestError

MAX_FIELDS: Final = 1000
_MAX_HEAD = 4096
"""Bytes of one part's headers."""
_CONTENT_TYPE = re.compile(r'multipart/form-data; ?boundary=(?:"([^"\\\r\n]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(
    rb'form-data; ?name=(?:"([^"\\\r\n]*)"|([\w.-]+))'
    rb'(; ?filename=(?:"(?:[^"\\\r\n]|\\.)*"|[^\s";]+))?(; ?filename\*=[^\s";]+)?',
    re.IGNORECASE,
)
_PLAIN_TEXT = re.compile(rb'text/plain(?:; ?charset="?utf-8"?)?', re.IGNORECASE)
_ENCODINGS = frozenset({b"7bit", b"8bit", b"binary"})


class Field(NamedTuple):
    """A field of a form: its name, and the span of its value in the body."""

    name: str
    start: int
    end: int
    is_text: bool
    """Whether the value is UTF-8 text: no file, and of no other type."""


def fields(content_type: str, body: bytes) -> list[Field]:
    """Return the fields of a form in their order. Raises ``UnreadableRequestError``."""
    matched = _CONTENT_TYPE.fullmatch(content_type.strip())
    if matched is None:
        raise UnreadableRequestError("the form's content type names no boundary that is read")
    mark = b"--" + (matched[1] or matched[2]).encode(errors="replace")
    marks = [match.start() for match in islice(re.finditer(re.escape(mark), body), MAX_FIELDS + 2)]
    if len(marks) > MAX_FIELDS + 1:
        raise UnreadableRequestError(f"the form has more than {MAX_FIELDS} fields")
    # Each mark begins a line, and the last one ends the body: none stands within a value, where another parser would see it.
    begins = all(at == 0 or body[at - 2 : at] == b"\r\n" for at in marks)
    ends = bool(marks) and body[marks[-1] + len(mark) :] in (b"--", b"--\r\n")
    if not (begins and ends and marks[0] == 0):
        raise UnreadableRequestError("the body is not one multipart form")
    return [_field(body, start + len(mark), end - 2) for start, end in pairwise(marks)]


def _field(body: bytes, start: int, end: int) -> Field:
    """Return the field whose part is what stands between two marks."""
    head_end = body.find(b"\r\n\r\n", start, min(end, start + _MAX_HEAD))
    if body[start : start + 2] != b"\r\n" or head_end < 0:
        raise UnreadableRequestError("a part of the form has no head that is read")
    headers = _headers(body[start + 2 : head_end])
    disposition = _DISPOSITION.fullmatch(headers.get(b"content-disposition", b""))
    if disposition is None or headers.get(b"content-transfer-encoding", b"binary").lower() not in _ENCODINGS:
        raise UnreadableRequestError("a part of the form has a head that parsers read in several ways")
    try:
        name = (disposition[1] if disposition[2] is None else disposition[2]).decode()
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the name of a field is not UTF-8") from error
    is_file = disposition[3] is not None or disposition[4] is not None
    is_text = not is_file and _PLAIN_TEXT.fullmatch(headers.get(b"content-type", b"text/plain")) is not None
    return Field(name, head_end + 4, end, is_text)


def _headers(head: bytes) -> dict[bytes, bytes]:
    """Return a part's headers by their names, in lower case."""
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or name in headers or name.strip() != name or b"\r" in line or b"\n" in line:
            raise UnreadableRequestError("a part of the form has a head that parsers read in several ways")
        headers[name] = value.strip(b" \t")
    return headers
