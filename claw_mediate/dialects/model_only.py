"""Requests of which only the model is read, since it decides where they go: those that their
dialect can't read, of an agent without tools, and those of no dialect.

A multipart form (RFC 7578) is read so strictly that no other parser finds other fields in it.
Whatever a lenient parser might read otherwise (bare line feeds, folded lines, escapes, a preamble,
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

# The reason why a request that its dialect can't read gets neither tools nor context
NOT_READ: Final = "request_not_read"
NO_DIALECT: Final = "no_dialect"  # The same, for a request on a path of no dialect
_MAX_RECORDED = 4096  # Bytes of a form's field that are recorded
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
    """Return the view of a request of no dialect, a JSON document or a form; None
    where it names no model.

    Raises ``UnreadableRequestError`` for any other body, and for one in which two parsers could
    find two models.
    """
    if content_type.lower().startswith("multipart/"):
        return _read_form_model(body, content_type)
    if "urlencoded" in content_type.lower():
        raise UnreadableRequestError("a form is read as multipart/form-data only")
    if not body.strip():
        return None
    try:
        json_splice.check_utf8(body)
        if not body.lstrip(b" \t\r\n").startswith(b"{"):
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
    texts = {field.name: body[field.start : field.end] for field in fields if field.is_text}
    if (named and not named[0].is_text) or any(field.name == "_charset_" for field in fields):
        raise UnreadableRequestError("the model is no text")
    try:
        model = texts.get("model", b"").decode()
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the model is no text") from error
    if not model.strip():
        return None
    return RunnerRequest(
        body,
        model,
        stream=texts.get("stream") == b"true",
        bypass=NO_DIALECT,
        model_span=(named[0].start, named[0].end),
        history_body=json.dumps(
            {field.name: _history_value(body, field) for field in fields}
        ).encode(),
    )


def _history_value(body: bytes, field: "FormField") -> object:
    """Return a field as history records it: a short text, or the size of anything else."""
    size = field.end - field.start
    if not field.is_text or size > _MAX_RECORDED:
        return {"bytes": size}
    return body[field.start : field.end].decode(errors="replace")


class FormField(NamedTuple):
    """A field of a form: its name, and the span of its value in the body."""

    name: str
    start: int
    end: int
    is_text: bool  # True if the value is UTF-8 text: no file, and of no other type


def read_form_fields(content_type: str, body: bytes) -> list[FormField]:
    """Return the fields of a form in their order. Raises ``UnreadableRequestError``."""
    header = _CONTENT_TYPE.fullmatch(content_type.strip())
    if header is None:
        raise UnreadableRequestError("the form's content type names no boundary that is read")
    mark = b"--" + (header[1] or header[2]).encode(errors="replace")
    marks = [match.start() for match in islice(re.finditer(re.escape(mark), body), MAX_FIELDS + 2)]
    if len(marks) > MAX_FIELDS + 1:
        raise UnreadableRequestError(f"the form has more than {MAX_FIELDS} fields")
    # Each mark begins a line, and the last one ends the body: none stands within a value, where
    # another parser would see it.
    begins = all(at == 0 or body[at - 2 : at] == b"\r\n" for at in marks)
    ends = bool(marks) and body[marks[-1] + len(mark) :] in (b"--", b"--\r\n")
    if not (begins and ends and marks[0] == 0):
        raise UnreadableRequestError("the body is not one multipart form")
    return [_read_form_field(body, start + len(mark), end - 2) for start, end in pairwise(marks)]


def _read_form_field(body: bytes, start: int, end: int) -> FormField:
    head_end = body.find(b"\r\n\r\n", start, min(end, start + _MAX_HEAD))
    if body[start : start + 2] != b"\r\n" or head_end < 0:
        raise UnreadableRequestError("a part of the form has no head that is read")
    headers = _read_part_headers(body[start + 2 : head_end])
    disposition = _DISPOSITION.fullmatch(headers.get(b"content-disposition", b""))
    if (
        disposition is None
        or headers.get(b"content-transfer-encoding", b"binary").lower() not in _ENCODINGS
    ):
        raise UnreadableRequestError(
            "a part of the form has a head that parsers read in several ways"
        )
    try:
        name = (disposition[1] if disposition[2] is None else disposition[2]).decode()
    except UnicodeDecodeError as error:
        raise UnreadableRequestError("the name of a field is not UTF-8") from error
    is_file = disposition[3] is not None or disposition[4] is not None
    is_text = (
        not is_file
        and _PLAIN_TEXT.fullmatch(headers.get(b"content-type", b"text/plain")) is not None
    )
    return FormField(name, head_end + 4, end, is_text)


def _read_part_headers(head: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or name in headers or name.strip() != name or b"\r" in line or b"\n" in line:
            raise UnreadableRequestError(
                "a part of the form has a head that parsers read in several ways"
            )
        headers[name] = value.strip(b" \t")
    return headers
