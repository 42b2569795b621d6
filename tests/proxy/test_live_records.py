"""Requests of a live turn to the provider, and the records of it (docs/spec/live.md sections 1,
2, 5, 6 and 10).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from starlette.responses import Response

from tests.peers import DelayedAnswer, Reply, text
from tests.proxy.live_pod import (
    BUYS,
    LISTS,
    LOOKS,
    Scene,
    events_of,
    managed_events,
    start_live,
    stream,
)
from tests.proxy.live_runners import BrokenReply
from tests.proxy.pod import Pod, pod_at
from tests.proxy.scraped import ScrapedPod
from tests.waiting import eventually, free_port
from tests.wires import Body, ReplyContent

PORT = free_port()


@pytest.fixture(scope="module")
def live_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a live pod with a listener of metrics."""
    with pod_at(tmp_path_factory.mktemp("pod")) as pod:
        pod.environment["CLLAMA_LIVE_FIRST_MS"] = "60000"
        pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{PORT}"
        start_live(pod)
        yield pod


def transcript(request: bytes, name: str) -> list[bytes]:
    """Return the messages of a request in their own bytes."""
    body = msgspec.json.decode(request, type=dict[str, msgspec.Raw])
    return [*map(bytes, msgspec.json.decode(body[name], type=list[msgspec.Raw]))]


# The next turn


@pytest.mark.requirement("live:next-turn")
@pytest.mark.parametrize("thinks", [False, True])
def test_the_next_turn_has_the_hidden_rounds_in_the_bytes_that_the_provider_saw(
    scene: Scene, *, thinks: bool
) -> None:
    replies = [LOOKS, BUYS, Reply("Bought one.")]
    thoughts = ["Where?", "There.", "So."] if thinks else ["", "", ""]
    for reply, thought in zip(replies, thoughts, strict=True):
        scene.says(stream(events_of(scene.wire, reply, thought=thought)))
    first = scene.ask()
    said = scene.said(first)
    assert said.text == scene.glue.join(reply.text for reply in replies)
    assert said.thought == "".join(thoughts)
    kept = scene.wire.kept(scene.wire.assembled(first.stream))

    scene.says(text("You are welcome."))
    thanks = scene.wire.user("Thanks.")
    assert scene.said(scene.ask(body=scene.request(kept, thanks))).text == "You are welcome."
    *_, before, after = scene.sent
    seen = transcript(before.body, scene.wire.TRANSCRIPT)
    assert transcript(after.body, scene.wire.TRANSCRIPT)[: len(seen)] == seen
    assert scene.wire.called(after.json) == ["desk__balance", "desk__trade"]
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:next-turn")
def test_the_next_turn_behind_a_native_call_has_the_hidden_round_before_it(scene: Scene) -> None:
    scene.says(LOOKS, LISTS)
    first = scene.ask()
    assert [call.name for call in scene.said(first).calls] == ["shell"]
    kept = scene.wire.kept(scene.wire.assembled(first.stream))

    scene.says(text("Two files."))
    results = scene.wire.results([("call_n", "a b")])
    assert scene.said(scene.ask(body=scene.request(kept, *results))).text == "Two files."
    *_, before, after = scene.sent
    seen = transcript(before.body, scene.wire.TRANSCRIPT)
    assert transcript(after.body, scene.wire.TRANSCRIPT)[: len(seen)] == seen
    assert scene.wire.called(after.json) == ["desk__balance", "shell"]


# What is asked of the provider


@pytest.mark.requirement("live:asks-upstream")
def test_each_model_call_of_a_live_turn_asks_for_a_stream_without_compression(scene: Scene) -> None:
    scene.says(LOOKS, text("Fifty."))
    scene.said(scene.ask())
    assert [sent.json["stream"] for sent in scene.sent] == [True, True]
    assert {sent.headers["accept-encoding"] for sent in scene.sent} == {"identity"}
    usage = [sent.json.get("stream_options") for sent in scene.sent]
    expected = {"include_usage": True} if scene.protocol == "chat" else None
    assert usage == [expected, expected]


@pytest.mark.requirement("live:asks-upstream")
def test_a_buffered_turn_asks_for_no_stream(scene: Scene) -> None:
    scene.says(LOOKS, text("Fifty."))
    assert scene.said(scene.ask(agent_id="buffered")) == ReplyContent("Fifty.")
    assert [sent.json.get("stream", False) for sent in scene.sent] == [False, False]
    assert [sent.json.get("stream_options") for sent in scene.sent] == [None, None]
    assert scene.ended()["stream_mode"] == "buffered"


@pytest.mark.requirement("live:usage-as-asked")
@pytest.mark.parametrize("protocol", ["chat"])
@pytest.mark.parametrize("asked", [None, True, False])
def test_a_usage_chunk_comes_only_to_who_asked_for_it(scene: Scene, asked: bool | None) -> None:
    scene.says(LOOKS, text("Fifty."))
    more = {} if asked is None else {"stream_options": {"include_usage": asked}}
    runner = scene.ask(body=scene.request(**more))
    scene.said(runner)
    usages = [event for event in runner.events() if event.get("usage") or not event["choices"]]
    assert len(usages) == bool(asked)
    assert (scene.ended()["tokens_in"], scene.ended()["tokens_out"]) == (20, 10)


# What is not shown while it comes


@pytest.mark.requirement("live:hides-preambles")
def test_an_agent_that_hides_preambles_shows_the_last_reply_alone(scene: Scene) -> None:
    last = DelayedAnswer(stream(events_of(scene.wire, Reply("Fifty."), thought="So.")))
    scene.says(stream(events_of(scene.wire, LOOKS, thought="Where?")), last)
    runner = scene.ask(agent_id="quiet")
    assert last.asked.wait(60)
    eventually(lambda: runner.stream.count(b"claw") + runner.stream.count(b"ping"), "it is alive")
    assert runner.text == ""
    last.go.set()
    assert scene.said(runner) == ReplyContent("Fifty.", thought="So.")
    assert b"look" not in runner.stream
    assert b"Where?" not in runner.stream
    assert [sent.json["stream"] for sent in scene.sent] == [True, True]
    (past,) = scene.recorded(agent_id="quiet")["tool_trace"]
    assert past.get("shown", 0) == 0


SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
JSON: dict[str, Body] = {
    "chat": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": SCHEMA, "strict": True},
        }
    },
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
}
FUNCTIONS = {"functions": [{"name": "shell", "parameters": {"type": "object"}}]}
AUDIO = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
BUFFERED: list[tuple[str, str, Mapping[str, Any]]] = [
    *(("structured_output", name, more) for name, more in JSON.items()),
    ("structured_output", "chat", {"response_format": {"type": "json_object"}}),
    ("legacy_functions", "chat", FUNCTIONS),
    ("audio", "chat", AUDIO),
]


@pytest.mark.requirement("live:falls-back")
@pytest.mark.parametrize(("reason", "protocol", "more"), BUFFERED)
def test_an_answer_that_cannot_stream_live_is_buffered_and_says_why(
    scene: Scene, reason: str, more: Mapping[str, Any]
) -> None:
    scene.says(LOOKS, text('{"usd": 50}'))
    body = scene.request(**more)
    if reason == "legacy_functions":
        del body["tools"]
    assert scene.said(scene.ask(body=body)).text == '{"usd": 50}'
    assert [event["reason"] for event in scene.log("live_fallback")] == [reason]
    assert scene.ended()["stream_mode"] == "buffered"
    assert [sent.json.get("stream", False) for sent in scene.sent] == [False, False]


@pytest.mark.requirement("live:falls-back")
def test_a_provider_that_answers_with_one_json_body_is_told_as_a_stream(scene: Scene) -> None:
    for reply in (LOOKS, Reply("Fifty.")):
        body = scene.wire.reply(reply.text, reply.calls, reply.more)
        scene.says(Response(body, media_type="application/json"))
    runner = scene.ask()
    said = scene.said(runner)
    assert said == ReplyContent("Fifty.")
    assert managed_events(runner) == []
    assert [sent.json["stream"] for sent in scene.sent] == [True, True]
    assert {event["reason"] for event in scene.log("live_fallback")} == {"json_body"}
    assert scene.ended()["stream_mode"] == "live"


# The log, history and metrics


@pytest.mark.requirement("live:recorded")
def test_the_log_and_history_say_what_was_shown_and_when(scene: Scene) -> None:
    scene.says(LOOKS, BUYS, text("Bought."))
    said = scene.said(scene.ask())
    event = scene.ended()
    times = [event[name] for name in ("ttft_ms", "upstream_ttft_ms", "held_ms")]
    assert all(isinstance(each, int) and each >= 0 for each in times)
    assert (event["stream_mode"], event["shown_rounds"]) == ("live", 3)
    assert event["upstream_ttft_ms"] <= event["ttft_ms"] <= event["latency_ms"]
    assert scene.log("live_cut") == scene.log("live_fallback") == []

    entry = scene.recorded()
    assert entry["stream"] is True
    assert [past["shown"] for past in entry["tool_trace"]] == [
        len(LOOKS.text),
        len(scene.glue + BUYS.text),
    ]
    assert scene.wire.said(json.dumps(entry["response"]["json"]).encode()) == said


@pytest.mark.requirement("live:recorded")
def test_a_turn_that_shows_nothing_before_its_answer_has_one_shown_round(scene: Scene) -> None:
    scene.says(Reply("", LOOKS.calls), text("Fifty."))
    scene.said(scene.ask())
    assert scene.ended()["shown_rounds"] == 1
    assert scene.recorded()["tool_trace"][0].get("shown", 0) == 0


@pytest.mark.requirement("live:recorded")
def test_the_metrics_count_the_times_the_fallbacks_and_the_cuts_of_live_turns(
    scene: Scene,
) -> None:
    scraped = ScrapedPod(scene.pod, PORT)
    names = (
        "claw_turn_first_content_seconds_count",
        "claw_model_first_content_seconds_count",
        "claw_turn_held_seconds_count",
    )
    where = {"agent": "analyst", "where": "text", "code": "provider_broke_off"}

    def figures() -> list[float]:
        counts = [scraped.value(name) for name in names]
        fallbacks = scraped.value("claw_live_fallbacks_total", reason="structured_output")
        return [*counts, fallbacks, scraped.value("claw_live_cuts_total", **where)]

    before = figures()
    broken = BrokenReply(Reply("One two."), "One")
    broken.release_all()
    scene.says(LOOKS, broken, text("{}"))
    assert scene.ask().end() == "cut"
    fallen_back = scene.request(scene.wire.user("In JSON."), **JSON[scene.protocol])
    scene.said(scene.ask(body=fallen_back))

    grown = [1, 1, 1, 1, 1]
    eventually(
        lambda: [now - then for now, then in zip(figures(), before, strict=True)] == grown,
        "the figures grow",
    )
