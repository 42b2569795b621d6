"""Failures of live turns as their runners see them, over each version of HTTP
(docs/spec/live.md section 9).
"""

from __future__ import annotations

import json

import pytest
from starlette.responses import JSONResponse

from tests.peers import GatedReply, Reply, text
from tests.proxy.live_pod import (
    BUYS,
    LISTS,
    LOOKS,
    GatedStream,
    Scene,
    events_of,
    failure,
    managed_events,
    stream,
)
from tests.proxy.live_runners import BrokenReply
from tests.proxy.pod import PROVIDER_KEY
from tests.wires import ReplyContent, anthropic, openai, responses

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000"}
VERSIONS = ("HTTP/1.0", "HTTP/1.1", "HTTP/2")
SAYS = Reply("One two three.")
MEANT = {openai: 503, anthropic: 529, responses: 502}
"""The status that ``failure`` means in each protocol."""
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b"response.failed", b"error")
"""Words that only the last events of a stream have."""


@pytest.mark.requirement("live:failure-unshown")
def test_an_error_before_the_first_word_is_the_status_that_it_means(scene: Scene) -> None:
    scene.says(BrokenReply(SAYS, "", failure(scene.wire)))
    release(scene)
    runner = scene.ask()
    assert runner.end() == "whole"
    assert runner.status == MEANT[scene.wire]
    assert json.loads(runner.stream)["error"]["message"] == "We are overloaded."
    assert "text/event-stream" not in runner.headers["content-type"]
    assert len(scene.sent) == 1
    assert scene.ended()["stream_mode"] == "live"


@pytest.mark.requirement("live:failure-unshown")
def test_a_cut_before_the_first_word_is_a_502(scene: Scene) -> None:
    scene.says(BrokenReply(SAYS, ""))
    release(scene)
    runner = scene.ask()
    assert runner.end() == "whole"
    assert runner.status == 502
    assert scene.wire.code(runner.stream) in {"provider_broke_off", None}
    assert scene.ended()["error"] == "provider_broke_off"


@pytest.mark.requirement("live:failure-unshown")
def test_a_refusal_of_the_request_passes_with_its_status(scene: Scene) -> None:
    refusal = scene.wire.error("invalid_request_error", "That model is not there.")
    scene.says(JSONResponse(refusal, 400))
    runner = scene.ask()
    assert runner.end() == "whole"
    assert (runner.status, json.loads(runner.stream)) == (400, refusal)
    assert len(scene.sent) == 1


def release(scene: Scene) -> None:
    """Let every reply of the script that waits be sent."""
    for answer in scene.pod.provider.script:
        if isinstance(answer, GatedReply):
            answer.release_all()


@pytest.mark.requirement("live:failure-error-event")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_behind_the_first_word_passes_without_secrets_and_managed_names(
    scene: Scene, version: str
) -> None:
    told = f"The key {PROVIDER_KEY} may not call desk__trade."
    scene.says(LOOKS, BrokenReply(SAYS, "two", failure(scene.wire, told)))
    release(scene)
    runner = scene.ask(version)
    error = scene.error(runner)
    assert error["message"].startswith("The key ")
    assert error["message"].endswith(" may not call managed_tool.")
    assert PROVIDER_KEY not in runner.stream.decode()
    assert runner.text == f"{LOOKS.text}{scene.glue}One two "
    assert managed_events(runner) == []

    status = scene.recorded()["status_code"]
    assert status == MEANT[scene.wire]
    assert scene.ended()["error"] == f"provider_http_{status}"
    assert scene.log("live_cut") == []


@pytest.mark.requirement("live:failure-cut")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_behind_the_first_word_is_a_cut_and_no_clean_end(scene: Scene, version: str) -> None:
    scene.says(LOOKS, BrokenReply(SAYS, "two"))
    release(scene)
    runner = scene.ask(version)
    if version == "HTTP/1.0":  # which has no cut that can be told from an end
        assert scene.error(runner)
    else:
        assert runner.end() == "cut"
        assert [end for end in ENDS if end in runner.stream.replace(b'"error":null', b"")] == []
    assert runner.text == f"{LOOKS.text}{scene.glue}One two "
    assert managed_events(runner) == []
    assert [(each["where"], each["code"]) for each in scene.log("live_cut")] == [
        ("text", "provider_broke_off")
    ]


@pytest.mark.requirement("live:failure-cut")
def test_a_cut_while_calls_are_held_runs_none_of_them(scene: Scene) -> None:
    events = events_of(scene.wire, BUYS)
    called = next(place for place, event in enumerate(events) if b"call_w" in event)
    scene.says(stream(events[: called + 2], cut=True))
    runner = scene.ask()
    assert runner.end() == "cut"
    assert runner.text == BUYS.text
    assert managed_events(runner) == []
    assert [each["where"] for each in scene.log("live_cut")] == ["held"]
    assert scene.recorded()["response"]["shown"] == BUYS.text
    assert scene.writes == []


@pytest.mark.requirement("live:failure-cut")
def test_a_cut_while_the_model_thinks_is_one(scene: Scene) -> None:
    events = events_of(scene.wire, SAYS, thought="Let me think.")
    thinks = next(place for place, event in enumerate(events) if b'"think."' in event)
    scene.says(stream(events[:thinks], cut=True))
    runner = scene.ask()
    assert runner.end() == "cut"
    assert runner.text == ""
    assert b"me " in runner.stream
    assert [each["where"] for each in scene.log("live_cut")] == ["thinking"]


@pytest.mark.requirement("live:failure-unshown-later")
def test_a_later_reply_that_breaks_off_unshown_is_asked_for_again(scene: Scene) -> None:
    held = events_of(scene.wire, Reply("", LISTS.calls))
    called = next(place for place, event in enumerate(held) if b"call_n" in event)
    scene.says(BUYS, stream(held[: called + 1], cut=True), text("Bought."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert len(scene.writes) == 1
    assert len(scene.sent) == 3


@pytest.mark.requirement("live:failure-unreadable")
def test_a_reply_that_cannot_be_read_behind_its_first_word_is_an_error_event(scene: Scene) -> None:
    events = events_of(scene.wire, SAYS)
    said = next(place for place, event in enumerate(events) if b"two" in event) + 1
    steps = GatedStream([*events[:said], b'data: {"half": \n\n', *events[said:]])
    scene.says(steps)
    runner = scene.ask()
    steps.release(said)
    runner.hears("One two ")
    steps.release_all()
    assert scene.error(runner)
    assert runner.text == "One two "
    assert scene.ended()["error"] == "provider_bad_response"


@pytest.mark.requirement("live:failure-tool")
def test_a_tool_that_fails_is_told_to_the_model_and_to_nobody_else(scene: Scene) -> None:
    scene.pod.service.routes["POST", "/trade"] = JSONResponse({"error": "closed"}, 503)
    scene.says(BUYS, text("It is closed."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}It is closed.")
    assert managed_events(runner) == []
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:failure-resumed")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_turn_that_was_cut_behind_a_write_goes_on_with_the_same_request(
    scene: Scene, version: str
) -> None:
    scene.says(BUYS, BrokenReply(Reply("Bought one for you."), "one"))
    release(scene)
    first = scene.ask(version)
    first.end()
    assert first.text == f"{BUYS.text}{scene.glue}Bought one "

    scene.says(text("It is done."))
    second = scene.ask(version)
    assert scene.said(second) == ReplyContent(f"{BUYS.text}{scene.glue}It is done.")
    assert managed_events(second) == []
    assert len(scene.writes) == 1
    assert len(scene.sent) == 3
    assert scene.recorded(2)["resumed"] is True
