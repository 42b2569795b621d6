"""Bounded decoding of content codings (RFC 9110, 8.4.1): the one decompressor of all packages.

A few bytes may decode to gigabytes, so every decoder of a chain is bounded: in bytes, in bytes for
each encoded byte, and in the members of one body.
"""

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import brotli  # type: ignore[import-untyped]
import zstandard

_PIECE = 1 << 16
"""Decoded bytes at a time, where a format lets us choose."""
_ZSTD_SLICE = 512
"""Encoded bytes at a time for zstd, which does not bound its output: up to 32 KiB for each byte."""
_ZSTD_WINDOW = 1 << 23  # Limit of the window that a peer may demand (RFC 9659)
_UNCHECKED_BYTES = 8 << 20
"""Decoded bytes up to which the ratio does not count."""
_MAX_RATIO: Final = 100
"""Decoded bytes for each encoded one. No real body has more; repetitive event streams reach 40."""
_MAX_MEMBERS = 4096
_GZIP_ID: Final = b"\x1f"  # The first byte of a member of gzip (RFC 1952, 2.3.1)
_MAX_CODINGS = 2


class DecodingError(ValueError):
    """A body that can't be decoded. The message is a sentence for the peer."""

    status = 400


class UnknownCodingError(DecodingError):
    status = 415


class DecodedTooLargeError(DecodingError):
    status = 413


def coding_names(values: Iterable[str]) -> tuple[str, ...]:
    """Return the codings that Content-Encoding lists, in the order of application.

    ``identity`` is left out.
    """
    names = (name.strip().lower() for value in values for name in value.split(","))
    return tuple(name for name in names if name not in ("", "identity"))


def decode(body: bytes, applied: Sequence[str], max_bytes: float, seconds: float) -> bytes:
    """Return the decoded body.

    Raise ``DecodingError``, also for more than ``max_bytes`` or ``seconds``.
    """
    decoder = Decoder(applied, max_bytes)
    deadline = time.monotonic() + seconds
    pieces: list[bytes] = []
    for start in range(0, len(body), _PIECE):
        pieces += decoder.feed(body[start : start + _PIECE])
        if time.monotonic() > deadline:
            raise DecodedTooLargeError("the body takes too long to unpack")

    if not decoder.is_complete:
        raise DecodingError("the body ends within its content coding")
    return b"".join(pieces)


def decode_known(body: bytes, applied: Sequence[str], max_bytes: float, seconds: float) -> bytes:
    """Return the decoded body; unchanged if no name is a known coding ("utf-8").

    Raise ``DecodingError``.
    """
    if not _CODINGS.keys() & applied:
        return body
    return decode(body, applied, max_bytes, seconds)


class Decoder:
    """The incremental decoder of one body with up to two codings."""

    def __init__(
        self,
        applied: Sequence[str],
        max_bytes: float,
        *,
        max_ratio: float = _MAX_RATIO,
        ignores_padding: bool = False,
    ) -> None:
        """Decode ``applied``, the codings in the order of application.

        A body of more than ``max_bytes``, or of more than ``max_ratio`` times its encoded size, is
        too large. ``ignores_padding``: bytes after the last member that begin no other member of
        gzip are left out, as gzip(1) does.

        Raise ``UnknownCodingError``.
        """
        if len(applied) > _MAX_CODINGS:
            raise UnknownCodingError(f"no more than {_MAX_CODINGS} content codings are read")
        for name in applied:
            if name not in _CODINGS:
                raise UnknownCodingError("content codings that are read: gzip, deflate, br, zstd")

        self._steps = [
            _Step(_CODINGS[name], max_bytes, max_ratio, ignores_padding=ignores_padding)
            for name in reversed(applied)
        ]

    @property
    def is_complete(self) -> bool:
        return all(step.is_complete for step in self._steps)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decode to. Raise ``DecodingError``; feed nothing afterwards."""
        pieces = iter((data,))
        for step in self._steps:
            pieces = step.decode(pieces)
        return pieces


class _Step:
    """The decoder of one coding. Its body may be several members, one after the other."""

    def __init__(
        self,
        coding: "Callable[[], _Member]",
        max_bytes: float,
        max_ratio: float,
        *,
        ignores_padding: bool,
    ) -> None:
        self._coding = coding
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._ignores_padding = ignores_padding

        self._member = coding()
        self._member_count = 1
        self._bytes_in = 0
        self._bytes_out = 0

    @property
    def is_complete(self) -> bool:
        return self._member.is_complete or self._bytes_in == 0

    def decode(self, encoded: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what these bytes decode to. Raise ``DecodingError``."""
        for data in encoded:
            self._bytes_in += len(data)
            for piece in self._decode(data):
                self._bytes_out += len(piece)
                max_by_ratio = _UNCHECKED_BYTES + self._max_ratio * self._bytes_in
                if self._bytes_out > min(self._max_bytes, max_by_ratio):
                    raise DecodedTooLargeError("the body unpacks to more than is read")
                yield piece

    def _decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member.is_complete:
                if self._ignores_padding and not data.startswith(_GZIP_ID):
                    return
                self._next_member()

            try:
                yield from self._member.feed(data)
            except (zlib.error, brotli.error, zstandard.ZstdError) as error:
                raise DecodingError("the body is not what its content coding says") from error
            data = self._member.unused

    def _next_member(self) -> None:
        """Start the next of several concatenated streams (RFC 1952, 2.2; RFC 8878, 3)."""
        self._member_count += 1
        if self._member_count > _MAX_MEMBERS:
            raise DecodedTooLargeError("the body consists of too many parts")
        self._member = self._coding()


class _Member(ABC):
    """The decoder of one compressed stream."""

    is_complete = False
    unused = b""  # Data after its end

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decode to, up to the stream's end."""


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
                self.is_complete = True
                self.unused = self._stream.unused_data
                return


class _Deflate(_Gzip):
    """Deflate in zlib's wrapper, as the standard says, or raw, as some peers send it."""

    _WBITS = zlib.MAX_WBITS

    def __init__(self) -> None:
        super().__init__()
        self._head = b""
        self._has_header = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._has_header:
            data = self._head + data
            if len(data) < 2:  # noqa: PLR2004 - the two bytes of zlib's header
                self._head = data
                return

            self._has_header = True
            # The wrapper begins with its method, and its first two bytes are a multiple of 31
            # (RFC 1950, 2.2).
            is_wrapped = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
            if not is_wrapped:
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)

        yield from super().feed(data)


class _Brotli(_Member):
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        while piece := self._stream.process(data, output_buffer_limit=_PIECE):
            data = b""  # the decoder has it; it is asked for the rest of its output
            yield piece
        self.is_complete = self._stream.is_finished()


class _Zstd(_Member):
    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE):
            end = start + _ZSTD_SLICE
            piece = self._stream.decompress(data[start:end])
            if piece:
                yield piece
            if self._stream.eof:
                self.is_complete = True
                self.unused = self._stream.unused_data + data[end:]
                return


_CODINGS: Final[dict[str, Callable[[], _Member]]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
