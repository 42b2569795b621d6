"""Runners that come to a live turn, leave it, and come back (docs/spec/live.md section 9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.peers import DelayedAnswer, GatedReply, Reply, text
from tests.proxy.live_pod import BUYS, LOOKS, Scene, managed_events
from tests.proxy.live_runners import LivePlayback, RawRunner
from tests.waiting import eventually
from tests.wires import ReplyContent

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "300"}
SAYS = Reply("One two three.")


@pytest.mark.requirement("live:joins")
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1", "HTTP/2"])
def test_a_second_runner_gets_everything_from_the_beginning_and_then_live(
    scene: Scene, version: str
) -> None:
    first, last = GatedReply(LOOKS), GatedReply(SAYS)
    scene.says(first, last)
    runner = scene.ask()
    play = LivePlayback(runner)
    play.words(first)
    assert last.asked.wait(60)
    words = next(at for at, each in enumerate(last.events) if b"One" in each) + 1
    last.release(words)
    so_far = f"{LOOKS.text}{scene.glue}One "
    runner.hears(so_far)

    joiner = scene.ask(version)
    joiner.hears(so_far)
    last.release()
    for each in (runner, joiner):
        each.hears(f"{so_far}two ")
    last.release_all()

    assert (
        scene.said(runner)
        == scene.said(joiner)
        == ReplyContent(f"{LOOKS.text}{scene.glue}{SAYS.text}")
    )
    assembled = scene.wire.assembled
    assert assembled(joiner.stream) == assembled(runner.stream)
    assert len(scene.sent) == 2
    assert managed_events(joiner) == []


@pytest.mark.requirement("live:joins")
def test_a_turn_goes_on_for_the_runner_that_stays(scene: Scene) -> None:
    gated = GatedReply(SAYS)
    scene.says(gated)
    runner, joiner = scene.ask(), scene.ask()
    eventually(lambda: gated.events, "the provider is asked")
    gated.release(next(at for at, each in enumerate(gated.events) if b"One" in each) + 1)
    for each in (runner, joiner):
        each.hears("One ")
    runner.leave()
    gated.release()
    joiner.hears("One two ")
    gated.release_all()
    assert scene.said(joiner) == ReplyContent(SAYS.text)
    assert not gated.left.is_set()
    assert len(scene.sent) == 1


@pytest.mark.requirement("live:leaves")
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("words", [True, False])
def test_a_runner_that_leaves_closes_the_connection_to_the_provider(
    scene: Scene, version: str, *, words: bool
) -> None:
    gated = GatedReply(SAYS)
    scene.says(gated)
    runner = scene.ask(version)
    eventually(lambda: gated.events, "the provider is asked")
    if words:
        gated.release(next(at for at, each in enumerate(gated.events) if b"One" in each) + 1)
        runner.hears("One ")
    runner.leave()
    assert gated.left.wait(60), "the provider's connection is closed"
    event = scene.ended()
    assert (event["error"], event["status_code"]) == ("runner_left", 499)
    assert event["shown_rounds"] == words


@pytest.mark.requirement("live:leaves-a-write")
def test_a_write_finishes_when_its_runner_leaves_and_the_turn_goes_on_when_it_is_back(
    scene: Scene,
) -> None:
    trade = DelayedAnswer(JSONResponse({"order": 7}))
    scene.pod.service.routes["POST", "/trade"] = trade
    first = GatedReply(BUYS)
    scene.says(first)
    runner = scene.ask()
    LivePlayback(runner).words(first)
    assert trade.asked.wait(60)
    runner.leave()
    eventually(lambda: runner.ended or runner.error, "it has left")
    trade.go.set()
    (past,) = scene.recorded()["tool_trace"]
    assert past["tool_calls"][0]["result"]["data"] == {"order": 7}
    assert past["shown"] == len(BUYS.text)

    last = GatedReply(Reply("Bought."))
    scene.says(last)
    back = scene.ask()
    back.hears(BUYS.text)
    LivePlayback(back).words(last)
    assert scene.said(back) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert managed_events(back) == []
    assert len(scene.writes) == 1
    assert len(scene.sent) == 2
    ((_, result),) = scene.wire.answers(scene.sent[-1].json[scene.wire.TRANSCRIPT])
    assert json.loads(result)["data"] == {"order": 7}


@pytest.mark.requirement("live:leaves-a-write")
def test_a_runner_that_is_back_while_its_write_still_runs_gets_that_one(scene: Scene) -> None:
    trade = DelayedAnswer(JSONResponse({"order": 7}))
    scene.pod.service.routes["POST", "/trade"] = trade
    scene.says(BUYS, text("Bought."))
    runner = scene.ask()
    assert trade.asked.wait(60)
    runner.leave()
    eventually(lambda: runner.ended or runner.error, "it has left")
    back: RawRunner = scene.ask()
    trade.go.set()
    assert scene.said(back) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert len(scene.writes) == 1
    assert len(scene.sent) == 2


@pytest.mark.requirement("live:retries")
def test_a_done_turn_is_told_again_with_the_same_pieces(scene: Scene) -> None:
    scene.says(BUYS, text("Bought."))
    first = scene.ask()
    said = scene.said(first)
    again = scene.ask("HTTP/1.1", ("x-stainless-retry-count", "1"))
    assert scene.said(again) == said
    assert content_of(again) == content_of(first)
    assert len(scene.writes) == 1
    assert len(scene.sent) == 2


def content_of(runner: RawRunner) -> Any:
    """Return the message, the blocks or the items of an answer."""
    body = json.loads(runner.wire.assembled(runner.stream))
    if "choices" in body:
        message = body["choices"][0]["message"]
        return {name: value for name, value in message.items() if value is not None}
    return body.get("content") or body["output"]
