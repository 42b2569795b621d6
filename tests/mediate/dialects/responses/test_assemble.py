"""A provider's stream of Responses, put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.sse import SseEvent
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.members import split_array, split_object
from claw_mediate.dialects.responses import response as dialect
from claw_mediate.dialects.responses.assemble import ResponseAssembler
from claw_mediate.dialects.responses.item_events import tell_item
from claw_mediate.dialects.responses.request import read_request
from claw_mediate.dialects.responses.stream import tell
from tests.mediate.any_reply import CATALOG
from tests.mediate.items import NEW, SEARCH
from tests.mediate.response_events import (
    LEFT_OUT,
    REPLIES,
    assemble,
    by,
    damaged_streams,
    provider_events,
    sse,
    told_by_channel,
    told_texts,
)
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning, response

CUTS = st.integers(1, 7).map(by)


def events_of(*output: Body, **more: Any) -> list[Body]:
    return list(provider_events(response(*output, **more), by(3)))


def fed(*events: Body) -> ResponseAssembler:
    assembler, _ = assemble(iter(events))
    return assembler


def channels(events: Iterator[Body]) -> list[tuple[str, str]]:
    _, told = assemble(events)
    return [(event.kind, event.channel or event.kind) for event in told]


@pytest.mark.requirement("live:responses-put-together")
@settings(max_examples=200)
@given(REPLIES, CUTS, st.booleans())
def test_a_stream_cut_anyhow_is_put_together_to_the_bytes_of_the_body(
    reply: Body, cut: Any, keeps_open: bool
) -> None:
    assembler, told = assemble(provider_events(reply, cut, keeps_open=keeps_open))
    body = json.dumps(reply, ensure_ascii=False).encode()
    assert assembler.body() == body
    assert assembler.is_whole
    assert json.loads(assembler.usage() or b"{}") == reply["usage"]
    assert [told[0].kind, told[-1].kind] == ["opening", "end"]


@pytest.mark.requirement("live:responses-put-together")
@settings(max_examples=300)
@given(REPLIES, CUTS, st.sets(st.sampled_from(LEFT_OUT)))
def test_what_a_server_leaves_out_is_put_in(reply: Body, cut: Any, left_out: set[str]) -> None:
    says_items = "output" not in left_out or "done" not in left_out
    if not says_items:
        return
    assembler, _ = assemble(provider_events(reply, cut, left_out=frozenset(left_out)))
    assert json.loads(assembler.body()) == reply


@pytest.mark.requirement("live:responses-put-together")
@settings(max_examples=100)
@given(REPLIES, CUTS)
def test_items_that_only_deltas_tell_of_have_their_texts_and_no_call_of_them_runs(
    reply: Body, cut: Any
) -> None:
    left_out = frozenset({"done", "output"})
    assembler, _ = assemble(provider_events(reply, cut, left_out=left_out))
    cut_short = [{**item, "status": "incomplete"} for item in reply["output"] if "status" in item]
    output = json.loads(assembler.body())["output"]
    assert [item for item in output if "status" in item] == cut_short
    calls = dialect.read_response(assembler.body(), CATALOG).calls
    assert not any(isinstance(call.arguments, dict) for call in calls if call.owner == "managed")


@pytest.mark.requirement("live:responses-channels")
@settings(max_examples=300)
@given(REPLIES, CUTS, st.sets(st.sampled_from(LEFT_OUT)))
def test_a_streamed_reply_has_the_pieces_and_channels_of_its_body(
    reply: Body, cut: Any, left_out: set[str]
) -> None:
    assembler, told = assemble(provider_events(reply, cut, left_out=frozenset(left_out)))
    whole = [
        event
        for piece, item in enumerate(split_array(split_object(assembler.body())["output"]))
        for event in tell_item(piece, item)
    ]
    assert told_by_channel(told) == told_by_channel(whole)
    if not left_out:
        assert told_texts(told) == told_texts(whole)


@pytest.mark.requirement("live:responses-kinds")
def test_each_event_has_the_kind_that_the_rules_of_a_stream_go_by() -> None:
    items = [reasoning("Hm."), message("Hi."), SEARCH, NEW, function_call("c1", "shell", "{}")]
    assert channels(iter(events_of(*items))) == [
        ("opening", "opening"),
        ("reasoning", "added"),
        ("reasoning", "summary.0.added"),
        ("reasoning", "summary.0.text"),
        ("closing", "summary.0.text.done"),
        ("closing", "summary.0.done"),
        ("closing", "done"),
        ("content", "added"),
        ("content", "part.0.added"),
        ("content", "part.0.text"),
        ("closing", "part.0.text.done"),
        ("closing", "part.0.done"),
        ("closing", "done"),
        ("content", "added"),
        ("content", "other.response.web_search_call.in_progress"),
        ("content", "other.response.web_search_call.searching"),
        ("content", "other.response.web_search_call.completed"),
        ("closing", "done"),
        ("content", "added"),
        ("closing", "done"),
        ("call", "added"),
        ("call", "arguments"),
        ("call", "arguments.done"),
        ("call", "done"),
        ("end", "end"),
    ]


@pytest.mark.requirement("live:responses-kinds")
def test_no_event_of_an_item_has_what_belongs_to_its_stream() -> None:
    _, told = assemble(iter(events_of(reasoning("Hm."), message("Hi."))))
    for event in told:
        assert not {"sequence_number", "output_index", "item_id", "delta"} & {*event.data}


@pytest.mark.requirement("live:responses-kinds")
def test_a_thought_begins_without_what_only_its_end_may_give_away() -> None:
    _, told = assemble(iter(events_of(reasoning("Hm."), message("Hi."))))
    items = [json.loads(bytes(event.data["item"])) for event in told if "item" in event.data]
    assert ["encrypted_content" in item for item in items] == [False, True, False, False]


@pytest.mark.requirement("live:responses-damaged")
@pytest.mark.parametrize(
    "events",
    [
        pytest.param([{"type": "response.output_text.delta", "output_index": 0}], id="no item"),
        pytest.param([{"type": "response.created"}], id="no response"),
        pytest.param([{"type": 1}], id="no type"),
        pytest.param([[]], id="no object"),
        pytest.param([{"type": "response.output_item.added", "output_index": 0}], id="no members"),
        pytest.param(events_of(message("Hi."))[:3] * 2, id="an index twice"),
        pytest.param(events_of() + events_of()[-1:], id="two ends"),
        pytest.param(events_of() + events_of(message("Hi."))[2:3], id="an item behind the end"),
        pytest.param(events_of(message("Hi.")) + events_of(message("Hi."))[-2:-1], id="done twice"),
        pytest.param(
            [*events_of(message("Hi."))[:-1], events_of(message("Hi."))[4]], id="text behind done"
        ),
        pytest.param(
            [*events_of(message("Hi."))[:6], events_of(message("Hi."))[4]], id="text behind its end"
        ),
        pytest.param(
            [*events_of(message("Hi."))[:6], events_of(message("Hi."))[5]], id="a text ends twice"
        ),
        pytest.param(
            [*events_of(message("Hi."))[:3], {**events_of(message("Hi."))[3], "content_index": 1}],
            id="a part out of place",
        ),
        pytest.param(
            [*events_of(message("Hi."))[:3], *events_of(message("Hi."))[3:4] * 2], id="a part twice"
        ),
        pytest.param(
            [*events_of(message("Hi.", "x"))[:3], *events_of({**NEW, "id": "x"})[3:]],
            id="another type",
        ),
        pytest.param(
            [
                *events_of(function_call("c1", "shell", '{"a":1}'))[:-2],
                *events_of(function_call("c1", "shell", '{"a":2}'))[-2:],
            ],
            id="another call",
        ),
        pytest.param(
            [
                *events_of(function_call("c1", "shell", "{}"))[:-1],
                *events_of({**function_call("c2", "shell", "{}"), "id": "fc_c1"})[-1:],
            ],
            id="another call id",
        ),
        pytest.param(
            [
                *events_of({"type": "shell_call", "id": "s1", "environment": {"type": "x"}})[:-2],
                *events_of({"type": "shell_call", "id": "s1", "call_id": "c1"})[-2:],
            ],
            id="no call becomes one",
        ),
    ],
)
def test_what_no_strict_client_would_read_is_refused(events: list[Any]) -> None:
    with pytest.raises(UnreadableResponseError):
        fed(*events)


@pytest.mark.requirement("live:responses-damaged")
@settings(max_examples=300)
@given(damaged_streams())
def test_a_damaged_stream_is_refused_or_says_the_same_as_its_body(events: list[Any]) -> None:
    assembler, told = ResponseAssembler(), []
    try:
        for event in events:
            told += assembler.feed(sse(event))
        if assembler.error is not None:
            assert json.loads(assembler.error.body)["error"]["code"]
            return
        body = dialect.read_response(assembler.body(), CATALOG).body
    except (UnreadableResponseError, FailedResponseError):
        return
    request = read_request(b'{"model":"m","input":"Hi"}')
    assert told_by_channel(told) == told_by_channel(list(tell(body, request)))


@pytest.mark.requirement("live:responses-damaged")
@pytest.mark.parametrize("data", [b'{"type":', b'{"type":"\xff"}', b'"', b"[" * 10_000])
def test_half_json_and_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableResponseError):
        ResponseAssembler().feed(SseEvent(data))


@pytest.mark.requirement("live:responses-damaged")
def test_a_stream_without_its_end_has_no_body() -> None:
    assembler = fed(*events_of(message("Hi."))[:-1])
    assert not assembler.is_whole
    with pytest.raises(UnreadableResponseError):
        assembler.body()


@pytest.mark.requirement("live:responses-damaged")
def test_a_reply_of_too_many_items_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claw_mediate.dialects.responses.streamed_item.MAX_PARTS", 2)
    fed(*events_of(message("a", "m1"), message("b", "m2")))
    with pytest.raises(UnreadableResponseError):
        fed(*events_of(message("a", "m1"), message("b", "m2"), message("c", "m3")))


@pytest.mark.requirement("live:responses-swallowed")
def test_keepalives_and_events_of_nobody_tell_nothing() -> None:
    assembler = fed(*events_of(reasoning("Hm."))[:6])
    for event in (
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": ""},
        {"type": "keepalive", "sequence_number": 3},
        {"type": "codex.rate_limits", "x": 1},
        {"type": "response.hologram.ready", "output_index": 7},
    ):
        assert assembler.feed(sse(event)) == ()
    assert assembler.feed(SseEvent(b"[DONE]")) == ()


@pytest.mark.requirement("live:responses-swallowed")
def test_an_unknown_event_of_an_item_passes_with_its_members_and_its_text() -> None:
    opened = events_of(NEW)[:3]
    beam = {"type": "response.hologram.beam", "output_index": 0, "item_id": "ho_1", "color": [1]}
    text = {"type": "response.hologram.delta", "output_index": 0, "delta": "ab"}
    _, told = assemble(iter([*opened, beam, text]))
    passed, said = told[-2:]
    assert (passed.channel, bytes(passed.data["color"])) == ("other.response.hologram.beam", b"[1]")
    assert (said.channel, said.text) == ("other.response.hologram.delta", "ab")


@pytest.mark.requirement("live:responses-failed")
@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "m"},
            429,
            "rate_limit_exceeded",
        ),
        ({"type": "error", "code": None, "message": "m"}, 502, "server_error"),
        (
            {"type": "error", "error": {"code": "invalid_prompt", "message": "m"}},
            400,
            "invalid_prompt",
        ),
        ({"error": {"code": "insufficient_quota", "message": "m"}}, 402, "insufficient_quota"),
        (
            {"type": "response.failed", "response": {"error": {"code": "x", "message": "m"}}},
            502,
            "x",
        ),
        (
            {"type": "response.failed", "response": {"usage": {"input_tokens": 1}}},
            502,
            "server_error",
        ),
    ],
)
def test_a_failure_in_a_stream_has_the_status_of_its_code(
    event: Body, status: int, code: str
) -> None:
    assembler = fed(event)
    assert assembler.error is not None
    assert assembler.error.status == status
    assert json.loads(assembler.error.body)["error"]["code"] == code
    assert not assembler.is_whole


@pytest.mark.requirement("live:responses-failed")
def test_the_first_failure_counts() -> None:
    failed = {"type": "response.failed", "response": {"error": {"code": "x", "message": "m"}}}
    assembler = fed({"type": "error", "code": "invalid_prompt", "message": "m"}, failed)
    assert assembler.error is not None
    assert assembler.error.status == 400


@pytest.mark.requirement("live:responses-end")
@pytest.mark.parametrize(
    ("event", "stated", "status"),
    [
        ("response.completed", "in_progress", "completed"),
        ("response.incomplete", "completed", "incomplete"),
        ("response.incomplete", None, "incomplete"),
        ("response.completed", "incomplete", "incomplete"),
        ("response.completed", "failed", "failed"),
    ],
)
def test_a_response_is_no_more_complete_than_its_last_event(
    event: str, stated: str | None, status: str
) -> None:
    reply = response(message("Hi."), status=stated)
    if stated is None:
        del reply["status"]
    assembler = fed({"type": event, "response": reply})
    assert json.loads(assembler.body())["status"] == status


@pytest.mark.requirement("live:responses-end")
def test_servers_that_number_an_item_anew_in_each_event_double_no_call() -> None:
    call = function_call("call_1", "desk__get", "{}")
    events = events_of(call)
    events[-1]["response"]["output"] = [{**call, "id": "fc_other"}]
    calls = dialect.read_response(fed(*events).body(), CATALOG).calls
    assert [call.id for call in calls] == ["call_1"]


@pytest.mark.requirement("live:responses-end")
def test_a_text_that_the_end_states_otherwise_stays_the_one_that_was_streamed() -> None:
    events = events_of(message("Hi there. "))
    events[-1]["response"]["output"] = [message("Hi there.")]
    output = json.loads(fed(*events).body())["output"]
    assert output[0]["content"][0]["text"] == "Hi there. "


@pytest.mark.requirement("live:responses-end")
def test_a_repeated_member_is_read_as_in_a_body() -> None:
    events = events_of(function_call("c1", "shell", "{}"))
    *before, last = [sse(event).data for event in events]
    twice = last.replace(b'"name": "shell"', b'"name": "shell", "name": "desk__get"')
    assembler = ResponseAssembler()
    for data in (*before, twice):
        assembler.feed(SseEvent(data))
    with pytest.raises(UnreadableResponseError, match="ambiguous"):
        dialect.read_response(assembler.body(), CATALOG)
