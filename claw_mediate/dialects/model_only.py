"""Requests of which only the model is read, because it decides where they go.

They are those of no dialect, and, of an agent without tools, those that their dialect can't read.

A multipart form (RFC 7578) is read so strictly that no other parser finds other fields in it. What
a lenient parser might read in another way (bare line feeds, folded lines, escapes, a preamble,
encoded parts) is refused.
"""

import json
import re
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError

NOT_READ: Final = "request_not_read"
"""The reason why a request that its dialect can't read gets neither tools nor context."""
NO_DIALECT: Final = "no_dialect"
"""The same, for a request on a path of no dialect."""
_MAX_RECORDED = 4096  # Bytes of a form's field that history records
MAX_FIELDS: Final = 1000
_MAX_HEAD = 4096  # Bytes of one part's headers
_CONTENT_TYPE = re.compile(
    r'multipart/form-data; ?boundary=(?:"([^"\\\r\n]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE
)
_DISPOSITION = re.compile(
    rb'form-data; ?name=(?:"([^"\\\r\n]*)"|([\w.-]+))'
    rb'(; ?filename=(?:"(?:[^"\\\r\n]|\\.)*"|[^\s";]+))?(; ?filename\*=[^\s";]+)?',
    re.IGNORECASE,
)
_PLAIN_TEXT = re.compile(rb'text/plain(?:; ?charset="?utf-8"?)?', re.IGNORECASE)
_ENCODINGS = frozenset({b"7bit", b"8bit", b"binary"})
_AMBIGUOUS_HEAD = "a part of the form has a head that parsers read in several ways"


class _ModelRequired(msgspec.Struct):
    model: str
    stream: Any = None


class _ModelOptional(msgspec.Struct):
    model: Any = None
    stream: Any = None


_required_decoder = msgspec.json.Decoder(_ModelRequired)
_optional_decoder = msgspec.json.Decoder(_ModelOptional)
_json_decoder = msgspec.json.Decoder(msgspec.Raw)


def read_model(body: bytes) -> RunnerRequest:
    """Return the view of a JSON object that names its model once, for every parser.

    Raises ``UnreadableRequestError``.
    """
    try:
        json_splice.check_utf8(body)
        view = decode_request_outline(_required_decoder, body)
        json_splice.find_members(body, ["model"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableRequestError("the request is not one JSON object with a model") from error
    except json_splice.JsonSpliceError as error:
        raise UnreadableRequestError(str(error)) from error

    return RunnerRequest(body, view.model, stream=view.stream is True, bypass=NOT_READ)


def view_without_model(body: bytes) -> RunnerRequest:
    """Return the view of a request of no dialect whose model is not known."""
    return RunnerRequest(body, "", bypass=NO_DIALECT)


def read_other_path(body: bytes, content_type: str) -> RunnerRequest | None:
    """Return the view of a request of no dialect, which is a JSON document or a form.

    None if it names no model. Raises ``UnreadableRequestError`` for any other body, and for one in
    which two parsers could find two models.
    """
    if content_type.lower().startswith("multipart/"):
        return _read_form_model(body, content_type)
    if "urlencoded" in content_type.lower():
        raise UnreadableRequestError("a form is read as multipart/form-data only")
    if not body.strip():
        return None

    try:
        json_splice.check_utf8(body)
        is_object = body.lstrip(b" \t\r\n").startswith(b"{")
        if not is_object:
            decode_request_outline(_json_decoder, body)
            return None

        view = decode_request_outline(_optional_decoder, body)
        json_splice.find_members(body, ["model"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableRequestError("the body is not one JSON document") from error
    except json_splice.JsonSpliceError as error:
        raise UnreadableRequestError(str(error)) from error

    model = "" if view.model is None else view.model
    if not isinstance(model, str):
        raise UnreadableRequestError("the model is no text")
    if not model.strip():
        return None
    return RunnerRequest(body, model, stream=view.stream is True, bypass=NO_DIALECT)


def _read_form_model(body: bytes, content_type: str) -> RunnerRequest | None:
    fields = read_form_fields(content_type, body)
    named = [field for field in fields if field.name == "model"]
    if len(named) > 1:
        raise UnreadableRequestError("'model' stands twice in one form")

    # ``_charset_`` changes the encoding of all other fields.
    is_file = bool(named) and not named[0].is_text
    has_charset = any(field.name == "_charset_" for field in fields)
    if is_file or has_charset:
        raise UnreadableRequestError("the model is no text")

    texts = {field.name: body[field.start : field.end] for field in fields if field.is_text}
    try:
        model = texts.get("model", b"").decode()
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the model is no text") from error
    if not model.strip():
        return None

    recorded = {field.name: _history_value(body, field) for field in fields}
    return RunnerRequest(
        body,
        model,
        stream=texts.get("stream") == b"true",
        bypass=NO_DIALECT,
        model_span=(named[0].start, named[0].end),
        history_body=json.dumps(recorded).encode(),
    )


def _history_value(body: bytes, field: "FormField") -> object:
    """Return a field as history records it: a short text, or the size of anything else."""
    size = field.end - field.start
    if not field.is_text or size > _MAX_RECORDED:
        return {"bytes": size}
    return body[field.start : field.end].decode(errors="replace")


class FormField(NamedTuple):
    """A field of a form."""

    name: str
    start: int  # Of its value, in the body
    end: int
    is_text: bool  # True if the value is UTF-8 text: no file, and of no other type


def read_form_fields(content_type: str, body: bytes) -> list[FormField]:
    """Return the fields of a form in their order. Raises ``UnreadableRequestError``."""
    header = _CONTENT_TYPE.fullmatch(content_type.strip())
    if header is None:
        raise UnreadableRequestError("the form's content type names no boundary that is read")
    mark = b"--" + (header[1] or header[2]).encode(errors="replace")
    found = re.finditer(re.escape(mark), body)
    marks = [match.start() for match in islice(found, MAX_FIELDS + 2)]
    if len(marks) > MAX_FIELDS + 1:
        raise UnreadableRequestError(f"the form has more than {MAX_FIELDS} fields")

    # Every mark begins a line, and the last one ends the body. So none is within a value, where
    # another parser would take it for a mark.
    begin_lines = all(at == 0 or body[at - 2 : at] == b"\r\n" for at in marks)
    ends_body = bool(marks) and body[marks[-1] + len(mark) :] in (b"--", b"--\r\n")
    if not (begin_lines and ends_body and marks[0] == 0):
        raise UnreadableRequestError("the body is not one multipart form")

    return [_read_form_field(body, start + len(mark), end - 2) for start, end in pairwise(marks)]


def _read_form_field(body: bytes, start: int, end: int) -> FormField:
    """Return the field of a part, which begins after its mark and ends before the next line's."""
    head_end = body.find(b"\r\n\r\n", start, min(end, start + _MAX_HEAD))
    if body[start : start + 2] != b"\r\n" or head_end < 0:
        raise UnreadableRequestError("a part of the form has no head that is read")

    headers = _read_part_headers(body[start + 2 : head_end])
    disposition = _DISPOSITION.fullmatch(headers.get(b"content-disposition", b""))
    encoding = headers.get(b"content-transfer-encoding", b"binary").lower()
    if disposition is None or encoding not in _ENCODINGS:
        raise UnreadableRequestError(_AMBIGUOUS_HEAD)

    quoted_name, plain_name, file_name, encoded_file_name = disposition.groups()
    try:
        name = (quoted_name if plain_name is None else plain_name).decode()
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the name of a field is not UTF-8") from error

    is_file = file_name is not None or encoded_file_name is not None
    content_type = headers.get(b"content-type", b"text/plain")
    is_text = not is_file and _PLAIN_TEXT.fullmatch(content_type) is not None
    return FormField(name, head_end + 4, end, is_text)


def _read_part_headers(head: bytes) -> dict[bytes, bytes]:
    """Return the headers of a part, with their names in lower case."""
    headers: dict[bytes, bytes] = {}

    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.lower()
        is_header = bool(colon) and name.strip() == name
        has_bare_break = b"\r" in line or b"\n" in line
        if not is_header or has_bare_break or name in headers:
            raise UnreadableRequestError(_AMBIGUOUS_HEAD)
        headers[name] = value.strip(b" \t")

    return headers
