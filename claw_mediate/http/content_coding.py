"""Reading bodies of peers that may be slow, huge, endless or packed: bounded in bytes, and in time.

What a peer packed is unpacked piece by piece (RFC 9110, 8.4.1). A few bytes may unpack to gigabytes, so every step of a chain
has its bounds: in bytes, in bytes for each packed one, and in the members that one body may consist of.
"""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import brotli  # type: ignore[import-untyped]
import httpx2
import zstandard

_PIECE = 1 << 16
"""Bytes that are unpacked at once, where a format lets us choose."""
_ZSTD_SLICE = 512
"""Of packed bytes: zstd does not let us choose, and makes up to 32 KiB of each byte."""
_ZSTD_WINDOW = 1 << 23
"""What a peer may ask of our memory (RFC 9659)."""
_FREE = 8 << 20
_RATIO = 100
"""Over ``_FREE`` bytes nobody's body unpacks to so many times its size: repetitive streams of events make it to 40."""
_MOST_MEMBERS = 4096
_MOST_CODINGS = 2


class DecodingError(ValueError):
    """The body can't be unpacked. The message is one sentence for the peer."""

    status = 400


class UnknownCodingError(DecodingError):
    status = 415


class DecodedTooLargeError(DecodingError):
    status = 413


def coding_names(values: Iterable[str]) -> tuple[str, ...]:
    """What the values of Content-Encoding name, in the order in which they were applied."""
    names = (name.strip().lower() for value in values for name in value.split(","))
    return tuple(name for name in names if name not in ("", "identity"))


def decode(body: bytes, applied: Sequence[str], most: float, seconds: float) -> bytes:
    """The body without its codings: of ``most`` bytes at most, in so much time. Raises ``DecodingError``."""
    unpacking = Decoder(applied, most)
    until = time.monotonic() + seconds
    pieces: list[bytes] = []
    for start in range(0, len(body), _PIECE):
        pieces += unpacking.feed(body[start : start + _PIECE])
        if time.monotonic() > until:
            raise DecodedTooLargeError("the body takes too long to unpack")
    if not unpacking.is_complete:
        raise DecodingError("the body ends within its content coding")
    return b"".join(pieces)


def decode_known(body: bytes, applied: Sequence[str], most: float, seconds: float) -> bytes:
    """What whoever gets it can read: the body unpacked, or as it stands under names that are no coding ("utf-8"). Raises
    ``DecodingError``.
    """
    return decode(body, applied, most, seconds) if _CODINGS.keys() & applied else body


class Decoder:
    """The codings of one body, taken off while it comes in."""

    def __init__(self, applied: Sequence[str], most: float) -> None:
        """Raises ``UnknownCodingError``."""
        if len(applied) > _MOST_CODINGS:
            raise UnknownCodingError(f"no more than {_MOST_CODINGS} content codings are read")
        for name in applied:
            if name not in _CODINGS:
                raise UnknownCodingError("content codings that are read: gzip, deflate, br, zstd")
        self._steps = [_Step(_CODINGS[name], most) for name in reversed(applied)]

    @property
    def is_complete(self) -> bool:
        """Whether what came in so far is a whole body."""
        return all(step.is_complete for step in self._steps)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes unpack to, in pieces. Raises ``DecodingError``; nothing may be fed after that."""
        pieces = iter((data,))
        for step in self._steps:
            pieces = step.each(pieces)
        return pieces


class _Step:
    """One coding, and its bounds."""

    def __init__(self, coding: Callable[[], _Member], most: float) -> None:
        self._coding = coding
        self._most = most
        self._member = coding()
        self._members = 1
        self._fed = 0
        self._made = 0

    @property
    def is_complete(self) -> bool:
        return self._member.ended or (self._fed == 0)

    def each(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        for data in packed:
            self._fed += len(data)
            for piece in self._unpack(data):
                self._made += len(piece)
                if self._made > min(self._most, _FREE + _RATIO * self._fed):
                    raise DecodedTooLargeError("the body unpacks to more than is read")
                yield piece

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member.ended:
                self._next_member()
            try:
                yield from self._member.feed(data)
            except (zlib.error, brotli.error, zstandard.ZstdError) as error:
                raise DecodingError("the body is not what its content coding says") from error
            data = self._member.behind

    def _next_member(self) -> None:
        """A body may be several that stand one behind the other (RFC 1952, 2.2; RFC 8878, 3)."""
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise DecodedTooLargeError("the body consists of too many parts")
        self._member = self._coding()


class _Member(ABC):
    """One compressed stream."""

    ended = False
    behind = b""
    """What came behind its end."""

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Gzip(_Member):
    _WBITS = 16 + zlib.MAX_WBITS

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(self._WBITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data or self._stream.unconsumed_tail:
            piece = self._stream.decompress(data, _PIECE)
            if piece:
                yield piece
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                self.ended, self.behind = True, self._stream.unused_data
                return


class _Deflate(_Gzip):
    """In zlib's wrapper, as the standard has it, or in none, as some have it."""

    _WBITS = zlib.MAX_WBITS

    def __init__(self) -> None:
        super().__init__()
        self._head = b""
        self._known = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._known:
            data = self._head + data
            if len(data) < 2:  # noqa: PLR2004 - the two bytes of zlib's header
                self._head = data
                return
            self._known = True
            if data[0] & 0x0F != zlib.DEFLATED or int.from_bytes(data[:2]) % 31:
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        yield from super().feed(data)


class _Brotli(_Member):
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        while piece := self._stream.process(data, output_buffer_limit=_PIECE):
            data = b""
            yield piece
        self.ended = self._stream.is_finished()


class _Zstd(_Member):
    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE):
            piece = self._stream.decompress(data[start : start + _ZSTD_SLICE])
            if piece:
                yield piece
            if self._stream.eof:
                self.ended, self.behind = True, self._stream.unused_data + data[start + _ZSTD_SLICE :]
                return


_CODINGS: Final[dict[str, Callable[[], _Member]]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


async def read_bounded(response: httpx2.Response, keep: int, most: int) -> tuple[bytes, int]:
    """(the first ``keep`` bytes, the true size). A body of more than ``most`` bytes is given up: its size is then more."""
    kept = bytearray()
    size = 0
    async for chunk in response.aiter_bytes():
        if len(kept) < keep:
            kept += chunk[: keep - len(kept)]
        size += len(chunk)
        if size > most:
            break
    return bytes(kept), size
