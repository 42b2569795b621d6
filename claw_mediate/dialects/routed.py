"""Reading no more of a request than the model that it names: where it goes is decided by that.

Two kinds of requests are read so: one that its dialect can't read, of an agent without tools, and one of no dialect.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.dialects import form_data
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError

NOT_READ: Final = "request_not_read"
"""Why such a request gets neither tools nor context."""
NO_DIALECT: Final = "no_dialect"
"""The same, of a request on a path of no dialect."""
_MAX_RECORDED = 4096
"""Bytes of a form's field that are recorded."""


class _Routed(msgspec.Struct):
    model: str
    stream: Any = None


class _Named(msgspec.Struct):
    model: Any = None
    stream: Any = None


_read = msgspec.json.Decoder(_Routed)
_object = msgspec.json.Decoder(_Named)
_any_json = msgspec.json.Decoder(msgspec.Raw)


def read_model(body: bytes) -> RunnerRequest:
    """The model and no more: a JSON object that names it once, for another parser must not find another one."""
    try:
        json_splice.check_utf8(body)
        view = _read.decode(body)
        json_splice.once(body, ["model"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableRequestError("the request is not one JSON object with a model") from error
    except json_splice.WireError as error:
        raise UnreadableRequestError(str(error)) from error
    return RunnerRequest(
        body, view.model, stream=view.stream is True, include_usage=False, declared=(), bypass=NOT_READ
    )


def view_without_model(body: bytes) -> RunnerRequest:
    """Return the view of a request of no dialect of which no model is known."""
    return RunnerRequest(body, "", stream=False, include_usage=False, declared=(), bypass=NO_DIALECT)


def read_named(body: bytes, content_type: str) -> RunnerRequest | None:
    """Return the view of a request of no dialect, a JSON document or a form; None where it names no model.

    Raises ``UnreadableRequestError`` for any other body, and for one in which two parsers could find two models.
    """
    if content_type.lower().startswith("multipart/"):
        return _read_form(body, content_type)
    if "urlencoded" in content_type.lower():
        raise UnreadableRequestError("a form is read as multipart/form-data only")
    if not body.strip():
        return None
    try:
        json_splice.check_utf8(body)
        if not body.lstrip(b" \t\r\n").startswith(b"{"):
            _any_json.decode(body)
            return None
        view = _object.decode(body)
        json_splice.once(body, ["model"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableRequestError("the body is not one JSON document") from error
    except json_splice.WireError as error:
        raise UnreadableRequestError(str(error)) from error
    model = "" if view.model is None else view.model
    if not isinstance(model, str):
        raise UnreadableRequestError("the model is no text")
    if not model.strip():
        return None
    return RunnerRequest(body, model, stream=view.stream is True, include_usage=False, declared=(), bypass=NO_DIALECT)


def _read_form(body: bytes, content_type: str) -> RunnerRequest | None:
    parts = form_data.fields(content_type, body)
    named = [field for field in parts if field.name == "model"]
    if len(named) > 1:
        raise UnreadableRequestError("'model' stands twice in one form")
    texts = {field.name: body[field.start : field.end] for field in parts if field.is_text}
    if (named and not named[0].is_text) or any(field.name == "_charset_" for field in parts):
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
        include_usage=False,
        declared=(),
        bypass=NO_DIALECT,
        model_span=(named[0].start, named[0].end),
        recorded=json.dumps({field.name: _recorded(body, field) for field in parts}).encode(),
    )


def _recorded(body: bytes, field: form_data.Field) -> object:
    """Return what history keeps of a field: a short text, or the size of anything else."""
    size = field.end - field.start
    if not field.is_text or size > _MAX_RECORDED:
        return {"bytes": size}
    return body[field.start : field.end].decode(errors="replace")
