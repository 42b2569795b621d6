"""The stateless era on the server side: its requests, their checks, and its results."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from claw_mcp.protocol import (
    CAPABILITIES_META,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    NAME,
    NAMED_METHODS,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    SERVER_INFO_META,
    SESSION_ID,
    STATELESS_VERSION,
    UNSUPPORTED_VERSION,
    VERSION_META,
    RpcError,
    RpcMessage,
    read_header_value,
    read_object,
    write_notification,
)
from claw_mcp.sessions import ClientRequest

SUBSCRIBE: Final = "subscriptions/listen"
_SUBSCRIPTION_META: Final = "io.modelcontextprotocol/subscriptionId"
_BAD_REQUESTS: Final = {
    PARSE_ERROR,
    INVALID_REQUEST,
    INVALID_PARAMS,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
}
"""Codes of errors with status 400."""
_REMOVED: Final = {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
"""Methods of the handshake era only."""
_CACHEABLE: Final = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}
"""Methods whose results say for how long they may be kept."""
_CHANGES: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
"""The notifications that ``subscriptions/listen`` may ask for, by the member that asks."""
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def members(params: msgspec.Raw | bytes) -> dict[str, msgspec.Raw]:
    """Return the members of an object, each as JSON; {} for what is no object."""
    try:
        return _object.decode(params) if bytes(params) else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def is_stateless(headers: Mapping[str, str], message: RpcMessage | None = None) -> bool:
    """Return whether a request belongs to the stateless era.

    Its header says so, or without that header its ``_meta``.
    """
    if PROTOCOL_VERSION in headers:
        return headers[PROTOCOL_VERSION] not in HANDSHAKE_VERSIONS
    if message is None or SESSION_ID in headers:
        return False
    return VERSION_META in members(members(message.params).get("_meta", b""))


def find_error(headers: Mapping[str, str], message: RpcMessage) -> RpcError | None:
    """Return what is wrong with the headers or the ``_meta`` of a message; None if nothing is."""
    requested = headers.get(PROTOCOL_VERSION)
    unsupported: RpcError | None = None
    if requested != STATELESS_VERSION:
        versions = {"supported": [STATELESS_VERSION], "requested": requested}
        unsupported = RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", versions)

    if not message.is_request:
        return unsupported

    params = read_object(message.params)
    meta = params.get("_meta")
    present = meta if isinstance(meta, dict) else {}
    missing = [name for name in (VERSION_META, CAPABILITIES_META) if name not in present]
    if missing:
        return RpcError(INVALID_PARAMS, f"params._meta needs {' and '.join(missing)}")

    # Each header, its value, and what the body says instead of it.
    pairs = [
        (PROTOCOL_VERSION, requested, present[VERSION_META]),
        (METHOD, headers.get(METHOD), message.method),
    ]
    name = params.get(NAMED_METHODS.get(message.method or "", ""))
    if name is not None:
        pairs.append((NAME, read_header_value(headers.get(NAME, "")), name))
    for header, value, expected in pairs:
        if value != expected:
            return RpcError(HEADER_MISMATCH, f"the header {header} and the body differ")

    # Last: a version is the client's only if its header and its body agree on it.
    return unsupported


def status_of(error: RpcError) -> int:
    """Return the HTTP status of an error."""
    if error.code in _BAD_REQUESTS:
        return HTTPStatus.BAD_REQUEST
    if error.code == METHOD_NOT_FOUND:
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.OK


def check_method(method: str) -> None:
    """Raise ``RpcError`` for a method that only the other era has."""
    if method in _REMOVED:
        raise RpcError(METHOD_NOT_FOUND, f"{STATELESS_VERSION} has no such method")


def describe(description: Mapping[str, Any]) -> bytes:
    """Return the result of ``server/discover``."""
    rest = {name: value for name, value in description.items() if name != "serverInfo"}
    meta = {SERVER_INFO_META: description.get("serverInfo")}
    result = {"supportedVersions": [STATELESS_VERSION], **rest, "_meta": meta}
    return complete("server/discover", msgspec.json.encode(result))


def complete(method: str, result: bytes) -> bytes:
    """Return a result with the members that every result of this era has."""
    added: dict[str, Any] = {"resultType": "complete"}
    if method in _CACHEABLE:
        added |= {"ttlMs": 0, "cacheScope": "private"}
    return msgspec.json.encode(added | members(result))


async def subscribe(request: ClientRequest) -> bytes:
    """Acknowledge what a client listens for, and wait until it leaves."""
    if not request.accepts_stream:
        raise RpcError(
            INVALID_REQUEST,
            "a subscription is a stream of events, which the client does not accept",
        )

    wanted = read_object(request.message.params).get("notifications")
    if not isinstance(wanted, dict):
        wanted = {}
    honored = [name for name in _CHANGES if wanted.get(name) is True]

    params = msgspec.json.encode({"notifications": dict.fromkeys(honored, True)})
    request.send(
        write_notification(
            "notifications/subscriptions/acknowledged", with_subscription(request, params)
        )
    )
    request.subscriptions = frozenset(_CHANGES[name] for name in honored)
    await asyncio.Event().wait()
    raise AssertionError


def with_subscription(request: ClientRequest, params: bytes) -> bytes:
    """Return the params of a notification with the id of the subscription that it belongs to."""
    return msgspec.json.encode(
        {**members(params), "_meta": {_SUBSCRIPTION_META: request.message.id}}
    )
