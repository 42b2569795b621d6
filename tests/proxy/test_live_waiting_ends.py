"""A proxy that is stopped while a request waits there for the turn of another proxy, which has the
same state (docs/spec/live.md sections 8 and 9).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, Reply
from tests.proxy.live_pod import BUYS, Scene, managed_events, start_live
from tests.proxy.live_runners import WIRES, RawRunner
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.wires import ReplyContent

BOUGHT = Reply("Bought one for you.")


@pytest.fixture
def other(pod: Pod, tmp_path: Path) -> Iterator[Pod]:
    """Yield another proxy with the state and the peers of the first one."""
    home = tmp_path / "other"
    home.mkdir()
    made = Pod(home, pod.provider, pod.service)
    made.environment |= {"CLAW_STATE": str(pod.home / "state.db"), "CLLAMA_DRAIN_MS": "100"}
    made.environment["CLLAMA_LIVE_FIRST_MS"] = "100"
    yield made
    made.stop()


@pytest.mark.requirement("live:drain", "live:elsewhere")
def test_a_request_that_waits_for_another_proxys_turn_is_told_when_its_own_proxy_stops(
    pod: Pod, other: Pod
) -> None:
    start_live(pod)
    start_live(other)
    begun: list[tuple[Scene, RawRunner, DelayedAnswer]] = []
    waiting: list[tuple[Scene, RawRunner]] = []
    for protocol in WIRES:
        tool = DelayedAnswer(JSONResponse({"order": 1}))
        pod.service.routes["POST", "/trade"] = tool
        scene = Scene(pod, protocol)
        scene.says(BUYS)
        runner = scene.ask()
        runner.hears(BUYS.text)
        assert tool.asked.wait(60)
        begun.append((scene, runner, tool))

        elsewhere = Scene(other, protocol, scene.number)
        waiting.append((elsewhere, elsewhere.ask()))
    for _, runner in waiting:
        eventually(lambda: bool(runner.stream), "its stream begins, and waits")  # noqa: B023 - called at once

    assert other.process is not None
    other.process.send_signal(signal.SIGTERM)
    for scene, runner in waiting:
        assert "is being stopped" in scene.error(runner)["message"]
        assert managed_events(runner) == []
    assert other.process.wait(timeout=60) == 0
    assert "Traceback" not in other.said()

    begun[0][0].says(BOUGHT, BOUGHT, BOUGHT)
    for scene, runner, tool in begun:
        tool.go.set()
        answer = ReplyContent(f"{BUYS.text}{scene.glue}{BOUGHT.text}")
        assert scene.said(runner) == answer
    assert len(begun[0][0].writes) == len(begun)
