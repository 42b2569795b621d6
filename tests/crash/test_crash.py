"""SIGKILL at every step: the conversation goes on, and no write is made twice
(docs/decisions/0015-at-most-once.md).

``make soak`` dies a thousand times, each time with another seed. A failure names its seed and its
conversation:

    CLAW_CRASH_SEED=1 CLAW_CRASH_CONVERSATION=a7 pytest tests/crash
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anthropic
import openai
import pytest

from tests.crash.conversation import WITHOUT, CrashConversation, pick_kill_points
from tests.crash.faults import WITH_IDS, WITHIN, KillPoint
from tests.crash.peers import Books, PlanModel, RecordingService
from tests.peers import Provider

DEATHS = int(os.environ.get("CLAW_CRASHES", "100"))
_OF_WORKERS = 2 * int(os.environ.get("CLAW_CRASHES", "50"))
SEED = os.environ.get("CLAW_CRASH_SEED", "1")
ONLY = os.environ.get("CLAW_CRASH_CONVERSATION")
_A_CONVERSATION = 10
REAL = (
    "before record_intent",
    "behind record_intent",
    "the service hears",
    "the service has done it",
    "behind record_result",
    "before end",
    "before mark_delivered",
    "before a chunk",
    "behind a chunk",
    "the runner hears",
)
"""The points at which the real proxy dies; few, because a start of mitmdump costs a
hundred times as much as a fork.
"""
_AT_ONCE = 20


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Provider, RecordingService]]:
    books = Books()
    provider, service = Provider(model=PlanModel(books)), RecordingService(books=books)
    provider.start()
    service.start()
    yield provider, service
    provider.stop()
    service.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the SDKs' waits before their own retries."""
    for base in (openai._base_client, anthropic._base_client):
        monkeypatch.setattr(base, "INITIAL_RETRY_DELAY", 0.1)
        monkeypatch.setattr(base, "MAX_RETRY_DELAY", 0.4)


@pytest.mark.timeout(60 + DEATHS)
@pytest.mark.requirement("crash:at-most-once", "live:killed")
@pytest.mark.requirement("mcp:at-most-once")
@pytest.mark.requirement("crash:goes-on")
@pytest.mark.requirement("audit:verify-benign")
def test_a_proxy_dies_again_and_again_and_no_write_is_made_twice(
    tmp_path: Path, world: tuple[Provider, RecordingService]
) -> None:
    numbers = [int(ONLY.removeprefix("a"))] if ONLY else range(-(-DEATHS // _A_CONVERSATION))
    conversations = [
        CrashConversation(
            f"a{number}",
            f"{SEED}/a{number}",
            tmp_path / f"a{number}",
            *world,
            pick_kill_points(SEED, number, _A_CONVERSATION),
        )
        for number in numbers
    ]
    _play(conversations)
    died = set(_died(conversations))
    deaths = sum(conversation.proxy.deaths for conversation in conversations)
    print(f"{deaths} deaths at {len(died)} points, seed {SEED}")
    assert deaths == sum(len(conversation.kill_points) for conversation in conversations)
    if not ONLY:
        assert not {*WITHIN, *WITH_IDS, *WITHOUT} - died, "every point was died at"


@pytest.mark.requirement("crash:at-most-once", "live:killed")
@pytest.mark.requirement("mcp:at-most-once")
@pytest.mark.requirement("crash:goes-on")
def test_the_real_proxy_dies_at_the_steps_that_matter_and_no_write_is_made_twice(
    tmp_path: Path, world: tuple[Provider, RecordingService]
) -> None:
    conversations = [
        CrashConversation(
            name,
            f"{SEED}/{name}",
            tmp_path / name,
            *world,
            [KillPoint(point, 1) for point in points],
        )
        for name, points in (
            ("m1", REAL[::2]),
            ("m4", REAL[1::2]),
        )  # Messages over MCP, and a conversation
    ]
    _play(conversations, lambda conversation: conversation.play(real=True))
    assert sorted(_died(conversations)) == sorted([*REAL, *WITH_IDS])


@pytest.mark.timeout(60 + _OF_WORKERS)
@pytest.mark.requirement("workers:at-most-once")
@pytest.mark.requirement("crash:at-most-once", "live:killed")
def test_workers_die_again_and_again_and_no_write_is_made_twice(
    tmp_path: Path, world: tuple[Provider, RecordingService]
) -> None:
    deaths = 2 * _A_CONVERSATION
    names = [ONLY] if ONLY else [f"w{number}" for number in range(max(1, _OF_WORKERS // deaths))]
    conversations = [
        CrashConversation(name, f"{SEED}/{name}", tmp_path / name, *world, []) for name in names
    ]
    _play(conversations, lambda conversation: conversation.play_with_workers(deaths))
    assert len(_died(conversations)) >= deaths * len(conversations)


def _died(conversations: list[CrashConversation]) -> list[str]:
    """Return the points at which their proxies died."""
    return [
        line
        for conversation in conversations
        for line in (conversation.home / "died").read_text(encoding="utf-8").splitlines()
    ]


def _play(
    conversations: list[CrashConversation],
    run: Callable[[CrashConversation], None] = CrashConversation.play,
) -> None:
    failed: list[str] = []

    def play(conversation: CrashConversation) -> None:
        try:
            run(conversation)
        except BaseException:  # noqa: BLE001 - reported with the variables that repeat it
            failed.append(
                f"CLAW_CRASH_SEED={SEED} CLAW_CRASH_CONVERSATION={conversation.name}\n{traceback.format_exc()}"
            )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(play, conversations))
    assert not failed, "\n".join(failed)
