"""A request that its dialect can't read, of an agent without tools: its provider judges it, and the model says which one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError

NOT_READ: Final = "request_not_read"
"""Why such a request gets neither tools nor context."""


class _Routed(msgspec.Struct):
    model: str
    stream: Any = None


_read = msgspec.json.Decoder(_Routed)


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
