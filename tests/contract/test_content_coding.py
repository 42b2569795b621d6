"""Compressed bodies: every coding, cut anywhere, in chains; invalid bodies, and
bodies that are far too large.
"""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import pairwise

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.content_coding import Decoder, DecodingError, coding_names, decode

MOST = 64 << 20
SECONDS = 30.0


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def small_window_brotli(data: bytes) -> bytes:
    return bytes(brotli.compress(data, quality=4))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": small_window_brotli,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
NAMES = st.sampled_from(sorted(PACKERS))


def packed(data: bytes, chain: list[str]) -> bytes:
    for name in chain:
        data = PACKERS[name](data)
    return data


@pytest.mark.requirement("compressed:any-coding")
@given(
    data=st.binary(max_size=5000),
    chain=st.lists(NAMES, max_size=2),
    cuts=st.lists(st.integers(0, 6000), max_size=8),
)
def test_whatever_was_packed_comes_out_again_however_it_is_cut(
    data: bytes, chain: list[str], cuts: list[int]
) -> None:
    body = packed(data, chain)
    places = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    unpacking = Decoder(chain, MOST)
    pieces = [piece for start, end in pairwise(places) for piece in unpacking.feed(body[start:end])]
    assert b"".join(pieces) == data
    assert unpacking.is_complete
    assert decode(body, chain, MOST, SECONDS) == data


@pytest.mark.requirement("compressed:any-coding")
@pytest.mark.parametrize("coding", PACKERS)
def test_one_byte_at_a_time_is_enough(coding: str) -> None:
    data = random.Random(7).randbytes(300) * 40
    unpacking = Decoder([coding], MOST)
    body = PACKERS[coding](data)
    assert b"".join(piece for byte in body for piece in unpacking.feed(bytes([byte]))) == data
    assert unpacking.is_complete


@pytest.mark.requirement("compressed:any-coding")
def test_deflate_without_its_wrapper_and_several_members_are_read() -> None:
    assert decode(raw_deflate(b"abc" * 99), ["deflate"], MOST, SECONDS) == b"abc" * 99
    for coding in ("gzip", "zstd"):
        body = PACKERS[coding](b"one") + PACKERS[coding](b"two")
        assert decode(body, [coding], MOST, SECONDS) == b"onetwo"
    assert decode(b"", ["gzip"], MOST, SECONDS) == b""


@pytest.mark.requirement("compressed:any-coding")
def test_the_header_is_read_as_a_list_and_identity_is_no_coding() -> None:
    assert coding_names(["gzip, BR", "identity", " zstd "]) == ("gzip", "br", "zstd")
    assert coding_names([]) == coding_names(["identity"]) == ()


@pytest.mark.requirement("compressed:refusals")
@pytest.mark.parametrize("coding", PACKERS)
@given(data=st.binary(min_size=1, max_size=400), cut=st.integers(1, 400))
def test_a_body_that_ends_too_early_is_refused(coding: str, data: bytes, cut: int) -> None:
    body = PACKERS[coding](data)
    with pytest.raises(DecodingError) as raised:
        decode(body[: -min(cut, len(body) - 1)], [coding], MOST, SECONDS)
    assert raised.value.status == 400


@pytest.mark.requirement("compressed:refusals")
@given(data=st.binary(min_size=1, max_size=400), chain=st.lists(NAMES, min_size=1, max_size=2))
def test_garbage_is_refused_or_unpacks_to_something_and_raises_nothing_else(
    data: bytes, chain: list[str]
) -> None:
    with suppress(DecodingError):
        decode(data, chain, MOST, SECONDS)


@pytest.mark.requirement("compressed:refusals")
@pytest.mark.parametrize("chain", [["compress"], ["gzip", "dcz"], ["gzip"] * 3, ["aws-chunked"]])
def test_a_coding_that_is_not_known_is_refused_as_such(chain: list[str]) -> None:
    with pytest.raises(DecodingError) as raised:
        decode(b"x", chain, MOST, SECONDS)
    assert raised.value.status == 415


@cache
def nothing(coding: str) -> bytes:
    return PACKERS[coding](bytes(100 << 20))


BOMBS: dict[str, Callable[[], tuple[list[str], bytes]]] = {
    "gzip": lambda: (["gzip"], nothing("gzip")),
    "br": lambda: (["br"], nothing("br")),
    "zstd": lambda: (["zstd"], nothing("zstd")),
    "gzip in gzip": lambda: (["gzip", "gzip"], gzip.compress(nothing("gzip"))),
    "empty members": lambda: (["gzip"], gzip.compress(b"") * 100_000),
    "empty members in zstd": lambda: (
        ["gzip", "zstd"],
        PACKERS["zstd"](gzip.compress(b"") * 2_000_000),
    ),
}


@pytest.mark.long
@pytest.mark.requirement("compressed:bombs")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little_memory_and_is_too_large(name: str) -> None:
    chain, body = BOMBS[name]()
    tracemalloc.start()
    with pytest.raises(DecodingError) as raised:
        decode(body, chain, MOST, SECONDS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert raised.value.status == 413
    assert peak < 48 << 20


@pytest.mark.requirement("compressed:bombs")
def test_the_bytes_that_are_allowed_are_an_exact_bound() -> None:
    body = gzip.compress(random.Random(1).randbytes(1000))
    assert len(decode(body, ["gzip"], 1000, SECONDS)) == 1000
    with pytest.raises(DecodingError) as raised:
        decode(body, ["gzip"], 999, SECONDS)
    assert raised.value.status == 413


@pytest.mark.requirement("compressed:bombs")
def test_a_body_that_takes_too_long_is_given_up() -> None:
    body = gzip.compress(random.Random(1).randbytes(1 << 20))
    with pytest.raises(DecodingError, match="too long"):
        decode(body, ["gzip"], MOST, -time.monotonic())
