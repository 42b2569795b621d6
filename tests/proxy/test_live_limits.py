"""The longest time of live replies in the real process (docs/spec/live.md section 8)."""

from __future__ import annotations

import pytest

from tests.peers import GatedReply, Reply
from tests.proxy.live_pod import BUYS, Scene

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000", "CLLAMA_LIVE_MAX_MS": "1000"}
SAYS = Reply("One two three.")


@pytest.mark.requirement("live:max-in-process")
def test_a_reply_that_flows_too_long_is_cut_and_the_same_request_gets_the_rest(
    scene: Scene,
) -> None:
    gated = GatedReply(SAYS)
    scene.says(BUYS, gated)
    runner = scene.ask()
    assert gated.asked.wait(60)
    gated.release(next(at for at, each in enumerate(gated.events) if b"One" in each) + 1)
    assert runner.end() == "cut"
    assert runner.text == f"{BUYS.text}{scene.glue}One "
    assert scene.ended()["error"] == "live_max_exceeded"
    assert [(each["where"], each["code"]) for each in scene.log("live_cut")] == [
        ("text", "live_max_exceeded")
    ]
    assert gated.left.wait(60), "the provider's connection is closed"

    scene.says(SAYS)
    assert scene.said(scene.ask()).text == f"{BUYS.text}{scene.glue}{SAYS.text}"
    assert len(scene.writes) == 1
