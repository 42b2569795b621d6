"""Live turns whose runners come back to another worker of their proxy (docs/spec/live.md section 9).

The kernel deals connections out, so a test asks until the other worker was reached.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, Reply, text
from tests.proxy.live_pod import BUYS, Scene, managed_events, start_live
from tests.proxy.live_runners import WIRES, BrokenReply, RawRunner
from tests.proxy.pod import Pod, pod_at
from tests.waiting import eventually
from tests.wires import Body, ReplyContent, responses

MAX_TRIES = 50
BOUGHT = Reply("Bought one for you.")


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with pod_at(tmp_path_factory.mktemp("workers"), workers=2) as pod:
        pod.environment["CLLAMA_LIVE_FIRST_MS"] = "100"
        start_live(pod)
        yield pod


@pytest.fixture(params=WIRES)
def scenes(request: pytest.FixtureRequest, two_workers: Pod) -> Iterator[Scene]:
    """Return the scenes of as many tries as a test needs."""
    two_workers.provider.forget_script()

    def tries() -> Iterator[Scene]:
        for _ in range(MAX_TRIES):
            two_workers.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
            yield Scene(two_workers, request.param)
        pytest.fail("the kernel deals connections out among the workers")

    return tries()


def waits(runner: RawRunner) -> bool:
    """Return whether a runner waits for another worker's turn; it has joined one otherwise."""

    def begins() -> bool:
        assert runner.error is None, runner.error
        return bool(runner.stream)

    eventually(begins, "its stream begins")
    return b"waiting=turn" in runner.stream or runner.stream.startswith(b"event: ping")


@pytest.mark.requirement("live:elsewhere")
def test_a_request_that_reaches_another_worker_while_its_turn_runs_waits_for_the_answer(
    scenes: Iterator[Scene],
) -> None:
    for scene in scenes:
        tool = DelayedAnswer(JSONResponse({"order": 1}))
        scene.pod.service.routes["POST", "/trade"] = tool
        scene.says(BUYS, BOUGHT)
        first = scene.ask()
        first.hears(BUYS.text)
        assert tool.asked.wait(60)
        second = scene.ask()
        was_elsewhere = waits(second)
        assert second.status == 200
        tool.go.set()
        answer = ReplyContent(f"{BUYS.text}{scene.glue}{BOUGHT.text}")
        assert scene.said(first) == scene.said(second) == answer
        assert managed_events(second) == []
        assert len(scene.writes) == 1
        assert len(scene.sent) == 2
        if was_elsewhere:
            break


@pytest.mark.requirement("live:goes-on-elsewhere")
@pytest.mark.parametrize("holds", [False, True])
def test_a_turn_that_was_cut_at_one_worker_goes_on_at_the_other(
    scenes: Iterator[Scene], *, holds: bool
) -> None:
    """``holds``: the runner sends what it has of the answer."""
    for scene in scenes:
        broken = BrokenReply(BOUGHT, "one")
        broken.release_all()
        scene.says(BUYS, broken)
        runner = scene.ask()
        assert runner.end() == "cut"
        cut = scene.ended()

        scene.says(text("It is done."))
        messages = [held(scene, runner.text)] if holds else []
        again = scene.said(scene.ask(body=scene.request(*messages)))
        first = "" if holds else f"{BUYS.text}{scene.glue}"
        assert again.text.strip() == f"{first}It is done."
        assert len(scene.writes) == 1
        ended = scene.ended(2)
        assert ended["turn_id"] == cut["turn_id"]
        if ended["worker"] != cut["worker"]:
            break


def held(scene: Scene, words: str) -> Body:
    """Return an assistant's message that a runner makes of what it was shown."""
    if scene.wire is responses:
        return responses.message(words, "msg_held")
    return {"role": "assistant", "content": words}
