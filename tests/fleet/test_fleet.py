"""Three proxies, one state, one load balancer: turns move, proxies come and go, and no write is
repeated (decision 0036).

Each turn that a killed proxy leaves without an answer is a trial: it was at some step of its own.
``CLAW_FLEET_TRIALS`` says how many there are; ``make soak`` has two hundred.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from claw_audit.audit import AuditQuery, audit
from claw_audit.turns import RecordedCall
from claw_audit.verify import verify
from tests.fleet.conversation import AGENTS, Conversation, Runner
from tests.fleet.fleet import Fleet, fleet
from tests.proxy.test_broker import RawClient
from tests.waiting import eventually

# The SDK's pool may drop a socket that was reset while it was opened, unclosed. It is no request
# that was lost.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)

TRIALS = int(os.environ.get("CLAW_FLEET_TRIALS", "60"))
_AT_ONCE = max(40, TRIALS * 3 // 5)
"""Conversations under way while proxies are killed: each kill leaves about a third
of them without an answer.
"""
_PROGRESS = 25
"""The model's replies between two kills, so that each kill meets other steps."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the SDKs' waits before their own retries."""
    for base in (openai._base_client, anthropic._base_client):
        monkeypatch.setattr(base, "INITIAL_RETRY_DELAY", 0.1)
        monkeypatch.setattr(base, "MAX_RETRY_DELAY", 0.4)


def conversations(running: Fleet, name: str, number: int, **more: Any) -> list[Conversation]:
    """Return conversations of both agents in all ways; every eighth comes by the forward proxy."""
    runners = [Runner.of(running, agent, **more) for agent in AGENTS]
    unaware = [Runner.of(running, agent, forward=True, **more) for agent in AGENTS]
    return [
        Conversation(
            each,
            running,
            unaware[each // 8 % 2] if each % 8 == 0 else runners[each // 4 % 2],
            name,
        )
        for each in range(number)
    ]


def check(running: Fleet, talks: Sequence[Conversation]) -> None:
    """Check the books of all conversations against the histories of all proxies,
    which count as one.
    """
    ids = [turn_id for talk in talks for turn_id in talk.turn_ids()]
    assert len(set(ids)) == len(ids)
    lines = [line for proxy in running.history() for line in proxy]
    assert set(ids) <= {line["turn_id"] for line in lines if line["status"] == "ok"}
    assert [verdict.findings[0] for verdict in verify(running.histories()) if verdict.broken] == []
    rows: list[RecordedCall] = []
    found = audit(AuditQuery(running.histories()), on_call=rows.append)
    assert found.turns.total == len({line["turn_id"] for line in lines})
    mine = set(ids)
    trades = [
        row
        for row in rows
        if row.tool == "desk.trade" and row.status == "ok" and row.turn_id in mine
    ]
    books = running.model.books
    done = [
        order
        for talk in talks
        for order in talk.all_orders()
        if order in books.writes and json.loads(books.told[order].content)["ok"]
    ]
    assert len(trades) == len(done)


@pytest.mark.requirement("fleet:moves", "live:fleet")
@pytest.mark.requirement("fleet:entrances")
def test_turns_of_a_conversation_move_between_proxies_and_nothing_is_forgotten(
    running: Fleet,
) -> None:
    talks = conversations(running, "m", 10)
    with ThreadPoolExecutor(len(talks)) as pool:
        list(pool.map(lambda talk: talk.go_on(4), talks))
    check(running, talks)
    assert all(running.history()), "every proxy has served some"


@pytest.mark.requirement("fleet:rolling", "live:fleet")
@pytest.mark.requirement("fleet:sessions")
def test_a_rolling_restart_under_load_costs_no_request(running: Fleet) -> None:
    """With the retries that the SDKs have by default, and without one turn that is cut off."""
    session = RawClient(running.pod, "native").open()
    assert {session.ask("tools/list").status_code for _ in range(6)} == {200}, (
        "it stays with its proxy"
    )
    talks, over = conversations(running, "r", 20), threading.Event()
    running.model.longest = 0.3
    before = running.balancer.interrupted()
    with ThreadPoolExecutor(len(talks)) as pool:
        going = [pool.submit(talk.go_on, 1, over) for talk in talks]
        try:
            assert [running.restart(number) for number, _ in enumerate(running.proxies)] == [
                0
            ] * len(running.proxies)
        finally:
            over.set()
        for each in going:
            each.result()
    check(running, talks)
    assert running.balancer.interrupted() == before
    assert session.ask("tools/list").status_code == 404
    again = RawClient(running.pod, "native").open()
    assert again.call("desk__balance", {"order": "r0.99.1.1", "number": 1})[
        "structuredContent"
    ] == {"order": "r0.99.1.1"}


@pytest.mark.requirement("fleet:killed", "live:fleet")
@pytest.mark.timeout(300)
def test_proxies_are_killed_again_and_again_and_no_write_is_made_twice(running: Fleet) -> None:
    talks, over = conversations(running, "k", _AT_ONCE, max_retries=20), threading.Event()
    running.model.longest = 0.9
    before, chance = running.balancer.interrupted(), random.Random(3)
    with ThreadPoolExecutor(len(talks)) as pool:
        going = [pool.submit(talk.go_on, 1, over) for talk in talks]
        try:
            for proxy in itertools.cycle(running.proxies):
                heard = len(running.pod.provider.received) + _PROGRESS + chance.randrange(20)
                eventually(
                    lambda: (
                        len(running.pod.provider.received) >= heard  # noqa: B023
                        or any(each.done() for each in going)
                    ),
                    "turns go on",
                )
                proxy.kill()
                proxy.start()
                if running.balancer.interrupted() - before >= TRIALS:
                    break
        finally:
            over.set()
        for each in going:
            each.result()
    trials = running.balancer.interrupted() - before
    in_part = sum(talk.shown_in_part for talk in talks if talk.is_live)
    print(f"{trials} turns were interrupted, {in_part} after a live stream had shown something")
    check(running, talks)
    assert trials >= TRIALS
    assert in_part >= TRIALS // 20
    assert any(line["resumed"] for proxy in running.history() for line in proxy)
