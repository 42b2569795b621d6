"""Live turns of a proxy with two workers: the kernel decides which one a request comes to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers import Gated, Reply, text
from tests.proxy.live_pod import BUYS, Scene, managed_events, start_live
from tests.proxy.live_runners import Broken, Play, RawRunner
from tests.proxy.pod import Pod, pod_at
from tests.proxy.worker_pair import PAIR, lines
from tests.waiting import eventually
from tests.wires import Said

ATTEMPTS = 40  # It would be odd if the kernel gave them all to one worker


@pytest.fixture(scope="module")
def live_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a live pod with two workers."""
    with pod_at(tmp_path_factory.mktemp("pod"), workers=len(PAIR)) as pod:
        pod.environment["CLLAMA_LIVE_FIRST_MS"] = "100"
        start_live(pod)
        yield pod


def waits(runner: RawRunner) -> bool:
    return b"claw waiting=turn" in runner.stream or b"event: ping" in runner.stream


@pytest.mark.requirement("live:joins-at-another-worker")
def test_a_second_runner_at_another_worker_waits_and_gets_the_same_answer(scene: Scene) -> None:
    first, last = Gated(BUYS), Gated(Reply("Bought one."))
    scene.says(first, last)
    runner = scene.ask()
    Play(runner).words(first)
    assert last.asked.wait(60)

    joiners: list[RawRunner] = []
    while not ({joiner.text for joiner in joiners} >= {"", BUYS.text}):
        assert len(joiners) < ATTEMPTS, "the kernel deals connections out among the workers"
        joiner = scene.ask()
        joiners.append(joiner)
        eventually(lambda joiner=joiner: joiner.text or waits(joiner), "it has words or a beat")
    waiting = next(joiner for joiner in joiners if not joiner.text)
    assert waiting.status == 200

    last.release_all()
    said = Said(f"{BUYS.text}{scene.glue}Bought one.")
    for each in (runner, *joiners):
        assert scene.said(each) == said
        assert managed_events(each) == []
    assert len(scene.sent) == 2
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:resumes-at-another-worker")
def test_a_turn_that_was_cut_goes_on_at_another_worker(scene: Scene) -> None:
    scene.says(BUYS)
    before = lines(scene.pod)
    attempts = 0
    while not all(now > then for now, then in zip(lines(scene.pod), before, strict=True)):
        attempts += 1
        assert attempts < ATTEMPTS, "the kernel deals connections out among the workers"
        broken = Broken(Reply("Bought one."), "Bought")
        broken.release_all()
        scene.says(broken)
        runner = scene.ask()
        assert runner.end() == "cut"
        assert runner.text == f"{BUYS.text}{scene.glue}Bought "
        scene.recorded(attempts)

    scene.says(text("It is done."))
    runner = scene.ask()
    assert scene.said(runner) == Said(f"{BUYS.text}{scene.glue}It is done.")
    assert len(scene.writes) == 1
    assert len(scene.sent) == attempts + 2
