"""Live streaming with real parts: the real mitmdump, the real SDKs, and a provider that says the
next word only when the runner has reported the last one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.peers import Gated, Reply, calls
from tests.proxy.live_runners import RUNNERS, WIRES, LiveRunner, Play
from tests.proxy.pod import Pod
from tests.wires import Made

SHELL = Made("call_n", "shell", '{"cmd": "ls"}')
MANAGED = ("call_m", "desk__balance", {})


@pytest.fixture
def live(pod: Pod) -> Pod:
    """Return a running pod whose agent ``analyst`` streams live."""
    pod.agent("analyst", *pod.balance_and_trade(), stream="live")
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50})
    pod.start()
    return pod


def request(runner: str, words: str = "How am I doing?") -> dict[str, Any]:
    """Return a request with a native tool, in the form that SDKs with stream helpers take."""
    wire = WIRES[runner.split()[0]]
    body = wire.request([wire.user(words)], ["shell"], stream=False, more={})
    for entry in body["tools"]:
        strict = {"type": "object", "properties": {}, "additionalProperties": False}
        if "function" in entry:
            entry["function"] |= {"strict": True, "parameters": strict}
    return body


@pytest.mark.requirement("live:word-by-word")
@pytest.mark.parametrize("runner", RUNNERS)
def test_each_word_is_there_before_the_provider_says_the_next(live: Pod, runner: str) -> None:
    first = Gated(calls(MANAGED, words="Let me have a look."))
    last = Gated(Reply("You have 50 dollars.", (SHELL,)))
    live.provider.says(first, last)
    hears = LiveRunner.start(live, runner, request(runner))
    play = Play(hears)
    play.words(first)
    play.words(last)

    said = hears.wire.said(json.dumps(hears.outcome()).encode())
    assert said.text == f"Let me have a look.{play.glue}You have 50 dollars."
    assert [(call.name, json.loads(call.arguments)) for call in said.calls] == [
        ("shell", {"cmd": "ls"})
    ]
