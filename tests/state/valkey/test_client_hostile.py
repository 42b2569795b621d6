"""A server that answers scripts with anything: broken, another program, or somebody
else's (docs/state.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from claw_contract.metadata import Budget
from claw_state.continuity import Anchor
from claw_state.journal import RequestFingerprint
from claw_state.lease import LeaseOwner
from claw_state.ownership import ObjectName
from claw_state.url import ServerAddress, StoreError, parse_place
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal
from claw_state.valkey.ownership import ValkeyOwnershipStore
from claw_state.valkey.spending import ValkeySpending

pytestmark = pytest.mark.requirement("state:hostile-answers")
ASKED = RequestFingerprint("request", "earlier", "Buy", "")
BUDGET = Budget.model_validate({"window": "1h", "max_requests": 2, "limit_usd": 1})


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def turn(*parts: bytes) -> bytes:
    return array(bulk(b"same"), array(*parts))


NIL, ONE = b"$-1\r\n", b":1\r\n"
ANSWERS = {
    "a negative number": b":-5\r\n",
    "a huge number": b":999999999999999\r\n",
    "nil": NIL,
    "nothing in a list": array(),
    "text": bulk(b"x"),
    "a status": b"+OK\r\n",
    "numbers": array(ONE, ONE, ONE),
    "an error in a list": array(b"-ERR inner\r\n", ONE),
    "a turn of one number": array(bulk(b"same"), ONE),
    "a turn that is cut": turn(bulk(b"t")),
    "a turn of nil": turn(*[NIL] * 7),
    "a turn of numbers": turn(*[ONE] * 7),
    "a turn in no state": turn(*map(bulk, (b"t", b"weird", b"o", b"1", b"k", b"1", b"s"))),
    "a turn in no text": turn(*map(bulk, (b"\xff", b"running", b"o", b"1", b"k", b"1", b"s"))),
    "a bucket that is cut": array(ONE, bulk(b"1"), array(bulk(b"1 2")), bulk(b"0"), bulk(b"0")),
    "no bucket": array(ONE, bulk(b"1"), array(), bulk(b"0"), bulk(b"0")),
    "buckets of numbers": array(ONE, bulk(b"1"), ONE, bulk(b"0"), bulk(b"0")),
    "the wrong type": b"-WRONGTYPE Operation against a key\r\n",
    "no memory": b"-OOM command not allowed\r\n",
    "garbage": b"@@@@\r\n",
    "no number": b":abc\r\n",
    "a negative length": b"$-7\r\n",
    "a length without an end": b"$99999999999999\r\n",
    "a list without an end": b"*2147483647\r\n",
    "depth": b"*1\r\n" * 5000,
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "two answers": b":0\r\n:1\r\n",
}


class HostileServer:
    """Answers every script with the same bytes."""

    def __init__(self) -> None:
        self.answer = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ValueError, OSError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                words = [await self._word(reader) for _ in range(int(line[1:]))]
                is_script = words[0].upper() in {b"EVAL", b"EVALSHA"}
                writer.write(self.answer if is_script else b"+OK\r\n")
                await writer.drain()
        writer.close()

    async def _word(self, reader: asyncio.StreamReader) -> bytes:
        length = int((await reader.readline())[1:])
        return (await reader.readexactly(length + 2))[:-2]


@pytest.fixture
async def hostile() -> AsyncIterator[tuple[HostileServer, ValkeyClient]]:
    server = HostileServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    place = parse_place(f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0")
    assert isinstance(place, ServerAddress)
    link = ValkeyClient(place)
    yield server, link
    await link.close()
    listener.close()


async def outcome(asked: Awaitable[object]) -> object:
    """Return what came back, or the ``StoreError``; any other error fails the test."""
    try:
        return await asked
    except StoreError as error:
        return error


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_answer_is_taken_for_a_record_or_ends_a_turn(
    name: str, hostile: tuple[HostileServer, ValkeyClient]
) -> None:
    server, link = hostile
    server.answer = ANSWERS[name]
    journal, store = ValkeyJournal(link, LeaseOwner("here", 1, "a")), ValkeyContinuityStore(link)
    spending, ownership = ValkeySpending(link), ValkeyOwnershipStore(link)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: journal.find("a", ASKED),
        lambda: journal.is_alive("t"),
        lambda: journal.response("t", 1),
        lambda: journal.call_record("t", 1, 0),
        lambda: store.find("a", ["key"]),
        lambda: store.save("a", Anchor("key", ()), "", b"rounds"),
        lambda: spending.count_request("a", BUDGET),
        lambda: ownership.find("a", "id"),
        lambda: ownership.find_objects("a", [ObjectName("file", "id")]),
        lambda: ownership.list_objects("a", "file"),
    ]
    for ask in asked:
        await outcome(ask())
        link._health._backs_off_until = 0.0  # the next one is asked, too
    assert isinstance(await outcome(journal.record_intent("t", 1, 0, b"sent")), StoreError)
    link._health._backs_off_until = 0.0
    assert await outcome(journal.begin("t", "a", ASKED)) is not True
