"""The inventory of a state and its deletion, in a file as on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import batched

import pytest

from claw_state.continuity import MAX_BYTES, MAX_TURNS, Anchor, ContinuityStore
from claw_state.inventory import AgentState, DeletionCounts, RoundStats, StateInventory
from claw_state.journal import Journal, RequestFingerprint, StoredResponse
from claw_state.lease import LEASE_SECONDS, LeaseOwner
from claw_state.ownership import MAX_AGE_SECONDS, KeptObject, OwnershipStore
from claw_state.url import StoreError
from tests.search_size import scale_examples
from tests.state.conftest import Clock

type Stores = Callable[[], ContinuityStore]
type Ownerships = Callable[[], OwnershipStore]
type Journals = Callable[[LeaseOwner], Journal]
ELSEWHERE = LeaseOwner("elsewhere", 1, "b")
GIVEN = StoredResponse(200, "application/json", b"{}")
AGENTS = min(10_000, scale_examples(20_000))


async def keep(store: ContinuityStore, agent: str, key: str, messages: bytes) -> None:
    await store.save(agent, Anchor(key, ("before",)), "", messages)


async def begin(journal: Journal, agent: str, turn: str) -> None:
    assert await journal.begin(turn, agent, RequestFingerprint(turn, "earlier", "Buy", ""))
    await journal.record_response(turn, 1, b"reply")


async def found(store: ContinuityStore, agent: str, *keys: str) -> list[str]:
    return sorted(kept.anchor.key for kept in await store.find(agent, keys))


@pytest.mark.requirement("state:inventory")
async def test_the_entries_of_each_agent_are_counted_with_their_sizes_and_times(
    stores: Stores, journals: Journals, kept: StateInventory, clock: Clock
) -> None:
    store, journal = stores(), journals(ELSEWHERE)
    await keep(store, "analyst", "x", b"12345")
    clock.now = 2000.0
    await keep(store, "analyst", "y", b"1234567")
    await keep(store, "executor", "x", b"12")
    await keep(store, "executor", "y", b"")
    for turn in ("dies", "fails", "answered", "done", "done-too"):
        await begin(journal, "analyst", turn)
    clock.now += LEASE_SECONDS
    await begin(journal, "analyst", "runs")
    await begin(journal, "watcher", "left")
    await journal.abandon("left")
    await journal.end("fails", None)
    for turn in ("answered", "done", "done-too"):
        await journal.end(turn, GIVEN)
    for turn in ("done", "done-too"):
        await journal.mark_delivered(turn)
    told = kept.inventory()
    assert told.agents == (
        AgentState(
            "analyst",
            RoundStats(2, 12, 1000.0, 2000.0),
            {"running": 1, "cut_off": 1, "failed": 1, "answered": 1, "done": 2},
        ),
        AgentState("executor", RoundStats(1, 2, 2000.0, 2000.0, marks=1)),
        AgentState("watcher", RoundStats(), {"abandoned": 1}),
    )
    assert told.schema == 1
    assert kept.inventory() == told, "reading changes nothing"


@pytest.mark.requirement("state:forget")
async def test_all_of_an_agent_is_deleted_except_for_a_turn_that_runs(
    stores: Stores, journals: Journals, kept: StateInventory, clock: Clock
) -> None:
    store, journal = stores(), journals(ELSEWHERE)
    for number in range(50):
        await keep(store, "analyst", f"t{number}", b"hidden")
    await keep(store, "analyst", "mark", b"")
    await keep(store, "executor", "t1", b"hidden")
    for turn in ("dies", "fails", "done"):
        await begin(journal, "analyst", turn)
    await begin(journal, "executor", "another's")
    clock.now += LEASE_SECONDS
    await journal.end("fails", None)
    await journal.end("done", GIVEN)
    for turn in ("runs", "left"):
        await begin(journal, "analyst", turn)
    await journal.abandon("left")
    assert kept.forget("analyst") == DeletionCounts(rounds=50, marks=1, turns=3, running=2)
    assert await found(store, "analyst", *(f"t{number}" for number in range(50))) == []
    assert await found(store, "executor", "t1") == ["t1"]
    for turn in ("dies", "fails", "done"):
        assert await journal.find("analyst", RequestFingerprint(turn, "", "", "")) is None
        assert await journal.response(turn, 1) is None
    assert await journal.find("executor", RequestFingerprint("another's", "", "", "")) is not None
    await journal.record_intent("runs", 1, 0, b"intent")
    for turn in ("runs", "left"):
        await journal.end(turn, GIVEN)
    assert kept.forget("analyst") == DeletionCounts(rounds=0, marks=0, turns=2, running=0)
    assert kept.forget("analyst") is None
    assert [state.agent for state in kept.inventory().agents] == ["executor"]
    await keep(store, "analyst", "t1", b"new")
    await begin(journal, "analyst", "done")
    assert kept.inventory().agents[0] == AgentState(
        "analyst", RoundStats(1, 3, clock.now, clock.now), {"running": 1}
    ), "it begins anew"


@pytest.mark.requirement("state:inventory", "state:forget", "responses:owned-ids")
async def test_owned_ids_are_counted_and_forgotten(
    ownerships: Ownerships, kept: StateInventory, clock: Clock
) -> None:
    store = ownerships()
    for number in range(150):
        await store.save("analyst", KeptObject(f"resp_{number}", "resp", "openai"))
    clock.now += MAX_AGE_SECONDS / 2
    await store.save("executor", KeptObject("resp_of_executor", "resp", "openai"))
    assert kept.inventory().agents == (
        AgentState("analyst", owned=150),
        AgentState("executor", owned=1),
    )
    assert kept.forget("analyst") == DeletionCounts(0, 0, 0, 0, owned=150)
    assert kept.forget("analyst") is None
    assert [await store.find("analyst", f"resp_{number}") for number in (0, 149)] == [None, None]
    assert await store.find("executor", "resp_of_executor") is not None
    assert kept.inventory().agents == (AgentState("executor", owned=1),)


@pytest.mark.requirement("state:forget", "journal:lease")
async def test_a_proxy_that_was_believed_dead_makes_no_call_of_a_deleted_turn(
    journals: Journals, kept: StateInventory, clock: Clock
) -> None:
    journal = journals(ELSEWHERE)
    await begin(journal, "analyst", "slow")
    clock.now += LEASE_SECONDS
    assert kept.forget("analyst") == DeletionCounts(0, 0, 1, 0)
    with pytest.raises(StoreError):
        await journal.record_intent("slow", 1, 0, b"intent")
    await journal.renew_leases(["slow"])
    await journal.end("slow", GIVEN)
    await journal.mark_delivered("slow")
    assert kept.inventory().agents == ()


@pytest.mark.requirement("store:bounded")
async def test_of_thousands_of_agents_one_that_floods_takes_nothing_from_another(
    stores: Stores, kept: StateInventory, clock: Clock
) -> None:
    store = stores()
    for some in batched(range(AGENTS), 100):
        await asyncio.gather(
            *(keep(store, f"agent-{number:05}", "x", b"hidden") for number in some)
        )
    for number in range(MAX_TURNS + 20):
        clock.now += 1
        await keep(store, "flood", f"t{number}", b"flood")
    for number in range(12):
        clock.now += 1
        await keep(store, "large", f"t{number}", b"x" * (MAX_BYTES // 8 - 9))
    told = kept.inventory().agents
    assert [state.agent for state in told] == [
        *(f"agent-{number:05}" for number in range(AGENTS)),
        "flood",
        "large",
    ]
    assert {state.rounds for state in told[:AGENTS]} == {RoundStats(1, 6, 1000.0, 1000.0)}
    assert [(state.rounds.count, state.rounds.marks) for state in told[AGENTS:]] == [
        (MAX_TURNS, 20),
        (8, 4),
    ]
    assert await found(store, "agent-00471", "x") == ["x"]
