"""Edge cases of live turns that depend on real bytes and files (docs/spec/live.md section 12)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator

import pytest
from starlette.responses import JSONResponse, StreamingResponse

from tests.peers import DelayedAnswer, GatedReply, Reply, text
from tests.proxy.live_pod import BUYS, LISTS, LOOKS, Scene, events_of, managed_events, stream
from tests.proxy.live_runners import LivePlayback, RawRunner, data_of
from tests.waiting import eventually
from tests.wires import Body, ReplyContent
from tests.wires.parts import word_of

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000"}
SAYS = Reply("One two three.")
REPLY_ENDS = (b'"finish_reason": "tool_calls"', b'"message_delta"', b'"response.completed"')
"""Bytes of the last events of the scripted provider's reply, one for each protocol."""
ANSWER_ENDS = (b'"finish_reason":"stop"', b"[DONE]", b"message_stop", b"response.completed")
"""Bytes of the last events of an answer, as the proxy writes them."""


def packed(events: Iterable[bytes]) -> Iterator[bytes]:
    """Yield events in gzip, each of which can be read when it is there."""
    packer = zlib.compressobj(wbits=31)
    for event in events:
        yield packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


@pytest.mark.requirement("live:edges")
def test_a_text_alone_passes_at_once_and_ends_when_the_provider_ends_it(scene: Scene) -> None:
    gated = GatedReply(SAYS)  # 1
    scene.says(gated)
    runner = scene.ask()
    assert gated.asked.wait(60)
    words = [word_of(data_of(event)) for event in gated.events]
    last = max(place for place, word in enumerate(words) if word)
    said = ""
    for word in words[: last + 1]:
        gated.release()
        said += word
        runner.hears(said)
    assert runner.ended == ""
    assert not any(mark in runner.stream for mark in ANSWER_ENDS)
    gated.release_all()
    assert scene.said(runner) == ReplyContent(SAYS.text)
    assert any(mark in runner.stream for mark in ANSWER_ENDS)


@pytest.mark.requirement("live:edges")
def test_behind_a_managed_call_alone_come_keepalives_and_then_the_next_reply(scene: Scene) -> None:
    looks, gated = DelayedAnswer(JSONResponse({"usd": 50})), GatedReply(SAYS)
    scene.pod.service.routes["GET", "/balance"] = looks  # 2
    scene.says(Reply("", LOOKS.calls), gated)
    runner = scene.ask()
    assert looks.asked.wait(60)
    eventually(lambda: beats(runner) > 1, "keepalives come while the tool runs")
    assert (runner.status, runner.text) == (200, "")
    assert managed_events(runner) == []
    looks.go.set()
    LivePlayback(runner).words(gated)
    gated.release_all()
    assert scene.said(runner) == ReplyContent(SAYS.text)


@pytest.mark.requirement("live:edges")
def test_a_native_call_is_held_until_its_reply_is_whole_and_comes_at_once_then(
    scene: Scene,
) -> None:
    gated = GatedReply(LISTS)
    scene.says(gated)
    runner = scene.ask()
    assert gated.asked.wait(60)
    ended = next(
        at for at, each in enumerate(gated.events) if any(end in each for end in REPLY_ENDS)
    )
    gated.release(ended)  # 4
    runner.hears(LISTS.text)
    before = beats(runner)
    eventually(lambda: beats(runner) > before + 1, "keepalives come while the call is held")
    assert b"call_n" not in runner.stream
    gated.release_all()
    assert scene.said(runner) == ReplyContent(LISTS.text, LISTS.calls)


def beats(runner: RawRunner) -> int:
    return runner.stream.count(b": claw ") + runner.stream.count(b"event: ping")


@pytest.mark.requirement("live:edges")
def test_a_stream_that_is_compressed_all_the_same_is_read(scene: Scene) -> None:
    def gzipped(reply: Reply) -> StreamingResponse:
        answer = stream(packed(events_of(scene.wire, reply)))
        answer.headers["content-encoding"] = "gzip"
        return answer

    scene.says(gzipped(BUYS), gzipped(SAYS))  # 34
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}{SAYS.text}")
    assert "content-encoding" not in {name.lower() for name in runner.headers}
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:edges")
def test_a_turn_keeps_the_tools_that_it_began_with_though_its_files_change(scene: Scene) -> None:
    looks = DelayedAnswer(JSONResponse({"usd": 50}))
    scene.pod.service.routes["GET", "/balance"] = looks  # 36
    scene.says(LOOKS, BUYS, SAYS)
    runner = scene.ask()
    assert looks.asked.wait(60)
    scene.pod.agent("analyst", scene.pod.tool("balance"), stream="buffered")
    try:
        looks.go.set()
        texts = (LOOKS.text, BUYS.text, SAYS.text)
        assert scene.said(runner).text == scene.glue.join(texts)
        assert len(scene.writes) == 1

        scene.says(SAYS)
        scene.said(scene.ask(body=scene.request(scene.wire.user("And now?"))))
        assert scene.ended(2)["stream_mode"] == "buffered"
        assert "desk__trade" not in scene.wire.tools(scene.sent[-1].json)
    finally:
        scene.pod.agent("analyst", *scene.pod.balance_and_trade(), stream="live")


@pytest.mark.requirement("live:edges")
def test_a_call_that_ran_out_of_tokens_never_runs(scene: Scene) -> None:
    body = scene.wire.reply(BUYS.text, BUYS.calls, {}, cut=True)  # 27
    events = [event + b"\n\n" for event in scene.wire.streamed(body).split(b"\n\n")[:-1]]
    scene.says(stream(events), text("Sorry."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Sorry.")
    assert managed_events(runner) == []
    assert scene.writes == []
    ((_, result),) = scene.wire.answers(scene.sent[-1].json[scene.wire.TRANSCRIPT])
    assert json.loads(result)["ok"] is False


# Responses


@pytest.mark.requirement("live:edges")
@pytest.mark.parametrize("protocol", ["responses"])
def test_a_kept_answer_is_read_whole_by_its_id_and_gone_on_from(scene: Scene) -> None:
    first, last = f"resp_{scene.number}a", f"resp_{scene.number}b"
    scene.says(
        Reply(LOOKS.text, LOOKS.calls, {"id": first, "store": True}),
        Reply(SAYS.text, (), {"id": last, "store": True}),
    )
    shown = json.loads(scene.wire.assembled(run_to_end(scene, scene.request(store=True))))
    assert shown["id"] == first
    with scene.pod.client() as client:
        kept = client.responses.retrieve(first)  # 40
        texts = [text for item in kept.output for text in texts_of(item.model_dump())]
        assert texts == [LOOKS.text, SAYS.text]
        raw = client.responses.with_raw_response.retrieve(first)
    document = json.loads(raw.content)
    assert document["output"] == shown["output"]
    assert b"desk__" not in raw.content

    scene.says(text("Yes."))
    again = {**scene.request(store=True), "input": "Sure?", "previous_response_id": first}
    run_to_end(scene, again)  # 19
    assert scene.sent[-1].json["previous_response_id"] == last


def run_to_end(scene: Scene, body: Body) -> bytes:
    runner = scene.ask(body=body)
    assert runner.end() == "whole"
    return runner.stream


def texts_of(item: Body) -> list[str]:
    return [part["text"] for part in item["content"]]


# Chat


def chunk(like: bytes, delta: Body) -> bytes:
    """Return a chunk with this delta. ``like``: one of its stream."""
    document = data_of(like)
    document["choices"] = [{"index": 0, "delta": delta, "finish_reason": None}]
    return b"data: %b\n\n" % json.dumps(document).encode()


@pytest.mark.requirement("live:edges")
@pytest.mark.parametrize("protocol", ["chat"])
def test_chat_streams_end_in_more_ways_than_one(scene: Scene) -> None:
    events = events_of(scene.wire, SAYS)
    no_done = events[:-1]  # 25
    more = [*events[:-2], chunk(events[1], {"content": " Four."}), *events[-2:]]  # 26
    for number, (sent, said) in enumerate([(no_done, SAYS.text), (more, f"{SAYS.text} Four.")]):
        scene.says(stream(sent))
        body = scene.request(scene.wire.user(f"Say it ({number})."))
        assert scene.said(scene.ask(body=body)) == ReplyContent(said)


@pytest.mark.requirement("live:edges")
@pytest.mark.parametrize("protocol", ["chat"])
def test_calls_from_index_1_on_or_at_the_same_one_are_sent_from_0(scene: Scene) -> None:
    events = events_of(scene.wire, SAYS)
    made = [("call_1", '{"cmd": "ls"}'), ("call_2", '{"cmd": "pwd"}')]
    for number, places in enumerate([(1, 2), (0, 0)]):  # 10
        parts = [
            {"index": index, "id": call_id, "type": "function"}
            | {"function": {"name": "shell", "arguments": arguments}}
            for index, (call_id, arguments) in zip(places, made, strict=True)
        ]
        called = [chunk(events[1], {"tool_calls": [part]}) for part in parts]
        ended = data_of(events[-3])
        ended["choices"][0]["finish_reason"] = "tool_calls"
        end = b"data: %b\n\n" % json.dumps(ended).encode()
        scene.says(stream([*events[:-3], *called, end, *events[-2:]]))
        runner = scene.ask(body=scene.request(scene.wire.user(f"List it ({number}).")))
        assert [(call.id, call.arguments) for call in scene.said(runner).calls] == made
        indexes = [
            part["index"]
            for event in runner.events()
            for choice in event["choices"]
            for part in choice["delta"].get("tool_calls", ())
        ]
        assert sorted({*indexes}) == [0, 1]


@pytest.mark.requirement("live:edges")
@pytest.mark.parametrize("protocol", ["chat"])
def test_a_name_in_two_parts_and_words_in_the_chunk_of_a_call_are_told_apart(scene: Scene) -> None:
    events = events_of(scene.wire, BUYS)
    place = next(at for at, each in enumerate(events) if b"call_w" in each)
    call = {"index": 0, "id": "call_w", "type": "function"}
    first = {"name": "desk__", "arguments": ""}
    second = {"index": 0, "function": {"name": "trade"}}
    split = [  # 8, 9
        chunk(events[1], {"content": " Now.", "tool_calls": [{**call, "function": first}]}),
        chunk(events[1], {"tool_calls": [second]}),
    ]
    scene.says(stream([*events[:place], *split, *events[place + 1 :]]), text("Bought."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text} Now.\n\nBought.")
    assert managed_events(runner) == []
    assert len(scene.writes) == 1
