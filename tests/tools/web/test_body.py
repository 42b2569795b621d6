"""Bodies in a content coding: those that are read, and bombs."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import brotli
import pytest

from claw_contract.toolhost_file import MIB
from claw_tools.errors import ErrorCode
from tests.raw import answers
from tests.tools.web.calls import call, fails, fetcher, serving
from tests.waiting import DEADLINE

FAILED = ErrorCode.EXECUTION_FAILED
GZIP = "content-encoding: gzip"


@cache
def gzip_bomb() -> bytes:
    """Return 200 KB, made by the test that needs them, and not by each process that
    collects this module.
    """
    return gzip.compress(bytes([32]) * (200 * MIB), 9, mtime=0)


@cache
def deflate_bomb() -> bytes:
    return zlib.compress(bytes([32]) * (100 * MIB), 9)


@pytest.mark.requirement("fetch:bombs")
@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", gzip_bomb),
        ("x-gzip", lambda: gzip_bomb() * 2),
        ("deflate", deflate_bomb),
        ("deflate", lambda: deflate_bomb()[2:-4]),
    ],
    ids=["gzip", "members", "deflate", "raw deflate"],
)
async def test_a_bomb_unpacks_to_ten_megabytes_in_bounded_memory(
    coding: str, bomb: Callable[[], bytes]
) -> None:
    async with serving(answers(200, bomb(), "text/plain", f"content-encoding: {coding}")) as peer:
        tracemalloc.start()
        page = await call(fetcher(peer), url=peer.url)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (page["bytes"], page["truncated"]) == (10 * MIB, True)
    assert peak < 40 * MIB


@pytest.mark.requirement("fetch:bombs")
async def test_a_million_empty_members_end_soon() -> None:
    body = gzip.compress(b"", mtime=0) * 400_000
    async with serving(answers(200, body, "text/plain", GZIP)) as peer, asyncio.timeout(DEADLINE):
        assert (await call(fetcher(peer), url=peer.url))["truncated"]


@pytest.mark.requirement("fetch:bombs")
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip, gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0)),
        ("gzip\r\ncontent-encoding: gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0)),
        ("br", brotli.compress(b"x")),
        ("zstd", b"(\xb5/\xfd"),
        ("no-such", b"x"),
        ("gzip", b"plain text"),
        ("deflate", b"plain text"),
        ("gzip", gzip.compress(b"x", mtime=0)[:12] + b"\xff" * 20),
    ],
)
async def test_a_coding_that_is_not_read_fails(coding: str, body: bytes) -> None:
    async with serving(answers(200, body, "text/plain", f"content-encoding: {coding}")) as peer:
        assert (await fails(fetcher(peer), url=peer.url)).code is FAILED


@pytest.mark.requirement("fetch:bombs")
async def test_codings_that_are_read() -> None:
    several, raw = (
        gzip.compress(b"one ") + gzip.compress(b"two"),
        zlib.compress(b"one two", wbits=-15),
    )
    inner = gzip.compress(b"\0" * 100)
    for coding, body in (
        ("GZIP", several),
        ("gzip", several + b"\0" * 9),
        ("deflate", zlib.compress(b"one two")),
        ("deflate", raw),
    ):
        async with serving(answers(200, body, "text/plain", f"content-encoding: {coding}")) as peer:
            page = await call(fetcher(peer), url=peer.url)
            assert (page["text"], page["truncated"]) == ("one two", False)
    async with serving(
        answers(200, gzip.compress(inner), "application/gzip", GZIP),
        answers(200, b"", "text/plain", GZIP),
    ) as peer:
        assert (await call(fetcher(peer), url=peer.url))["bytes"] == len(inner)  # one layer only
        assert (await call(fetcher(peer), url=peer.url))["text"] == ""
