"""Live turns during which tools, settings and script change (docs/spec/live.md sections 8, 12)."""

from __future__ import annotations

from itertools import product

import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, GatedReply, Reply, text
from tests.proxy.live_pod import LOOKS, Scene, managed_events
from tests.proxy.live_runners import WIRES, RawRunner
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.wires import ReplyContent

VERSIONS = ("HTTP/1.1", "HTTP/2")


def until_have(reply: GatedReply) -> None:
    """Let a reply come up to the word "have"."""
    eventually(lambda: reply.events, "the provider is asked")
    reply.release(next(at for at, each in enumerate(reply.events) if b"have" in each) + 1)


@pytest.mark.requirement("live:reloaded")
def test_turns_that_flow_keep_their_tools_through_new_tools_a_new_script_and_new_settings(
    pod: Pod,
) -> None:
    source = pod.own_script().read_text(encoding="utf-8")
    balance, trade = pod.balance_and_trade()
    pod.agent("analyst", balance, trade, stream="live")
    tool = DelayedAnswer(JSONResponse({"usd": 50}))
    pod.service.routes["GET", "/balance"] = tool
    pod.environment["CLLAMA_LIVE_FIRST_MS"] = "100"
    pod.start()

    begun: list[tuple[Scene, RawRunner, GatedReply]] = []
    for protocol, version in product(WIRES, VERSIONS):
        scene, reply = Scene(pod, protocol), GatedReply(LOOKS)
        scene.says(reply)
        runner = scene.ask(version)
        until_have(reply)
        runner.hears("Let me have ")
        begun.append((scene, runner, reply))

    pod.agent("analyst", trade, stream="live", preamble="hide")  # 36
    pod.reload()
    pod.set_options(source, cllama_time_line="on")
    new = Scene(pod, "chat")
    new.says(text("New."))
    assert new.said(new.ask()).text == "New."
    sent = new.sent[-1].json
    assert "Current time" in str(sent["messages"])
    assert {each["function"]["name"] for each in sent["tools"]} == {"desk__trade", "shell"}

    # The turn of the same request runs at the mediator of the old settings.
    late = [scene.ask(version) for (scene, _, _), version in zip(begun, VERSIONS, strict=False)]
    for runner in late:
        eventually(lambda runner=runner: b"waiting=turn" in runner.stream, "keepalives come")

    last = [GatedReply(Reply("You have 50 dollars.")) for _ in begun]
    for (scene, runner, reply), reads in zip(begun, last, strict=True):
        scene.says(reads)
        tool.asked.clear()
        reply.release_all()
        assert tool.asked.wait(60), "the tool of the old policy is called"
        runner.hears(LOOKS.text)
        tool.go.set()
        until_have(reads)
        runner.hears(f"{LOOKS.text}{scene.glue}You have ")
        reads.release_all()
        assert scene.said(runner) == ReplyContent(f"{LOOKS.text}{scene.glue}You have 50 dollars.")
        assert managed_events(runner) == []
        assert "desk__balance" in str(pod.provider.received[-1].json["tools"])
        assert "Current time" not in str(pod.provider.received[-1].json)
    for (scene, runner, _), again in zip(begun, late, strict=False):
        assert scene.said(again) == scene.said(runner)
    assert {entry["status"] for entry in pod.history("analyst")} == {"ok"}
    assert len(pod.history("analyst")) == len(begun) + 1
    assert "Traceback" not in pod.said()
