"""A server's errors at the start: the proxy waits for those that pass, and refuses to start on
mistakes (docs/state.md).
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from claw_mediate.state import open_state
from claw_mediate.telemetry.event_log import EventLog
from claw_state.url import ServerAddress, parse_place
from claw_state.valkey.client import (
    TIMEOUT_SECONDS,
    ValkeyClient,
    blocking_client,
    find_eviction_policy,
    probe_server,
)
from tests.state.relay import Relay
from tests.state.server import SharedState, shared_state

PASSING = [
    "LOADING Redis is loading the dataset in memory",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "MASTERDOWN ValkeyClient with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "BUSY Redis is busy running a script.",
]
MISTAKES = [
    "WRONGPASS invalid username-password pair or user is disabled.",
    "ERR DB index is out of range",
]


@pytest.mark.requirement("state:outage-at-the-start")
def test_a_temporary_refusal_does_not_prevent_a_start_and_a_mistake_does(
    tmp_path: Path,
) -> None:
    with shared_state(tmp_path / "server") as real:
        relay = Relay(real.port)
        server = parse_place(f"redis://127.0.0.1:{relay.port}/0")
        assert isinstance(server, ServerAddress)
        assert probe_server(server) is None
        for words in PASSING:
            relay.refusal = f"-{words}\r\n".encode()
            assert words.partition(" ")[2] in str(probe_server(server))
        for words in MISTAKES:
            relay.refusal = f"-{words}\r\n".encode()
            with pytest.raises(ValueError, match="refuses us"):
                probe_server(server)
        relay.close()


@pytest.mark.requirement("state:pods-apart")
def test_a_database_of_another_pod_is_reported_at_the_start(shared: SharedState) -> None:
    def told(pod: str) -> list[str]:
        """Open the state as a proxy of this pod; return what is told of other pods."""
        lines: list[bytes] = []
        state = open_state(shared.place, EventLog(lines.append), pod=pod)
        asyncio.run(state.journal.close())
        events = [json.loads(line) for line in lines]
        return [event["reason"] for event in events if event.get("error") == "state_shared"]

    assert told("desk") == told("desk") == told("") == []
    (reason,) = told("other")
    assert "'desk'" in reason
    assert "CLAW_STATE" in reason
    assert told("other") == []


@pytest.mark.requirement("state:evicts")
def test_a_server_that_evicts_keys_is_reported(shared: SharedState) -> None:
    with blocking_client(shared.place, 10) as client:
        assert find_eviction_policy(shared.place) is None
        client.config_set("maxmemory-policy", "volatile-lru")
        assert find_eviction_policy(shared.place) is None  # without a limit nothing is full
        client.config_set("maxmemory", "100mb")
        assert find_eviction_policy(shared.place) == "volatile-lru"

        lines: list[bytes] = []
        state = open_state(shared.place, EventLog(lines.append))
        asyncio.run(state.journal.close())
        assert [b"state_evicts" in line for line in lines] == [True]

        client.acl_setuser("default", commands=["-info"])
        assert find_eviction_policy(shared.place) is None


@pytest.mark.requirement("state:own-pause")
async def test_a_pause_of_our_own_is_no_silence_of_the_server(shared: SharedState) -> None:
    link = ValkeyClient(shared.place)
    assert await link.read("return 1") == 1
    asked = [
        asyncio.ensure_future(link.read(f"return {number}")) for number in range(40)
    ]  # more than there are connections
    await asyncio.sleep(0)
    time.sleep(2 * TIMEOUT_SECONDS)  # noqa: ASYNC251 - the loop stands still, as on a machine that is busy with something else
    assert await asyncio.gather(*asked) == [*range(40)]
    await link.close()
