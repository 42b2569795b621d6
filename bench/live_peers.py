"""The peers of the live bench, in one process: a provider that streams at a pace, and a service.

    python bench/live_peers.py

It prints the ports of both, and ends with its standard input. A request's model says what is asked
for: ``live-EVENTS-GAP-SIZE-END``, with the microseconds from one event to the next and the bytes of
an event's text. Each text begins with its number and the time at which it was sent, by the clock
that all processes of a machine share.

The end of a stream comes in one write, which has the last stamp:

    text     finish_reason, [DONE]
    native   before that a call of the runner's own tool, with the stamp
    tool     before that a call of a managed tool; the next request, with its result, gets a text
    slow     the same, and the tool takes ``SLOW_SECONDS``
    hang     nothing: the stream stays open
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from peer_server import listen, take_request

_MODEL = re.compile(rb'"model":\s*"live-(\d+)-(\d+)-(\d+)-(text|native|tool|slow|hang)"')
_MARK = re.compile(rb"turn-\d{8}")
_STREAMS = re.compile(rb'"stream":\s*true')
_STAMP = re.compile(rb"(\d+\.\d{6})~")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_CHUNK = b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
SLOW_SECONDS = 3.0
_SLOW = b"SLOW"
"""The symbol in the arguments of a call that takes so long."""
_BURST = 16
"""Events without a pause that go out in one step of the loop."""


@dataclass(frozen=True)
class StreamOrder:
    """The stream that a request asks for."""

    events: int
    gap: float
    size: int
    end: str


def stamp(number: int) -> bytes:
    return b"#%08d@%.6f~" % (number, time.monotonic())


def event(number: int, size: int) -> bytes:
    text = stamp(number).ljust(size, b"x")
    return _CHUNK % (b'{"content":"%b"}' % text, b"null")


def ending(end: str) -> bytes:
    """Return the last events of a stream."""
    reason = b'"stop"' if end == "text" else b'"tool_calls"'
    call = b""
    if end != "text":
        calls = json.dumps({"tool_calls": [{"index": 0, **_call(end)}]}).encode()
        call = _CHUNK % (calls, b"null")
    return call + _CHUNK % (b"{}", reason) + b"data: [DONE]\n\n"


def whole(asked: StreamOrder) -> bytes:
    """Return the same reply as one JSON document."""
    text = b"".join(stamp(number).ljust(asked.size, b"x") for number in range(asked.events))
    message: dict[str, Any] = {"role": "assistant", "content": text.decode()}
    if asked.end != "text":
        message["tool_calls"] = [_call(asked.end)]
    reason = "stop" if asked.end == "text" else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench"}
    return json.dumps({**head, "choices": [choice]}).encode()


def _call(end: str) -> dict[str, Any]:
    sent = f"{time.monotonic():.6f}~"
    if end == "native":
        function = {"name": "shell", "arguments": json.dumps({"cmd": f"@{sent}"})}
    else:
        symbol = _SLOW.decode() if end == "slow" else "ACME"
        arguments = {"symbol": symbol, "page": 0, "filter_a": sent}
        function = {"name": "desk__position", "arguments": json.dumps(arguments)}
    return {"id": f"call_{time.monotonic_ns():024}", "type": "function", "function": function}


class Peer(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, one request at a time."""

    requests: ClassVar[Counter[str]] = Counter()
    """The requests of each operation, by its mark; since they were asked for."""
    closed: ClassVar[dict[str, float]] = {}
    """The times at which connections with an open stream were closed, by the mark."""
    tool_delays: ClassVar[list[float]] = []
    """The seconds from the last byte of each hidden reply to its tool's request."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._streaming: asyncio.Task[None] | None = None
        self._mark = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._streaming is not None:
            self._streaming.cancel()
            Peer.closed[self._mark] = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self._received += data
        request = take_request(self._received)
        if request is not None:
            self.answer(*request)

    def answer(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError

    def send(self, document: bytes) -> None:
        assert self._transport is not None
        self._transport.write(_HEAD % (len(document), document))


class Service(Peer):
    def answer(self, head: bytes, body: bytes) -> None:  # noqa: ARG002 - the request says it all
        sent = _STAMP.search(head.replace(b"%7E", b"~"))
        if sent is not None:
            Peer.tool_delays.append(time.monotonic() - float(sent[1]))
        seconds = SLOW_SECONDS if _SLOW in head else 0.0
        asyncio.get_running_loop().call_later(seconds, self.send, b'{"rows": []}')


class Provider(Peer):
    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /figures"):
            figures = {
                "requests": Peer.requests,
                "closed": Peer.closed,
                "tool_delays": Peer.tool_delays,
            }
            self.send(json.dumps(figures).encode())
            for kept in (Peer.requests, Peer.closed, Peer.tool_delays):
                kept.clear()
            return

        found = _MODEL.search(body)
        mark = _MARK.search(body)
        if found is None or mark is None:
            self.send(b"{}")
            return

        self._mark = mark[0].decode()
        Peer.requests[self._mark] += 1
        events, gap, size = map(int, found.groups()[:3])
        asked = StreamOrder(events, gap / 1_000_000, size, found[4].decode())
        if asked.end in ("tool", "slow") and b'"role":"tool"' in body:
            asked = StreamOrder(1, 0.0, size, "text")
        work = self._stream if _STREAMS.search(body) else self._reply
        self._streaming = asyncio.get_running_loop().create_task(work(asked))

    async def _reply(self, asked: StreamOrder) -> None:
        """Answer when a stream would have ended."""
        await asyncio.sleep(asked.gap * asked.events)
        self.send(whole(asked))
        self._streaming = None

    async def _stream(self, asked: StreamOrder) -> None:
        assert self._transport is not None
        begun = time.monotonic()
        self._transport.write(_STREAM)
        for number in range(asked.events):
            if asked.gap:
                await asyncio.sleep(begun + number * asked.gap - time.monotonic())
            elif number % _BURST == 0:
                await asyncio.sleep(0)
            await self._may_write.wait()
            self._write(event(number, asked.size))

        if asked.end == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(asked.gap)
        self._write(ending(asked.end), is_last=True)
        self._streaming = None

    def _write(self, data: bytes, *, is_last: bool = False) -> None:
        assert self._transport is not None
        end = b"0\r\n\r\n" if is_last else b""
        self._transport.write(b"%x\r\n%b\r\n%b" % (len(data), data, end))


async def main() -> None:
    servers = [await listen(Provider), await listen(Service)]
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
