"""Messages, versions and headers of the Model Context Protocol over streamable HTTP. No I/O.

era         revisions               start                                       state
──────────  ──────────────────────  ──────────────────────────────────────────  ──────────────────
handshake   2024-11-05…2025-11-25   ``initialize``, notifications/initialized   ``Mcp-Session-Id``
stateless   2026-07-28              none: each request has its own ``_meta``    none

Ids, parameters and results stay raw bytes: no number is rounded, and no member is lost.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject

# The newest first
HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_VERSION: Final = "2026-07-28"
VERSIONS: Final = (STATELESS_VERSION, *HANDSHAKE_VERSIONS)
DEFAULT_VERSION: Final = "2025-03-26"  # The version of a handshake request without the header

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
REQUEST_CANCELLED = -32800

SESSION_ID = "mcp-session-id"
PROTOCOL_VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME = "mcp-name"
PARAM_PREFIX = "mcp-param-"
ACCEPT = "application/json, text/event-stream"
JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"

VERSION_META = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_META = "io.modelcontextprotocol/serverInfo"

NAMED_METHODS: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
"""Methods whose requests repeat a parameter in the header ``Mcp-Name``: which parameter."""

MAX_SESSION_ID = 8 * 1024  # Characters of a session id, which may be a JWT
MAX_BATCH = 100  # Messages of one array (2025-03-26)
_NO_JSON = msgspec.Raw(b"")
_SESSION_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_SESSION_ID}}}")
_PLAIN_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED_VALUE = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
"""An escape of JSON. A pair of surrogates is one escape; half of a pair is the group."""
_ID_START = b'"-0123456789'


class MessageError(ValueError):
    """Bytes that are no message. The text is one sentence without values."""


class RpcError(Exception):
    """A JSON-RPC error: raised by what answers a request, and read from an error response.

    ``status``: the HTTP status of the response with it; None if it did not come over HTTP.
    """

    def __init__(
        self, code: int, message: str, data: Any = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status

    def document(self) -> JsonObject:
        error: JsonObject = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


class RpcMessage(msgspec.Struct, frozen=True):
    """One JSON-RPC message. Members that are absent are empty (``bytes(message.id) == b""``)."""

    jsonrpc: str
    method: str | None = None
    id: msgspec.Raw = _NO_JSON
    params: msgspec.Raw = _NO_JSON
    result: msgspec.Raw = _NO_JSON
    error: msgspec.Raw = _NO_JSON

    @property
    def has_id(self) -> bool:
        """Return whether the id is a string or a number.

        The id null is that of an error that answers no known request.
        """
        raw = bytes(self.id)
        return raw != b"" and raw[:1] in _ID_START

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.has_id

    @property
    def is_notification(self) -> bool:
        return self.method is not None and bytes(self.id) == b""

    @property
    def is_response(self) -> bool:
        return self.method is None and (bytes(self.result) != b"" or bytes(self.error) != b"")

    def answers(self, request_id: bytes) -> bool:
        """Return whether this is the response to the request of that raw id.

        A request of the other side never is.
        """
        return self.is_response and bytes(self.id) == request_id

    def rpc_error(self, status: int | None = None) -> RpcError | None:
        """Return the error of an error response; None for any other message.

        ``status``: the HTTP status of the response.
        """
        raw = bytes(self.error)
        if raw == b"" or self.method is not None:
            return None
        if raw == b"null" and bytes(self.result) != b"":
            return None  # JSON-RPC 1.0 has both members in each response, and so have some servers

        try:
            error = _error.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            words = _find_words(raw) or "an error without code and message"
            return RpcError(INTERNAL_ERROR, words, status=status)
        return RpcError(error.code, error.message, error.data, status)


def _find_words(error: bytes) -> str:
    """Return the words of an error that breaks JSON-RPC; "" if it has none.

    Some servers send a code that is text, an error without a code, or an error that is text itself.
    """
    try:
        document = json.loads(error)
    except (ValueError, RecursionError):
        return ""

    words = document.get("message") if isinstance(document, dict) else document
    if not isinstance(words, str):
        return ""
    return words.encode(errors="replace").decode()  # without halves of surrogate pairs


class _Error(msgspec.Struct):
    code: int
    message: str = ""
    data: Any = None


_message = msgspec.json.Decoder(RpcMessage)
_messages = msgspec.json.Decoder(list[RpcMessage])
_error = msgspec.json.Decoder(_Error)


def read_messages(data: bytes) -> list[RpcMessage]:
    """Return the messages of a body or an event: one, or an array of them.

    Raise ``MessageError``.
    """
    try:
        data.decode()  # msgspec does not check text that it keeps as ``Raw``
        is_array = data.lstrip()[:1] == b"["
        messages = _messages.decode(data) if is_array else [_message.decode(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError("this is no JSON-RPC message") from error

    has_other_version = any(message.jsonrpc != "2.0" for message in messages)
    if has_other_version or not 0 < len(messages) <= MAX_BATCH:
        raise MessageError("this is no JSON-RPC 2.0 message")
    return messages


def read_answers(data: bytes) -> list[RpcMessage]:
    """Return the messages of a server. Half of a surrogate pair in them becomes U+FFFD.

    A server that cuts a text in the middle of a character leaves such a half. What it did is done,
    so its answer counts. Raise ``MessageError``.
    """
    try:
        return read_messages(data)
    except MessageError:
        repaired = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], data)
        if repaired == data:
            raise
        return read_messages(repaired)


def read_object(raw: msgspec.Raw | bytes) -> JsonObject:
    """Return an object as plain data, with exact integers; {} for what is absent or no object."""
    try:
        document = json.loads(bytes(raw)) if bytes(raw) else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def write_request(request_id: bytes, method: str, params: bytes = b"") -> bytes:
    """Return a request. ``request_id`` and ``params`` are JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (request_id, _json(method), _params(params))


def write_notification(method: str, params: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","method":%b%b}' % (_json(method), _params(params))


def write_result(request_id: bytes, result: bytes) -> bytes:
    """Return the response of a request that went well; both are JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def write_error(request_id: bytes, error: RpcError) -> bytes:
    """Return the error response of a request.

    ``request_id``: as JSON; empty for a request whose id could not be read, which becomes ``null``.
    """
    document = _json(error.document())
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id or b"null", document)


def is_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def write_header_value(value: str) -> str:
    """Return a value as a header of the stateless era.

    Text that is not plain ASCII is wrapped in base64.

    >>> write_header_value("caf\u00e9")
    '=?base64?Y2Fmw6k=?='
    """
    if _PLAIN_VALUE.fullmatch(value) and not _WRAPPED_VALUE.fullmatch(value):
        return value
    encoded = base64.b64encode(value.encode(errors="surrogatepass")).decode()
    return f"=?base64?{encoded}?="


def read_header_value(header: str) -> str | None:
    """Return the value of a header of the stateless era; None if its base64 is broken."""
    wrapped = _WRAPPED_VALUE.fullmatch(header)
    if wrapped is None:
        return header

    try:
        decoded = base64.b64decode(wrapped[1], validate=True)
        is_canonical = base64.b64encode(decoded).decode() == wrapped[1]
        return decoded.decode() if is_canonical else None
    except ValueError:
        return None


def param_headers(schema: JsonObject, arguments: JsonObject) -> list[tuple[str, str]]:
    """Return the headers that repeat arguments.

    These are the arguments whose property has ``x-mcp-header`` in the tool's schema.
    """
    headers = []
    for path, name in _find_annotated(schema, ()):
        value: Any = arguments
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None

        text = header_text(value)
        if text is not None:
            headers.append((PARAM_PREFIX + name.lower(), write_header_value(text)))
    return headers


def header_text(value: Any) -> str | None:
    """Return a scalar as the text of a header; None for what no header can hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def _find_annotated(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, name of the header) for each property with ``x-mcp-header``.

    Only properties that are reached by ``properties`` alone count.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return

    for name, below in properties.items():
        header = below.get("x-mcp-header") if isinstance(below, dict) else None
        if isinstance(header, str) and _TOKEN.fullmatch(header):
            yield (*path, name), header
        yield from _find_annotated(below, (*path, name))


def stateless_meta(client: JsonObject) -> JsonObject:
    """Return the ``_meta`` of a request in the stateless era.

    ``client`` has our ``name`` and ``version``.
    """
    return {VERSION_META: STATELESS_VERSION, CLIENT_INFO_META: client, CAPABILITIES_META: {}}


def _params(params: bytes) -> bytes:
    return b',"params":' + params if params else b""


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
