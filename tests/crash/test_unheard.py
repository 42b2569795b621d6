"""A proxy is killed while answers wait in it, and its runners ask anew: no write is repeated, in
one process, two, or a fleet.

``make soak`` kills a thousand times. ``-rP`` shows the counts.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.peers import NUMBER, Books, RecordingService
from tests.crash.test_crash import SEED
from tests.crash.unheard import AGENT, TalkativeModel, UnheardRounds
from tests.peers import Provider
from tests.proxy.pod import Pod, pod_at
from tests.proxy.worker_pair import workers
from tests.state.server import shared_state
from tests.waiting import eventually, free_port

KILLS = int(os.environ.get("CLAW_CRASHES", "15"))
"""Kills of all three kinds of proxies together; each has a third."""
NARROW = Path(__file__).parent.parent / "proxy" / "narrow.py"
_SHARE = -(-KILLS // 3)
_REPLICAS = 2


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """Yield a pod with one agent, whose proxy is not started."""
    books = Books()
    provider, service = Provider(model=TalkativeModel(books)), RecordingService(books=books)
    with pod_at(tmp_path, provider, service, script=NARROW) as made:
        made.agent(AGENT, made.tool("trade", "POST", schema=NUMBER))
        yield made


def play(
    name: str, pod: Pod, proxies: list[Pod], kill: object = None, restart: object = None
) -> None:
    model = pod.provider.model
    assert isinstance(model, TalkativeModel)
    conversation = UnheardRounds(
        name, f"{SEED}/{name}", proxies, model, kill or _kill, restart or Pod.start
    )  # type: ignore[arg-type]
    tally = conversation.play(_SHARE)
    print(f"{name}: {tally}, seed {SEED}")
    assert tally.cut
    assert tally.repeated == 0


def _kill(pod: Pod) -> int:
    pod.kill()
    return 1


@pytest.mark.timeout(60 + 10 * _SHARE)
@pytest.mark.requirement("crash:unheard")
def test_one_process_is_killed_while_answers_wait_in_it(pod: Pod) -> None:
    pod.start()
    play("one", pod, [pod])


@pytest.mark.timeout(60 + 10 * _SHARE)
@pytest.mark.requirement("crash:unheard")
@pytest.mark.requirement("workers:at-most-once")
def test_workers_are_killed_while_answers_wait_in_them(pod: Pod) -> None:
    """One of them, whose place its supervisor fills, or all with their supervisor."""
    pod.workers = 2
    pod.start()
    chance = random.Random(SEED)

    def kill(_pod: Pod) -> int:
        pids = workers(pod)
        if chance.random() < 0.5:
            os.kill(chance.choice(pids), signal.SIGKILL)
            return 1
        assert pod.process is not None
        pod.process.send_signal(signal.SIGSTOP)  # so that it replaces none
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        pod.kill()
        return len(pids)

    def restart(_pod: Pod) -> None:
        assert pod.process is not None
        if pod.process.poll() is not None:
            pod.start()
        eventually(pod._ready, "a worker is ready")

    play("two", pod, [pod], kill, restart)


@pytest.mark.timeout(60 + 10 * _SHARE)
@pytest.mark.requirement("crash:unheard")
@pytest.mark.requirement("fleet:killed")
def test_proxies_of_a_fleet_are_killed_while_answers_wait_in_them(pod: Pod) -> None:
    with contextlib.ExitStack() as running:
        state = running.enter_context(shared_state(pod.home / "state"))
        pod.environment |= {
            "CLAW_CONTEXT_ROOT": str(pod.home / "context"),
            "CLAW_AUTH_DIR": str(pod.home / "auth"),
            "CLAW_STATE": state.url,
        }
        proxies = []
        for number in range(_REPLICAS):
            home = pod.home / f"p{number}"
            home.mkdir()
            proxy = replace(pod, home=home, clients=contextlib.ExitStack())
            proxy.port, proxy.proxy_port = free_port(), free_port()
            running.callback(proxy.stop)
            proxy.start()
            proxies.append(proxy)
        play("fleet", pod, proxies)
