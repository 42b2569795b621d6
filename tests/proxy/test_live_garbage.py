"""Streams of a provider that no provider should send.

Each ends as docs/spec/live.md says: no runner sees a managed call, and no write runs that was not
made whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

from tests.peers import Reply, calls, text
from tests.proxy.live_pod import BUYS, GatedStream, Scene, events_of, managed_events, stream
from tests.proxy.live_runners import data_of
from tests.wires import Body, ReplyContent

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000"}
MIB = 1 << 20
type Events = list[bytes]
type Change = Callable[[Events], Events]


def written(document: Body) -> bytes:
    """Return an event with this document."""
    named = f"event: {document['type']}\n" if "type" in document else ""
    return f"{named}data: {json.dumps(document)}\n\n".encode()


def place_of(events: Iterable[bytes], mark: bytes) -> int:
    return next(place for place, event in enumerate(events) if mark in event)


def before_the_call(event: bytes) -> Change:
    def change(events: Events) -> Events:
        place = place_of(events, b"call_w")
        return [*events[:place], event, *events[place:]]

    return change


def bytewise(events: Events) -> Events:
    return [bytes([each]) for each in b"".join(events)]


def of_no_type(events: Events) -> Events:
    """Return the events of chat without the member that says what they are."""
    told = [data_of(event) for event in events[:-1]]
    return [*(written({**each, "object": None}) for each in told), events[-1]]


ODD: dict[str, Change] = {
    "one byte at a time": bytewise,
    "CRLF": lambda events: [event.replace(b"\n", b"\r\n") for event in events],
    "a byte order mark": lambda events: [b"\xef\xbb\xbf", *events],
    "an unknown event": before_the_call(b'event: x\ndata: {"type": "x", "delta": "desk__"}\n\n'),
    "an event without data": before_the_call(b"event: x\n\n"),
    "a comment": before_the_call(b": desk__trade\n\n"),
    "two ends": lambda events: [*events, *events[-3:]],
}
UNREADABLE: dict[str, Change] = {
    "half of a JSON text": lambda events: [
        event[: len(event) // 2] + b"\n\n" if b"call_w" in event else event for event in events
    ],
    "not UTF-8": before_the_call(b'data: {"type": "x\xff"}\n\n'),
    "an array": before_the_call(b"data: []\n\n"),
    "words": before_the_call(b"data: desk__trade\n\n"),
    "deeper than a parser goes": before_the_call(b"data: " + b"[" * 50_000 + b"\n\n"),
}
NOTHING: dict[str, Change] = {
    "nothing behind its head": lambda _events: [],
    "no more than its beginning": lambda events: events[:1],
    "a last event alone": lambda _events: [b"data: [DONE]\n\n"],
    "a comment alone": lambda _events: [b": hello\n\n"],
}


@pytest.mark.requirement("live:garbage-read")
@pytest.mark.parametrize("form", ODD)
def test_a_stream_in_an_odd_form_is_read(scene: Scene, form: str) -> None:
    change = ODD[form]
    scene.says(stream(change(events_of(scene.wire, BUYS))), text("Bought."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert managed_events(runner) == []
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:garbage-read")
@pytest.mark.parametrize("protocol", ["chat"])
def test_chunks_of_no_type_are_read(scene: Scene) -> None:
    scene.says(stream(of_no_type(events_of(scene.wire, BUYS))), text("Bought."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert len(scene.writes) == 1


@pytest.mark.requirement("live:garbage-fails")
@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_behind_words_is_an_error_event_and_nothing_runs(
    scene: Scene, what: str
) -> None:
    steps = GatedStream(UNREADABLE[what](events_of(scene.wire, BUYS)))
    scene.says(steps)
    runner = scene.ask()
    steps.release(1 + max(at for at, event in enumerate(steps.steps) if b"one." in event))
    runner.hears(BUYS.text)
    steps.release_all()
    assert scene.error(runner)
    assert scene.ended()["error"] == "provider_bad_response"
    assert managed_events(runner) == []
    assert scene.writes == []
    assert len(scene.sent) == 1


@pytest.mark.requirement("live:garbage-fails")
@pytest.mark.parametrize("what", NOTHING)
def test_a_stream_without_content_and_end_is_a_502(scene: Scene, what: str) -> None:
    scene.says(stream(NOTHING[what](events_of(scene.wire, BUYS))))
    runner = scene.ask()
    assert runner.end() == "whole"
    assert (runner.status, scene.ended()["error"]) == (502, "provider_broke_off")
    assert json.loads(runner.stream)["error"]["message"]


@pytest.mark.requirement("live:garbage-fails")
def test_calls_of_a_reply_that_just_stops_do_not_run(scene: Scene) -> None:
    scene.says(stream(events_of(scene.wire, BUYS)[:-3]))
    runner = scene.ask()
    assert runner.end() == "cut"
    assert runner.text == BUYS.text
    assert scene.writes == []


# Calls in odd forms


def changed(events: Events, change: Callable[[Body], object]) -> Events:
    """Return a chat stream whose parts of calls are changed."""
    told = []
    for event in events:
        document = data_of(event)
        choices = document.get("choices") or [{}]
        for part in choices[0].get("delta", {}).get("tool_calls") or ():
            change(part)
        told.append(written(document) if document else event)
    return told


CALLS: dict[str, tuple[Callable[[Body], object], int]] = {
    "no index": (lambda part: part.pop("index"), 1),
    "index 7": (lambda part: part.update(index=7), 1),
    "index -1": (lambda part: part.update(index=-1), 1),
    "index 10^12": (lambda part: part.update(index=10**12), 1),
    "an index that is a text": (lambda part: part.update(index="0"), 1),
    "no id": (lambda part: part.pop("id", None), 1),
    "no name": (lambda part: part["function"].pop("name", None), 0),
    "a name that is a number": (
        lambda part: part["function"].update({"name": 5} if "id" in part else {}),
        0,
    ),
}
"""Changes of a call's parts, and how often the call runs then."""


@pytest.mark.requirement("live:garbage-calls")
@pytest.mark.parametrize("protocol", ["chat"])
@pytest.mark.parametrize("form", CALLS)
def test_a_call_in_an_odd_form_runs_once_or_is_told_to_the_model(scene: Scene, form: str) -> None:
    change, runs = CALLS[form]
    scene.says(stream(changed(events_of(scene.wire, BUYS), change)), text("Well."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Well.")
    assert managed_events(runner) == []
    assert len(scene.writes) == runs
    ((_, result),) = scene.wire.answers(scene.sent[-1].json[scene.wire.TRANSCRIPT])
    assert json.loads(result)["ok"] is bool(runs)


@pytest.mark.requirement("live:garbage-calls")
@pytest.mark.parametrize("protocol", ["chat"])
def test_calls_that_share_an_index_are_told_apart_by_their_ids(scene: Scene) -> None:
    made = calls(("call_w", "desk__trade", {"symbol": "NVDA"}), ("call_m", "desk__balance", {}))
    events = changed(events_of(scene.wire, made), lambda part: part.update(index=0))
    scene.says(stream(events), text("Well."))
    runner = scene.ask()
    assert scene.said(runner) == ReplyContent("Well.")
    assert len(scene.writes) == 1
    results = scene.wire.answers(scene.sent[-1].json[scene.wire.TRANSCRIPT])
    assert [(call_id, json.loads(told)["ok"]) for call_id, told in results] == [
        ("call_w", True),
        ("call_m", True),
    ]


PLACES: dict[str, int | None] = {"no place": None, "a place twice": 0, "-1": -1, "10^12": 10**12}


@pytest.mark.requirement("live:garbage-calls")
@pytest.mark.parametrize("protocol", ["anthropic", "responses"])
@pytest.mark.parametrize("place", PLACES)
def test_a_call_at_no_place_of_its_own_fails_the_reply(scene: Scene, place: str) -> None:
    name = {"anthropic": "index", "responses": "output_index"}[scene.protocol]
    events = events_of(scene.wire, BUYS)
    at = place_of(events, b"call_w")
    call = {**data_of(events[at]), name: PLACES[place]}
    if call[name] is None:
        del call[name]
    steps = GatedStream([*events[:at], written(call), *events[at + 1 :]])
    scene.says(steps)
    runner = scene.ask()
    steps.release(at)
    runner.hears(BUYS.text)
    steps.release_all()
    assert scene.error(runner)
    assert managed_events(runner) == []
    assert scene.writes == []


# Sizes


@pytest.mark.requirement("live:garbage-size")
@pytest.mark.parametrize("protocol", ["chat"])
@pytest.mark.parametrize("words", ["", "Let me buy one."])
def test_more_arguments_than_may_be_held_end_the_turn(scene: Scene, words: str) -> None:
    made = calls(("call_w", "desk__trade", "{"), words=words)
    events = events_of(scene.wire, made)
    part = next(event for event in events if b'"arguments": "{"' in event)
    more = part.replace(b'"arguments": "{"', b'"arguments": "%b"' % (b" " * MIB))
    scene.says(stream([*events[:-3], *[more] * 100]))
    runner = scene.ask()
    if words:
        assert scene.error(runner)["code"] == "provider_response_too_large"
        assert runner.text == words
    else:
        assert runner.end() == "whole"
        assert runner.status == 502
    assert scene.ended()["error"] == "provider_response_too_large"
    assert managed_events(runner) == []
    assert scene.writes == []
    assert len(scene.sent) == 1


@pytest.mark.requirement("live:garbage-size")
@pytest.mark.parametrize("protocol", ["chat"])
def test_an_event_without_an_end_ends_the_turn(scene: Scene) -> None:
    events = events_of(scene.wire, Reply("One two."))
    scene.says(stream([*events[:2], b"data: ", *[b" " * MIB] * 100]))
    runner = scene.ask()
    assert scene.error(runner)["code"] == "provider_response_too_large"
    assert runner.text == "One "
