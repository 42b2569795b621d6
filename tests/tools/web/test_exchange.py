"""Servers that send too much, too slowly, or what is no HTTP."""

from __future__ import annotations

import asyncio
import gzip
import itertools

import pytest

from claw_contract.toolhost_file import MIB
from claw_tools.errors import ErrorCode
from tests.raw import Act, answers, bytes_only, hangs_after, head, repeats_for_ever, resets_after
from tests.tools.web.calls import call, fails, fetcher, serving
from tests.waiting import DEADLINE, eventually_async

FAILED = ErrorCode.EXECUTION_FAILED
GZIP = "content-encoding: gzip"
TEXT = "content-type: text/plain"
CHUNKED = head(200, TEXT, "transfer-encoding: chunked")


def drips(*pieces: bytes) -> Act:
    """Send these bytes over and over, one at a time."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in itertools.cycle(pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    return act


@pytest.mark.requirement("fetch:body-limit")
@pytest.mark.parametrize(
    "act",
    [
        bytes_only(head(200, TEXT, f"content-length: {20 * MIB}") + b" " * (20 * MIB)),
        bytes_only(head(200, TEXT) + b" " * (20 * MIB)),
        repeats_for_ever(CHUNKED),
    ],
    ids=["length", "close", "endless chunks"],
)
async def test_ten_megabytes_are_read(act: Act) -> None:
    async with serving(act) as peer:
        page = await call(fetcher(peer), url=peer.url)
    assert (page["bytes"], page["truncated"]) == (10 * MIB, True)


@pytest.mark.requirement("fetch:body-limit")
@pytest.mark.parametrize(
    ("said", "sent", "shown"), [(1 << 62, b"abc", b"abc"), (2, b"abc", b"ab"), (0, b"abc", b"")]
)
async def test_a_content_length_that_lies_is_no_harm(said: int, sent: bytes, shown: bytes) -> None:
    async with serving(bytes_only(head(200, TEXT, f"content-length: {said}") + sent)) as peer:
        page = await call(fetcher(peer), url=peer.url)
    assert (page["text"].encode(), page["truncated"]) == (shown, said > len(sent))


@pytest.mark.requirement("fetch:broken-body")
@pytest.mark.parametrize(
    "act",
    [
        answers(200, gzip.compress(b"abc" * 9_000)[:-9], "text/plain", GZIP),
        resets_after(CHUNKED + b"6\r\nabcabc\r\n"),
        bytes_only(CHUNKED + b"6\r\nabcabc\r\n"),
        bytes_only(CHUNKED + b"6\r\nabcabc\r\nno number\r\n"),
    ],
    ids=["gzip", "reset", "chunks", "no chunk"],
)
async def test_a_body_that_breaks_off_is_truncated(act: Act) -> None:
    async with serving(act) as peer:
        page = await call(fetcher(peer), url=peer.url)
    assert page["truncated"]
    assert page["text"].startswith("abcabc")


@pytest.mark.requirement("fetch:broken-body")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 2",
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"\x16\x03\x01",
        b"+PONG\r\n",
        b"HTTP/1.1 999999 x\r\n\r\n",
    ],
)
async def test_what_is_no_http_fails(sent: bytes) -> None:
    async with serving(bytes_only(sent)) as peer:
        error = await fails(fetcher(peer), url=peer.url)
    assert (error.code, error.message) == (FAILED, "the server broke off, or does not speak HTTP.")


@pytest.mark.requirement("fetch:slow")
@pytest.mark.parametrize(
    "act",
    [
        hangs_after(b""),
        hangs_after(b"HTTP/1.1 200 OK\r\n"),
        hangs_after(head(200, TEXT, "content-length: 9") + b"abc"),
        drips(b"HTTP/1.1 200 OK\r\n", *[b"x"] * 10_000),
        drips(CHUNKED, *[b"1\r\na\r\n"] * 10_000),
    ],
    ids=["no head", "half a head", "half a body", "slow head", "slow body"],
)
async def test_a_slow_server_ends_at_the_deadline(act: Act) -> None:
    async with serving(act) as peer:
        error = await fails(fetcher(peer, max_seconds=0.3), url=peer.url)
        assert error.code is ErrorCode.TIMEOUT
        await eventually_async(lambda: not peer._serving, "it sees that we have left")


@pytest.mark.requirement("fetch:large-head")
@pytest.mark.parametrize(
    "act",
    [
        repeats_for_ever(b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1_000 + b"\r\n"),
        repeats_for_ever(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 65_536),
        repeats_for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
        repeats_for_ever(b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1_000),
        bytes_only(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
    ],
    ids=["many headers", "long header", "100 flood", "103 flood", "101"],
)
async def test_a_large_head_fails(act: Act) -> None:
    async with serving(act) as peer, asyncio.timeout(DEADLINE):
        assert (await fails(fetcher(peer), url=peer.url)).code is FAILED


@pytest.mark.requirement("fetch:large-head")
@pytest.mark.parametrize(
    "chunk",
    [b"1\r\na\r\n" * 10_000, b"1;" + b"x" * 60_000 + b"\r\na\r\n"],
    ids=["small", "extended"],
)
async def test_a_flood_of_chunks_is_cut(chunk: bytes) -> None:
    async with serving(repeats_for_ever(CHUNKED, chunk)) as peer, asyncio.timeout(DEADLINE):
        page = await call(fetcher(peer), url=peer.url)
    assert page["truncated"]
    assert page["text"].strip("a") == ""
    assert page["bytes"] <= 20_000
