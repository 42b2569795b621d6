"""Messages between the supervisor and a worker, on a pair of connected sockets.

A frame is the length of its body in four bytes, and the body in MessagePack.
"""

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

type Topic = Literal["ready", "metrics", "feed", "alive"]
"""The questions that one worker can ask another; ``alive`` is the supervisor's own."""
_LENGTH = struct.Struct("!I")


class Message(msgspec.Struct, array_like=True):
    """One message.

    up        worker → supervisor   my listeners are open; ``number``: how long I may drain, in ms
    ask       worker → supervisor   ask all workers about ``topic``; ``body`` says what of it
    question  supervisor → worker   the same, from whomever
    reply     worker → supervisor   ``parts`` has the one reply
    answer    supervisor → worker   ``parts`` has all replies, by the worker's number; 0 is the
                                    supervisor's own

    ``number`` identifies a question: in ``ask`` and ``answer`` it is the asking worker's number, in
    ``question`` and ``reply`` the supervisor's.
    """

    kind: Literal["up", "ask", "question", "reply", "answer"]
    number: int = 0
    topic: Topic = "ready"
    parts: dict[int, bytes] = {}
    body: bytes = b""


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Message).decode


def write_frame(message: Message) -> bytes:
    """Return the bytes of a message on the socket."""
    body = _ENCODE(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """The messages in what was received so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._received = bytearray()

    def read(self, data: bytes) -> Iterator[Message]:
        """Add bytes, and yield each message that is whole."""
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return

            body = bytes(self._received[_LENGTH.size : end])
            del self._received[:end]
            yield _DECODE(body)
