"""The server's side of the bench's peers: HTTP/1.1 with keep-alive, one request at a time."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


def take_request(received: bytearray) -> tuple[bytes, bytes] | None:
    """Take the head and the body of a request from what was received; None if it is not whole."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None

    length = _LENGTH.search(received, 0, end)
    end_of_body = end + 4 + (int(length[1]) if length else 0)
    if len(received) < end_of_body:
        return None

    head, body = bytes(received[:end]), bytes(received[end + 4 : end_of_body])
    del received[:end_of_body]
    return head, body


async def listen(kind: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    """Serve on a free port of loopback, and print it."""
    # A socket of this kind, so that asyncio sets TCP_NODELAY.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(kind, sock=listener, backlog=512)
    print(listener.getsockname()[1], flush=True)
    return server
