"""A forwarded stream without the usage that only the proxy has asked for."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.content_coding import DecodingError
from claw_mediate.mitm.passthrough.usage_hider import StreamWithoutUsage

SAID = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
USED = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = SAID + USED + DONE


class HiderTrial:
    """A tap, and what becomes of a stream."""

    def __init__(self) -> None:
        self.read = b""
        self.failures = 0

    def tap(self, data: bytes) -> bytes:
        self.read += data
        return data

    def fail(self) -> None:
        self.failures += 1

    def without_usage(self, *codings: str) -> StreamWithoutUsage:
        return StreamWithoutUsage(self.tap, codings, self.fail)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the pieces of some bytes, and mitmproxy's last call, which has none."""
    starts = [0, *sorted(place % len(data) for place in places), len(data)]
    pieces = [data[one:other] for one, other in pairwise(starts)]
    return [*filter(None, pieces), b""]


@pytest.mark.requirement("budget:usage-asked-for")
@given(st.booleans(), st.lists(st.integers(0, 1000), max_size=6))
def test_however_a_stream_is_cut_only_its_usage_is_missing(
    is_packed: bool, places: list[int]
) -> None:
    seen = HiderTrial()
    sent = gzip.compress(STREAM) if is_packed else STREAM
    stream = seen.without_usage(*["gzip"] * is_packed)
    pieces = [piece for data in cut(sent, places) for piece in stream(data)]
    assert b"".join(pieces) == SAID + DONE
    assert b"" not in pieces, "an empty chunk would end the message"
    assert seen.read == sent, "the tap reads all of it, as it came"
    assert seen.failures == 0


@pytest.mark.requirement("budget:usage-asked-for")
def test_a_stream_that_can_not_be_unpacked_breaks_off_once() -> None:
    seen = HiderTrial()
    stream = seen.without_usage("gzip")
    assert stream(b"no gzip at all") == []
    assert stream(b"more") == stream(b"") == []
    assert seen.failures == 1
    assert seen.read == b"no gzip at allmore", "the tap goes on reading"


@pytest.mark.requirement("budget:usage-asked-for")
def test_a_coding_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DecodingError):
        HiderTrial().without_usage("sdch")
