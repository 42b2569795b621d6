"""Live streaming with real parts: the real mitmdump, the real SDKs, and a provider that says the
next word only when the runner has reported the last one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, GatedReply, Reply, calls
from tests.proxy.live_runners import RUNNERS, WIRES, LivePlayback, LiveRunner, RawRunner
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.wires import MadeCall

SHELL = MadeCall("call_n", "shell", '{"cmd": "ls"}')
MANAGED = ("call_m", "desk__balance", {})


@pytest.fixture
def live(pod: Pod) -> Pod:
    """Return a running pod whose agent ``analyst`` streams live."""
    pod.agent("analyst", *pod.balance_and_trade(), stream="live")
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50})
    pod.environment["CLLAMA_LIVE_FIRST_MS"] = "300"
    pod.start()
    return pod


def request(runner: str, words: str = "How am I doing?") -> dict[str, Any]:
    """Return a request with a native tool, in the form that SDKs with stream helpers take."""
    wire = WIRES[runner.partition(" ")[0]]
    body = wire.request([wire.user(words)], ["shell"], stream=False, more={})
    for entry in body["tools"]:
        strict = {"type": "object", "properties": {}, "additionalProperties": False}
        if "function" in entry:
            entry["function"] |= {"strict": True, "parameters": strict}
    return body


@pytest.mark.requirement("live:word-by-word")
@pytest.mark.parametrize("runner", RUNNERS)
def test_each_word_is_there_before_the_provider_says_the_next(live: Pod, runner: str) -> None:
    first = GatedReply(calls(MANAGED, words="Let me have a look."))
    last = GatedReply(Reply("You have 50 dollars.", (SHELL,)))
    live.provider.says(first, last)
    hears = LiveRunner.start(live, runner, request(runner))
    play = LivePlayback(hears)
    play.words(first)
    play.words(last)

    said = hears.wire.said(json.dumps(hears.outcome()).encode())
    assert said.text == f"Let me have a look.{play.glue}You have 50 dollars."
    assert [(call.name, json.loads(call.arguments)) for call in said.calls] == [
        ("shell", {"cmd": "ls"})
    ]


def is_managed(event: dict[str, Any]) -> bool:
    return any(name in json.dumps(event) for name in ("desk__", "desk.", "call_m"))


@pytest.mark.requirement("live:word-by-word", "live:one-lifecycle", "stream:keepalive")
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_streams_over_each_version_of_http_and_no_event_tells_of_a_managed_call(
    live: Pod, wire: str, version: str
) -> None:
    tool = DelayedAnswer(JSONResponse({"usd": 50}))
    live.service.routes["GET", "/balance"] = tool
    first = GatedReply(calls(MANAGED, words="Let me have a look."))
    last = GatedReply(Reply("You have 50 dollars.", (SHELL,)))
    live.provider.says(first, last)
    hears = RawRunner.ask(live, wire, request(wire), version)
    play = LivePlayback(hears)
    before = beats(hears)
    eventually(lambda: beats(hears) > before, "a keepalive comes before the first word")
    play.words(first)
    assert tool.asked.wait(60)
    before = beats(hears)
    eventually(lambda: beats(hears) > before + 1, "keepalives come while the tool runs")
    tool.go.set()
    play.words(last)

    assert hears.end() == "whole"
    said = hears.wire.said(hears.wire.assembled(hears.stream))
    assert said.text == f"Let me have a look.{play.glue}You have 50 dollars."
    assert said.calls == (SHELL,)
    assert [event for event in hears.events() if is_managed(event)] == []


def beats(runner: RawRunner) -> int:
    return runner.stream.count(b": claw ") + runner.stream.count(b"event: ping")
