"""Many HTTP sessions over one stdio server.

Rules. What a client asks goes to the server unchanged, except for ids and progress tokens: these
are ours on the way to the server, and the client's own on the way back. Each session has its own
subscriptions. What the server says unasked goes to every session.
"""

import json
from functools import partial
from typing import Any, Final

import msgspec

from claw_mcp.protocol import (
    CAPABILITIES_META,
    CLIENT_INFO_META,
    INVALID_PARAMS,
    SERVER_ERROR,
    VERSION_META,
    RpcError,
    write_notification,
)
from claw_mcp.sessions import ClientRequest, Session
from claw_mcp.stateless import members
from claw_mcp.stdio_child import OnProgress
from claw_mcp.supervisor import ChildSupervisor

BROADCAST: Final = {
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
}
_STATELESS_META: Final = (VERSION_META, CAPABILITIES_META, CLIENT_INFO_META)
_LOG_LEVEL = "logging/setLevel"
_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
_MAX_SUBSCRIPTIONS = 256  # Of a session
# Resources that are subscribed at once: each is asked for again at every start of the server
_MAX_RESOURCES = 4_096
_MAX_SUBSCRIPTION_BYTES = 8 << 10


class StdioBackend:
    """The ``Backend`` of a server that speaks over stdin and stdout."""

    def __init__(self, supervisor: ChildSupervisor) -> None:
        """Answer through the server that ``supervisor`` runs."""
        self._supervisor = supervisor
        self._subscribers: dict[str, set[Session]] = {}  # By uri

    async def describe(self, _request: ClientRequest) -> dict[str, Any]:
        return dict(await self._supervisor.describe())

    async def answer(self, request: ClientRequest) -> bytes:
        params, token = _read_params(request)
        if request.method == _UNSUBSCRIBE and not self._unsubscribe(request.session, _uri(params)):
            return b"{}"
        if request.method == _SUBSCRIBE:
            self._check_subscription(request, _uri(params))

        on_progress: OnProgress | None = None
        if token is not None:
            on_progress = partial(_forward, request, token)
        result = await self._supervisor.call(request.method, params, on_progress)

        if request.method == _SUBSCRIBE:
            self._subscribers.setdefault(_uri(params), set()).add(request.session)
            self._supervisor.keep(f"{_SUBSCRIBE} {_uri(params)}", request.method, params)
        elif request.method == _LOG_LEVEL:
            self._supervisor.keep(_LOG_LEVEL, request.method, params)
        return result

    def end_session(self, session: Session) -> None:
        for uri in list(self._subscribers):
            self._unsubscribe(session, uri)

    def _check_subscription(self, request: ClientRequest, uri: str) -> None:
        """Raise ``RpcError`` for a subscription that is too long to be kept, or one too many."""
        if len(bytes(request.message.params)) > _MAX_SUBSCRIPTION_BYTES:
            raise RpcError(
                INVALID_PARAMS, f"a subscription has at most {_MAX_SUBSCRIPTION_BYTES} bytes"
            )

        own = sum(request.session in sessions for sessions in self._subscribers.values())
        is_one_too_many = uri not in self._subscribers and len(self._subscribers) >= _MAX_RESOURCES
        if own >= _MAX_SUBSCRIPTIONS or is_one_too_many:
            raise RpcError(SERVER_ERROR, "there are too many subscriptions: end some of them first")

    def _unsubscribe(self, session: Session, uri: str) -> bool:
        """Note that a session wants no more of a resource.

        Return whether no other session wants it either.
        """
        others = self._subscribers.get(uri, set())
        others.discard(session)
        if not others:
            self._subscribers.pop(uri, None)
            self._supervisor.forget(f"{_SUBSCRIBE} {uri}")
        return not others


def _read_params(request: ClientRequest) -> tuple[dict[str, Any], msgspec.Raw | None]:
    """Return (the params for the server, the client's progress token or None).

    Raise ``RpcError`` for params that are no object.
    """
    raw = request.message.params
    if bytes(raw) and bytes(raw).lstrip()[:1] != b"{":
        raise RpcError(INVALID_PARAMS, "params is an object")

    params: dict[str, Any] = dict(members(raw))
    if "_meta" not in params:
        return params, None

    meta = members(params["_meta"])
    token = meta.pop("progressToken", None)
    for name in _STATELESS_META:
        meta.pop(name, None)

    if meta:
        params["_meta"] = meta
    else:
        del params["_meta"]
    return params, token


def _uri(params: dict[str, Any]) -> str:
    return str(json.loads(bytes(params.get("uri", b'""'))))


def _forward(request: ClientRequest, token: msgspec.Raw, params: dict[str, msgspec.Raw]) -> None:
    """Send progress to the client that asked for it, under its own token."""
    own_params = msgspec.json.encode({**params, "progressToken": token})
    request.send(write_notification("notifications/progress", own_params))
