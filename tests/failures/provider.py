"""The failures of a provider, as data: each has one outcome, and says if the proxy
itself tries again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests import raw
from tests.failures.planted import PLAIN
from tests.wires import Wire, anthropic, openai


@dataclass(frozen=True)
class PassedAnswer:
    """The provider's own status and body, without secrets."""

    status: int
    shaped: bool = True
    """True if the body is an error in the dialect's shape, so that it can be an event too."""


@dataclass(frozen=True)
class OwnError:
    """The proxy's own error."""

    code: str
    status: int = 502
    theirs: bool = False
    """True if the error quotes the provider's words."""


@dataclass(frozen=True)
class Failure:
    name: str
    what: str
    """The provider's behaviour, as docs/failures.md describes it."""
    act: Callable[[Wire], raw.Act]
    outcome: PassedAnswer | OwnError
    retried: bool = False
    """True if the proxy itself tries again after a tool has run or headers were sent."""
    until: Literal["at once", "time is spent", "never listens"] = "at once"


BAD_REPLY = "provider_bad_response"
_LARGE = 17 * 1024 * 1024
_BOMB = gzip.compress(b" " * _LARGE)
_JSON = "content-type: application/json"


def _always(act: raw.Act) -> Callable[[Wire], raw.Act]:
    return lambda _dialect: act


def _status(status: int, *headers: str) -> Callable[[Wire], raw.Act]:
    return lambda dialect: raw.answers(status, _error(dialect), "application/json", *headers)


def _ok(
    body: bytes, content_type: str = "application/json", *headers: str
) -> Callable[[Wire], raw.Act]:
    return _always(raw.answers(200, body, content_type, *headers))


def _error(dialect: Wire) -> bytes:
    return json.dumps(dialect.error("their_code", f"no: {PLAIN}")).encode()


def _other(dialect: Wire) -> Wire:
    return anthropic if dialect is openai else openai


def _passed(
    status: int, what: str = "answers {} with an error", *headers: str, retried: bool = False
) -> Failure:
    name = f"status-{status}" + ("-" + headers[0].partition(":")[0] if headers else "")
    return Failure(
        name, what.format(status), _status(status, *headers), PassedAnswer(status), retried
    )


_HTML = f"<html><body>no: {PLAIN}</body></html>".encode()
_CUT_OFF = OwnError("provider_broke_off")
_TOO_LARGE = OwnError("provider_response_too_large")
_TIMED_OUT = OwnError("total_timeout")

FAILURES = (
    Failure(
        "refused",
        "nobody listens at its address",
        _always(raw.bytes_only(b"")),
        OwnError("provider_unreachable"),
        retried=True,
        until="never listens",
    ),
    Failure(
        "closed-before-headers",
        "closes without a byte",
        _always(raw.bytes_only(b"")),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "reset-before-headers",
        "resets without a byte",
        _always(raw.resets_after(b"")),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "reset-in-headers",
        "resets in the middle of its headers",
        _always(raw.resets_after(raw.head(200, _JSON)[:30])),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "cut-length",
        "closes before its content-length is reached",
        lambda dialect: raw.bytes_only(
            raw.head(200, _JSON, "content-length: 5000") + dialect.reply("Hi", (), {})
        ),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "cut-chunked",
        "closes before its last chunk",
        _always(
            raw.bytes_only(raw.head(200, _JSON, "transfer-encoding: chunked") + b'5\r\n{"a":\r\n')
        ),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "no-http",
        "answers in no protocol at all",
        _always(raw.bytes_only(b"hello\r\n\r\n")),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "endless-headers",
        "sends headers without an end",
        _always(raw.repeats_for_ever(b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n" * 500)),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "wrong-encoding",
        "says gzip and sends something else",
        lambda dialect: raw.answers(
            200, dialect.reply("Hi", (), {}), "application/json", "content-encoding: gzip"
        ),
        _CUT_OFF,
        retried=True,
    ),
    Failure(
        "silence", "says nothing", _always(raw.hangs_after(b"")), _TIMED_OUT, until="time is spent"
    ),
    Failure(
        "slow-headers",
        "stops in the middle of its headers",
        _always(raw.hangs_after(raw.head(200)[:30])),
        _TIMED_OUT,
        until="time is spent",
    ),
    Failure(
        "slow-body",
        "stops in the middle of its body",
        _always(raw.hangs_after(raw.head(200, _JSON, "content-length: 5000") + b"{")),
        _TIMED_OUT,
        until="time is spent",
    ),
    Failure("too-large", "answers with 17 MiB", _ok(b" " * _LARGE), _TOO_LARGE),
    Failure(
        "endless-body",
        "answers without an end",
        _always(raw.repeats_for_ever(raw.head(200, _JSON, "transfer-encoding: chunked"))),
        _TOO_LARGE,
    ),
    Failure(
        "gzip-bomb",
        "answers with a few bytes that unpack to 17 MiB",
        _ok(_BOMB, "application/json", "content-encoding: gzip"),
        _TOO_LARGE,
    ),
    _passed(400),
    _passed(401),
    Failure(
        "status-401-bad-key",
        "answers 401 with the code of a bad key",
        lambda dialect: raw.answers(
            401, json.dumps(dialect.error("authentication_error", f"no: {PLAIN}")).encode()
        ),
        PassedAnswer(401),
    ),
    _passed(402),
    _passed(403),
    _passed(404),
    _passed(408),
    _passed(409),
    _passed(413),
    _passed(422),
    _passed(429, retried=True),
    _passed(429, "answers {} with a short Retry-After", "retry-after: 0", retried=True),
    _passed(500, retried=True),
    _passed(503, retried=True),
    _passed(504, retried=True),
    _passed(529, retried=True),
    Failure(
        "status-502-html",
        "answers 502 with a page of HTML",
        _always(raw.answers(502, _HTML, f"text/html; key={PLAIN}")),
        PassedAnswer(502, shaped=False),
        retried=True,
    ),
    Failure(
        "status-500-empty",
        "answers 500 without a body",
        _always(raw.answers(500, b"")),
        OwnError("provider_http_500", 500),
        True,
    ),
    Failure(
        "status-400-other-dialect",
        "answers 400 in another dialect",
        lambda dialect: raw.answers(400, _error(_other(dialect))),
        PassedAnswer(400),
    ),
    Failure(
        "status-999",
        "answers 999",
        _always(raw.answers(999, _HTML)),
        OwnError("provider_http_999"),
        retried=True,
    ),
    Failure(
        "status-204", "answers 204", _always(raw.answers(204, b"")), OwnError("provider_http_204")
    ),
    Failure(
        "status-302",
        "answers with a redirect",
        _always(raw.answers(302, _HTML, "text/html", "location: http://127.0.0.1:1/stolen")),
        OwnError("provider_http_302"),
    ),
    Failure(
        "ok-html",
        "answers 200 with a page of HTML",
        _ok(_HTML, "text/html"),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure("ok-empty", "answers 200 without a body", _ok(b""), OwnError(BAD_REPLY), retried=True),
    Failure(
        "ok-truncated",
        "answers 200 with half a JSON document",
        _ok(b'{"choices":[{"mess'),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure(
        "ok-no-object",
        "answers 200 with JSON that is no object",
        _ok(b'["hi"]'),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure(
        "ok-not-utf8",
        "answers 200 with bytes that are no text",
        _ok(b'{"choices":"\xff\xfe"}'),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure(
        "ok-deep",
        "answers 200 with JSON that is 100,000 levels deep",
        lambda dialect: raw.answers(
            200,
            dialect.reply("Hi", (), {})[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        ),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure(
        "ok-other-dialect",
        "answers 200 in another dialect",
        lambda dialect: raw.answers(200, _other(dialect).reply("Hi", (), {})),
        OwnError(BAD_REPLY),
        retried=True,
    ),
    Failure(
        "ok-error",
        "answers 200 with an error in the body",
        _status(200),
        OwnError(BAD_REPLY, theirs=True),
        retried=True,
    ),
    Failure(
        "ok-event-stream",
        "answers 200 with a stream that nobody asked for",
        _ok(
            b"data: " + json.dumps({"choices": [{"delta": {"content": "Hi"}}]}).encode() + b"\n\n",
            "text/event-stream",
        ),
        OwnError(BAD_REPLY),
        retried=True,
    ),
)
