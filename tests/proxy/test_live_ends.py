"""Live turns when their proxy is stopped or killed, and what their runners find at the next one
(docs/spec/live.md sections 8 and 9).
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

import httpx2
import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, GatedReply, Reply, text
from tests.proxy.live_pod import BUYS, LISTS, Scene, managed_events, start_live
from tests.proxy.live_runners import WIRES, RawRunner
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually
from tests.wires import Body, ReplyContent, responses

VERSIONS = ("HTTP/1.1", "HTTP/2")
BOUGHT = Reply("Bought one for you.")
HALF = "Bought one "
DONE = text("It is done.")


@dataclass
class TradingTurn:
    """A turn that has traded and says so, or is about to."""

    scene: Scene
    runner: RawRunner
    reply: GatedReply
    version: str

    @property
    def known(self) -> str:
        """Return the text of the reply that is recorded."""
        return f"{BUYS.text}{self.scene.glue}"

    def asks_again(self, *messages: Body) -> RawRunner:
        """Send the request again; ``messages``: what the runner adds at its end."""
        return self.scene.ask(self.version, body=self.scene.request(*messages))


def trades(pod: Pod, protocol: str, version: str, *, in_text: bool = True) -> TradingTurn:
    """Begin a turn that trades; ``in_text``: its next reply stops within its text."""
    scene, reply = Scene(pod, protocol), GatedReply(BOUGHT)
    scene.says(BUYS, reply)
    runner = scene.ask(version)
    begun = TradingTurn(scene, runner, reply, version)
    eventually(lambda: reply.events, "the second reply is asked for")
    if in_text:
        last = next(at for at, each in enumerate(reply.events) if b"one" in each)
        reply.release(last + 1)
    runner.hears(begun.known + HALF if in_text else BUYS.text)
    return begun


def waits_for_a_tool(pod: Pod, protocol: str, version: str) -> tuple[TradingTurn, DelayedAnswer]:
    """Begin a turn whose write is under way, behind the words of its first reply."""
    scene, tool = Scene(pod, protocol), DelayedAnswer(JSONResponse({"order": 1}))
    pod.service.routes["POST", "/trade"] = tool
    scene.says(BUYS)
    runner = scene.ask(version)
    assert tool.asked.wait(60)
    runner.hears(BUYS.text)
    return TradingTurn(scene, runner, GatedReply(BOUGHT), version), tool


def ready(pod: Pod) -> None:
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    start_live(pod)


def stops(pod: Pod) -> None:
    assert pod.process is not None
    pod.process.send_signal(signal.SIGTERM)


def ends(pod: Pod) -> int:
    assert pod.process is not None
    return pod.process.wait(timeout=60)


def held(scene: Scene, words: str) -> Body:
    """Return an assistant's message that a runner makes of what it was shown."""
    if scene.wire is responses:
        return responses.message(words, "msg_held")
    return {"role": "assistant", "content": words}


def trades_made(pod: Pod) -> int:
    return sum(each.path == "/trade" for each in pod.service.received)


@pytest.mark.requirement("live:drain")
def test_a_turn_that_flows_when_the_proxy_stops_has_the_time_of_the_drain(pod: Pod) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "60000"
    ready(pod)
    begun = [trades(pod, protocol, version) for protocol in WIRES for version in VERSIONS]
    stops(pod)
    eventually(lambda: httpx2.get(f"{pod.url}/ready").status_code == 503, "it stops")
    new = {
        wire.PATH: httpx2.post(
            pod.url + wire.PATH,
            json=wire.request([wire.user("New?")], [], stream=True, more={}),
            headers=headers(pod, "analyst"),
        )
        for wire in WIRES.values()
    }
    assert {(each.status_code, each.headers["retry-after"]) for each in new.values()} == {
        (503, "5")
    }
    for each in begun:
        each.reply.release_all()
    for each in begun:
        assert each.scene.said(each.runner) == ReplyContent(each.known + BOUGHT.text)
        assert managed_events(each.runner) == []
    assert ends(pod) == 0
    assert trades_made(pod) == len(begun)
    assert {entry["status"] for entry in pod.history("analyst")} == {"ok"}
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("live:drain")
def test_a_turn_that_outlives_the_drain_is_cut_and_goes_on_at_the_next_proxy(pod: Pod) -> None:
    pod.environment |= {"CLLAMA_DRAIN_MS": "300", "CLLAMA_LIVE_FIRST_MS": "60000"}
    ready(pod)
    begun = [trades(pod, protocol, version) for protocol in WIRES for version in VERSIONS]
    unshown = Scene(pod, "chat")
    silent = GatedReply(LISTS)
    unshown.says(silent)
    waiting = unshown.ask()
    assert silent.asked.wait(60)
    stops(pod)
    for each in begun:
        assert each.runner.end() == "cut"
        assert each.runner.text == each.known + HALF
        assert managed_events(each.runner) == []
    assert waiting.end() == "whole"
    assert (waiting.status, waiting.headers["retry-after"]) == (503, "5")
    assert json.loads(waiting.stream)["error"]["code"] == "shutting_down"
    assert ends(pod) == 0
    cuts = [event for event in pod.log() if event["type"] == "live_cut"]
    assert [(cut["where"], cut["code"]) for cut in cuts] == [("text", "shutting_down")] * len(begun)

    for each in begun:
        each.reply.release_all()
    silent.release_all()
    pod.start()
    for each in begun:
        each.scene.says(DONE)
        again = each.asks_again()
        assert each.scene.said(again) == ReplyContent(f"{each.known}It is done.")
        assert managed_events(again) == []
    assert trades_made(pod) == len(begun)
    entries = pod.history("analyst")
    cut_turns = [entry["turn_id"] for entry in entries if entry.get("response", {}).get("shown")]
    resumed = [entry["turn_id"] for entry in entries if entry.get("resumed")]
    assert sorted(resumed) == sorted(cut_turns)
    assert len(resumed) == len(begun)


@pytest.mark.requirement("live:killed-proxy")
def test_turns_whose_proxy_was_killed_go_on_and_nothing_that_is_held_is_shown_twice(
    pod: Pod,
) -> None:
    ready(pod)
    in_text = [trades(pod, protocol, version) for protocol in WIRES for version in VERSIONS]
    holding = [trades(pod, protocol, "HTTP/1.1") for protocol in WIRES]
    between = [trades(pod, protocol, "HTTP/1.1", in_text=False) for protocol in WIRES]
    in_tool = [waits_for_a_tool(pod, protocol, "HTTP/1.1") for protocol in WIRES]
    all_begun = [*in_text, *holding, *between, *(each for each, _ in in_tool)]
    pod.kill()
    for each in all_begun:
        assert each.runner.end() == "cut"
        each.reply.release_all()
    for _, tool in in_tool:
        tool.go.set()

    pod.start()
    for each in [*in_text, *between]:
        each.scene.says(DONE)
        assert each.scene.said(each.asks_again()) == ReplyContent(f"{each.known}It is done.")
    for each in holding:
        each.scene.says(DONE)
        again = each.asks_again(held(each.scene, each.runner.text))
        assert each.scene.said(again).text.strip() == "It is done."
        sent = str(pod.provider.received[-1].json)
        assert sent.count(BUYS.text) == 1
        assert "Bought" not in sent, "the half of a reply leaves the transcript"
    for each, _ in in_tool:
        each.scene.says(DONE)
        assert each.scene.said(each.asks_again()) == ReplyContent(f"{each.known}It is done.")
        assert "outcome_unknown" in str(pod.provider.received[-1].json)
    assert trades_made(pod) == len(all_begun)
    assert "Traceback" not in pod.said()
