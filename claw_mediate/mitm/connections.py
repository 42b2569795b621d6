"""The addon that limits connections: how long one may wait, and how many may be open.

One sweep every few seconds looks at all connections, so that no packet costs a timer
(``connection_table`` has the rules). A connection that has shown a token is not idle while it reads
its last answer slowly: bytes still wait for it. One that takes none of them for as long as a live
answer may flow is closed: nobody reads at its other end.

The process gets as many descriptors as the system lets it have. If none is left all the same,
asyncio would log a traceback for each of a hundred tries to accept a connection. That becomes one
line a minute, and a stranger's connection is closed.
"""

import asyncio
import errno
from typing import Any, Final, NamedTuple

from mitmproxy import connection, http, tcp
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from claw_contract.limits import LineLimit, raise_descriptor_limit
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.response_stream import patches

SWEEP_SECONDS: Final = 2.0
_STRANGERS_SHARE: Final = 1 / 4
_OWN_SHARE: Final = 1 / 8
"""For the process itself: listeners, files, state, connections to services."""
_AGENTS_SHARE: Final = 1 - _STRANGERS_SHARE - _OWN_SHARE
_MAX_UNKNOWN: Final = 4096  # Connections also take memory, whatever the limit of descriptors
_MAX_AGENT: Final = 8192
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def take_room(addon_state: AddonState, flow: http.HTTPFlow, agent_id: str) -> bool:
    """Note whose request this is.

    Return False if there is no room for it in the agent's share of the descriptors. Room is
    made by closing connections of the same agent that have no request under way, the oldest
    first.
    """
    table = addon_state.connections
    client_id = flow.client_conn.id
    table.begin_request(client_id, flow.id)  # scripts come before the addon
    table.note_token(client_id, agent_id)

    while table.exceeds_share(client_id):
        unused = table.oldest_unused(client_id)
        if unused is None:
            return False
        _close(addon_state, unused)

    return True


def _close(addon_state: AddonState, client_id: str) -> None:
    """Close a connection now, whatever it is doing.

    Its descriptor is needed, or nobody is at its other end.
    """
    addon_state.connections.close(client_id)
    handler = addon_state.builtin.proxyserver.connections.get(client_id)
    transport = handler.transports.get(handler.client) if handler is not None else None
    if transport is None:
        return

    if isinstance(transport.writer, asyncio.StreamWriter):
        transport.writer.transport.abort()
    if transport.handler is not None:
        transport.handler.cancel("closed by the limits of connections")


class _UnreadBytes(NamedTuple):
    """Bytes that wait for a runner to take some of them."""

    size: int
    since: float  # When there were first so many


def _waiting_bytes(handler: Any) -> int:
    """Return the bytes that the kernel has not taken yet for the runner of a connection."""
    transport = handler.transports.get(handler.client)
    if transport is None or not isinstance(transport.writer, asyncio.StreamWriter):
        return 0
    size: int = transport.writer.transport.get_write_buffer_size()
    return size


class ConnectionsAddon:
    """The addon: it tells the table what happens, and closes what the table says."""

    name = "claw-connections"

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state
        self.table = addon_state.connections
        self._events = addon_state.events
        self._builtin = addon_state.builtin
        self._limit = LineLimit(max_lines=1)
        self._unread: dict[str, _UnreadBytes] = {}
        """The bytes that waited for each connection at the last sweep, by its id."""
        self._sweeping: asyncio.Task[None] | None = None

    def running(self) -> None:
        descriptors = raise_descriptor_limit()
        self.table.max_unknown = min(int(descriptors * _STRANGERS_SHARE), _MAX_UNKNOWN)
        self.table.max_agents = int(descriptors * _AGENTS_SHARE)
        self.table.max_agent = _MAX_AGENT

        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if self._report_exhaustion(context):
                return

            if before is None:
                loop.default_exception_handler(context)
            else:
                before(loop, context)

        loop.set_exception_handler(handle)
        self._sweeping = asyncio.ensure_future(self._sweep())

    def done(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()

    def client_connected(self, client: connection.Client) -> None:
        if client.transport_protocol == "tcp":
            self.table.open(client.id)
            self._close_surplus()

    def client_disconnected(self, client: connection.Client) -> None:
        self.table.close(client.id)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self.table.begin_request(flow.client_conn.id, flow.id)

    http_connect = requestheaders
    websocket_start = requestheaders

    def response(self, flow: http.HTTPFlow) -> None:
        self.table.end_request(flow.client_conn.id, flow.id)

    error = response
    websocket_end = response

    def http_connected(self, flow: http.HTTPFlow) -> None:
        self.table.end_connect(flow.client_conn.id, flow.id)

    http_connect_error = http_connected

    def tcp_start(self, flow: tcp.TCPFlow) -> None:
        self.table.note_tunnel(flow.client_conn.id)

    def server_connect(self, data: ServerConnectionHookData) -> None:
        self.table.add_descriptors(data.client.id, 1)
        self._close_surplus()

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        self.table.add_descriptors(data.client.id, -1)

    server_connect_error = server_disconnected

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)

            for client_id, has_token, head_limit in self.table.expired(patches.half_heads()):
                if has_token and self._is_sending(client_id):
                    continue

                if head_limit is not None:
                    self._report(f"no complete head of a request came in {head_limit:g} seconds")
                _close(self._addon_state, client_id)

            for client_id in self._find_unread(asyncio.get_running_loop().time()):
                self._report("a runner took nothing of its answer for too long")
                _close(self._addon_state, client_id)

    def _find_unread(self, now: float) -> list[str]:
        """Return the connections whose runners have taken nothing for too long."""
        earlier, self._unread = self._unread, {}
        for handler in self._builtin.proxyserver.connections.values():
            client_id = handler.client.id
            size = _waiting_bytes(handler) + patches.buffered_bytes(handler.client)
            if not size:
                continue

            before = earlier.get(client_id)
            since = before.since if before is not None and before.size == size else now
            self._unread[client_id] = _UnreadBytes(size, since)

        limit = self._addon_state.max_unread_seconds
        return [client_id for client_id, each in self._unread.items() if now - each.since >= limit]

    def _close_surplus(self) -> None:
        while (oldest := self.table.surplus()) is not None:
            most = int(self.table.max_unknown)
            self._report(
                f"more than {most} descriptors for connections without a token: the "
                "oldest were closed"
            )
            _close(self._addon_state, oldest)

    def _is_sending(self, client_id: str) -> bool:
        """Return whether bytes still wait to be sent on a connection."""
        handler = self._builtin.proxyserver.connections.get(client_id)
        if handler is None:
            return False
        return _waiting_bytes(handler) > 0 or patches.is_buffering(handler.client)

    def _report(self, reason: str) -> None:
        self._events.limited_event(
            "error", error="connections_closed", reason=reason, limit=self._limit
        )

    def _report_exhaustion(self, context: dict[str, Any]) -> bool:
        """Report that no descriptor is left, and close a connection; return False otherwise.

        ``context`` is what asyncio gives its handler of exceptions.
        """
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _OUT_OF_DESCRIPTORS:
            return False

        self._events.limited_event(
            "error",
            error="descriptors_exhausted",
            reason="no more connections can be accepted",
            limit=self._limit,
        )
        dispensable = self.table.most_dispensable()
        if dispensable is not None:
            _close(self._addon_state, dispensable)
        return True
