"""The fake provider and the fake service, as cheap as Python allows: ``python bench/peers.py
provider|service [SECONDS]``.

Each is a process of its own. It prints its port, answers at once or after so many seconds, and ends
with its standard input.

The provider is none of ``tests/peers.py``: it must cost so little that the bench measures the proxy
(about 0.05 ms a request), and it shares no interpreter with the load.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import items
import wire
from peer_server import listen, take_request

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_ROUNDS = re.compile(rb'"model":\s*"rounds-(\d+)"')
_CONVERSATION = re.compile(rb'"model":\s*"(reads|writes)-(\d+)"')
_PAGE = re.compile(rb"page=(\d+)")
_CALL = re.compile(rb'"id":(\d+),"method":"([a-z/]+)"')
_CALL_PAGE = re.compile(rb'"page": ?(\d+)')
_MARK = re.compile(rb"turn-\d{8}")


def _response(body: bytes) -> bytes:
    return _HEAD % len(body) + body


_ANSWER = _response(wire.completion(wire.TEXT))
_CALLS = [_response(wire.call(number)) for number in range(16)]
_ONE = {
    kind: _response(wire.call(0, tool))
    for kind, tool in ((b"reads", "desk__position"), (b"writes", "desk__order"))
}
_RESULTS = [_response(wire.result(number)) for number in range(16)]
_MCP_RESULTS = [wire.mcp_result(number) for number in range(16)]
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_OPENED = _HEAD.replace(b"\r\n\r\n", b"\r\nmcp-session-id: session-0001\r\n\r\n")
_EVENTS, _ITEM_EVENTS = (
    [b"%x\r\n%s\r\n" % (len(each), each) for each in told]
    for told in (wire.events(), items.events())
)
_ITEM_ANSWER = _response(items.answer())
_ITEM_CALLS = [_response(items.call(number)) for number in range(16)]


class Peer(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, one request at a time."""

    requests = 0
    """The number of requests so far; of those over MCP, only calls count."""
    sessions = 0
    """The number of sessions that were opened over MCP."""
    operations: ClassVar[Counter[bytes]] = Counter()
    """The number of requests of each operation, by its mark; since they were asked for."""

    def __init__(
        self, answer: Callable[[bytes, bytes], bytes | list[bytes]], seconds: float
    ) -> None:
        self._answer = answer
        self._seconds = seconds
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        request = take_request(self._received)
        if request is None:
            return

        head, body = request
        if head.startswith(b"GET /requests"):
            self._send(_response(b"%d" % Peer.requests))
        elif head.startswith(b"GET /sessions"):
            self._send(_response(b"%d" % Peer.sessions))
        elif head.startswith(b"GET /operations"):
            self._send(_response(json.dumps(Counter(Peer.operations.values())).encode()))
            Peer.operations.clear()
        else:
            Peer.requests += not (head.startswith(b"POST /mcp") and b'"tools/call"' not in body)
            if (mark := _MARK.search(body)) is not None:
                Peer.operations[mark[0]] += 1
            answer = self._answer(head, body)
            if self._seconds:
                asyncio.get_running_loop().call_later(self._seconds, self._send, answer)
            else:
                self._send(answer)

    def _send(self, answer: bytes | list[bytes]) -> None:
        assert self._transport is not None
        if isinstance(answer, bytes):
            self._transport.write(answer)
        else:
            self._transport.write(_STREAM + answer[0])
            self._stream(answer, 1)

    def _stream(self, events: list[bytes], place: int) -> None:
        """Send an event at each turn of the loop, without pauses."""
        assert self._transport is not None
        if place == len(events) - 1:
            self._transport.write(events[place] + b"0\r\n\r\n")
        elif not self._transport.is_closing():
            self._transport.write(events[place])
            asyncio.get_running_loop().call_soon(self._stream, events, place + 1)


def provider(head: bytes, body: bytes) -> bytes | list[bytes]:
    """Return a call until there are as many results as the model's name says, then
    the answer, as events for a stream.

    In a conversation (``reads-7``, ``writes-7``) each turn has one call, and an answer of its own.
    """
    if (conversation := _CONVERSATION.search(body)) is not None:
        return (
            _response(wire.completion(wire.answer(int(conversation[2]))))
            if _is_answered(body)
            else _ONE[conversation[1]]
        )
    asked = _ROUNDS.search(body)
    rounds = int(asked[1]) if asked else 0
    if head.startswith(b"POST " + items.PATH.encode()):
        calls, answer, events, result = (
            _ITEM_CALLS,
            _ITEM_ANSWER,
            _ITEM_EVENTS,
            b'"type":"function_call_output"',
        )
    else:
        calls, answer, events, result = _CALLS, _ANSWER, _EVENTS, b'"role":"tool"'
    if rounds and (done := body.count(result)) < rounds:
        return calls[done]
    return events if b'"stream": true' in body else answer


def _is_answered(body: bytes) -> bool:
    """Return True if the last message is a result; a conversation holds results of
    earlier turns too.
    """
    return body.rfind(b'"role":"tool"') > body.rfind(b'"role": "user"')


def service(head: bytes, body: bytes) -> bytes:
    if head.startswith((b"POST /mcp", b"DELETE /mcp")):
        return mcp(body)
    page = _PAGE.search(head)
    return _RESULTS[int(page[1]) if page else 0]


def mcp(body: bytes) -> bytes:
    """Return what an MCP server with a session says."""
    call = _CALL.search(body)
    if call is None:
        return _ACCEPTED
    number, method = call.groups()
    if method == b"initialize":
        Peer.sessions += 1
        opened = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, wire.MCP_OPENED)
        return _OPENED % len(opened) + opened
    page = _CALL_PAGE.search(body)
    result = (
        wire.MCP_TOOLS if method == b"tools/list" else _MCP_RESULTS[int(page[1]) if page else 0]
    )
    return _response(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, result))


async def main(answer: Callable[[bytes, bytes], bytes | list[bytes]], seconds: float = 0.0) -> None:
    server = await listen(lambda: Peer(answer, seconds))
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(
        main({"provider": provider, "service": service}[sys.argv[1]], *map(float, sys.argv[2:]))
    )
