"""The chunks of a body, cut into any pieces, beside what h11 reads of them."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.http.chunks import ChunkedBody

pytestmark = pytest.mark.requirement("connections:http")
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = b"4\r\n\r\n0\r\r\n1;a=b\r\nx\r\n0A \r\n0123456789\r\n0\r\nx-a: 1\r\nb:\r\n\r\n"
PARTS = (
    b"1\r\nx\r\n",
    b"1\r\nx",
    b"\r\n",
    b"a;n=v\t\r\n0123456789\r\n",
    b"0\r\n\r\n",
    b"00\r\n",
    b"x: 1\r\n",
    b"g\r\n",
    b"-1\r\n",
    b"1\nx\n",
    b"2\r\nx\r\n",
)


def read(pieces: list[bytes]) -> tuple[bytes, ChunkedBody]:
    body = ChunkedBody()
    return b"".join(map(body.feed, pieces)), body


def read_by_h11(body: bytes) -> tuple[bytes, bool]:
    """Return the data, and whether the body has ended, with nothing behind it."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(HEAD + body)
    assert isinstance(reader.next_event(), h11.Response)

    data = b""
    while isinstance(event := reader.next_event(), h11.Data):
        data += event.data
    return data, isinstance(event, h11.EndOfMessage) and not reader.trailing_data[0]


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8))
def test_a_body_may_come_in_any_pieces(places: list[int]) -> None:
    edges = [0, *sorted(places), len(WHOLE)]
    pieces = [WHOLE[start:end] for start, end in pairwise(edges)]
    data, body = read(pieces)
    assert (data, body.is_over, body.has_rest) == (b"\r\n0\rx0123456789", True, False)


def test_data_is_given_before_its_chunk_is_whole() -> None:
    body = ChunkedBody()
    assert body.feed(b"5\r\nab") == b"ab"
    assert body.feed(b"c") == b"c"
    assert (body.is_over, body.is_broken) == (False, False)


@given(st.lists(st.sampled_from(PARTS), max_size=6))
def test_a_body_is_what_it_is_to_h11(parts: list[bytes]) -> None:
    said = b"".join(parts)
    data, body = read([said])
    try:
        found, is_whole = read_by_h11(said)
    except h11.RemoteProtocolError:
        assert body.is_broken or not body.is_over
        return
    assert data == found
    assert (body.is_over and not body.has_rest) == is_whole
    assert not body.is_broken


@pytest.mark.parametrize("said", [b"1" * 20_000, b"0\r\n" + b"x: 1\r\n" * 5_000, b"1\r\nx\r\n;"])
def test_what_comes_between_chunks_is_bounded(said: bytes) -> None:
    _, body = read([said, b"\r\n"])
    assert body.is_broken
    assert not body.is_over


def test_data_before_a_fault_is_given() -> None:
    data, body = read([b"2\r\nab\r\nzz\r\nmore"])
    assert (data, body.is_broken) == (b"ab", True)
