"""A runner that asks and does not read: what the kernel does not take of its answer
waits in the proxy.
"""

from __future__ import annotations

import select
import socket
from typing import Self

_RECEIVE_BUFFER = 2048
"""Bytes that its kernel takes (a little more, in truth).

A runner with a default buffer would take six megabytes.
"""


class UnreadAnswer:
    """One request on a connection of its own, and its answer, which is read when
    the test says so.
    """

    def __init__(self, port: int, request: bytes) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.settimeout(30)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(request)
        self.read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def has_begun(self) -> bool:
        """Return True if the first byte is there; it is not taken."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def take(self, size: int) -> None:
        """Read so many bytes of the answer."""
        while size > 0 and (data := self._socket.recv(size)):
            self.read += data
            size -= len(data)

    def take_rest(self) -> bool:
        """Read until the answer or its connection ends; return True if the answer is whole."""
        parts, tail = [self.read], self.read[-16:]
        missing = None
        while not self._is_whole(parts, tail, missing):
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                break
            if not data:
                break
            parts.append(data)
            tail = (tail + data)[-16:]
            if missing is None:
                missing = _length(b"".join(parts))
        self.read = b"".join(parts)
        return self._is_whole([self.read], tail, missing)

    @staticmethod
    def _is_whole(parts: list[bytes], tail: bytes, length: int | None) -> bool:
        if length is None:
            return tail.endswith(b"\r\n0\r\n\r\n")
        return sum(map(len, parts)) >= length


def _length(data: bytes) -> int | None:
    """Return the length of a whole message, with its head; None if that is not
    known yet, or it is chunked.
    """
    head, found, _ = data.partition(b"\r\n\r\n")
    lengths = [
        line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    ]
    return len(head) + 4 + int(lengths[0]) if found and lengths else None


def request(path: str, token: str, body: bytes, *more: str) -> bytes:
    """Return a whole request; ``more``: further header lines."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: x",
        f"authorization: Bearer {token}",
        "content-type: application/json",
    ]
    head = "\r\n".join([*lines, f"content-length: {len(body)}", *more, "", ""])
    return head.encode() + body
