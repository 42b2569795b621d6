"""A runner's stream of several replies, read by the real ``openai`` SDK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_contract.secret import DOTS
from claw_mediate.core.reply_events import ReplyEvent, with_data
from claw_mediate.dialects.responses.reasoning import ReasoningRules
from claw_mediate.dialects.responses.request import read_request
from claw_mediate.dialects.responses.stream import tell
from claw_mediate.dialects.responses.writer import ResponseWriter
from claw_mediate.dialects.streams import OwnOpening
from tests.mediate.items import NEW, SEARCH
from tests.mediate.openai_sdk import final_response
from tests.mediate.response_events import REPLIES, assemble, by, provider_events, told_texts
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning, response

OWN = OwnOpening("resp_own", "gpt-own", 7)
TOOLS = [{"type": "function", "name": name, "parameters": {}} for name in ("shell", "desk__get")]
ASKED = read_request(
    json.dumps(
        {"model": "m", "input": "Hi", "stream": True, "store": False, "tools": TOOLS[:1]}
    ).encode()
)
MANAGED = function_call("managed_1", "desk__get", "{}")


def writer() -> ResponseWriter:
    return ResponseWriter(ASKED, OWN)


def streamed(*output: Body, **more: Any) -> list[ReplyEvent]:
    """Return the events of a reply that a provider streams."""
    _, told = assemble(provider_events(response(*output, **more), by(4)))
    return told


def shown_of(told: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """Return what is shown of a reply that is not the answer: all before its first call."""
    calls = [place for place, event in enumerate(told) if event.kind == "call"]
    shown = [event for event in told[: calls[0]] if event.kind != "end"]
    return shown if any(event.kind != "opening" for event in shown) else []


def write(made: ResponseWriter, *replies: Sequence[ReplyEvent]) -> bytes:
    """Return the stream of a turn: of each reply but the last what is shown of a hidden one."""
    stream = b""
    *hidden, last = replies
    for told in hidden:
        stream += b"".join(map(made.write, shown_of(told)))
        made.begin_reply()
    return stream + b"".join(map(made.write, last))


def events(stream: bytes) -> list[Body]:
    return [json.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: ")]


def items_of(stream: bytes) -> list[Body]:
    """Return the items as their last events show them."""
    return [event["item"] for event in events(stream) if event["type"].endswith("item.done")]


def check_counts(stream: bytes) -> None:
    """Check the numbers, places and ids of a whole stream."""
    told = events(stream)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    added = [event for event in told if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == list(range(len(added)))
    ids = [event["item"]["id"] for event in added]
    assert len(set(ids)) == len(ids)
    for event in told:
        if "item_id" in event:
            assert event["item_id"] == ids[event["output_index"]]
        if "item" in event:
            assert event["item"]["id"] == ids[event["output_index"]]
    assert len({event["response"]["id"] for event in told if "response" in event}) == 1
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] for event in told].count("response.created") == 1


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("live:responses-lifecycle")
@settings(max_examples=150)
@given(st.lists(REPLIES, max_size=2), REPLIES, st.integers(1, 9).map(by))
def test_any_replies_make_one_stream_that_the_strict_sdk_reads_to_what_was_shown(
    hidden: list[Body], last: Body, cut: Any
) -> None:
    replies = [{**reply, "output": [*reply["output"], MANAGED]} for reply in hidden]
    told = [assemble(provider_events(reply, cut))[1] for reply in (*replies, last)]
    made = writer()
    stream = write(made, *told)
    check_counts(stream)

    final = events(stream)[-1]["response"]
    assert final["output"] == items_of(stream)
    read = json.loads(final_response(stream).model_dump_json(warnings=False))
    assert [item["id"] for item in read["output"]] == [item["id"] for item in final["output"]]
    assert "".join(texts_of(read["output"])) == "".join(texts_of(final["output"]))
    assert b"managed_1" not in stream


def texts_of(output: list[Body]) -> list[str]:
    return [
        part.get("text") or ""
        for item in output
        if item["type"] == "message"
        for part in item["content"]
    ]


@pytest.mark.requirement("live:responses-ends")
@pytest.mark.parametrize("kind", ["message", "reasoning", "call"])
def test_what_ends_a_text_says_what_was_shown_of_it(kind: str) -> None:
    """The first characters of a secret were shown before its dots."""
    shown, whole = f"sk-{DOTS}, yes", f"{DOTS}, yes"
    item = {
        "message": message("secret", "msg_a"),
        "reasoning": {**reasoning("secret"), "encrypted_content": "sealed"},
        "call": function_call("call_1", "shell", "secret"),
    }[kind]
    made, stream = writer(), b""
    for event in tell(json.dumps(response(item)).encode(), ASKED):
        if event.text:
            stream += made.write(replace(event, text=shown))
            continue
        redacted = msgspec.json.encode(event.data).replace(b"secret", whole.encode())
        stream += made.write(with_data(event, redacted))

    assert whole.encode() not in stream.replace(shown.encode(), b"")
    ends = {"message": 3, "reasoning": 3, "call": 2}[kind]
    assert stream.count(shown.encode()) == 1 + ends + 1, (
        "in the delta, its ends, and the last event"
    )


@pytest.mark.requirement("live:responses-lifecycle")
def test_text_a_managed_call_and_text_are_one_answer_under_the_first_id() -> None:
    first = streamed(message("Let me look. ", "msg_a"), MANAGED, id="resp_A")
    last = streamed(message("Fifty.", "msg_b"), id="resp_B", usage={"input_tokens": 20})
    made = writer()
    stream = write(made, first, last)
    check_counts(stream)
    assert made.id == "resp_A"
    assert final_response(stream).output_text == "Let me look. Fifty."
    whole = events(stream)[-1]["response"]
    assert (whole["id"], whole["usage"], whole["status"]) == (
        "resp_A",
        {"input_tokens": 20},
        "completed",
    )
    assert b"managed_1" not in stream


@pytest.mark.requirement("live:responses-lifecycle")
def test_what_stands_behind_a_managed_call_is_dropped_with_its_round() -> None:
    hidden = streamed(message("Look. ", "msg_a"), MANAGED, message("Then buy.", "msg_b"))
    stream = write(writer(), hidden, streamed(message("Done.", "msg_c")))
    assert final_response(stream).output_text == "Look. Done."
    assert b"msg_b" not in stream


@pytest.mark.requirement("live:responses-lifecycle")
def test_a_reply_that_shows_nothing_gives_the_stream_no_id() -> None:
    made = writer()
    stream = write(made, streamed(MANAGED, id="resp_A"), streamed(message("Hi."), id="resp_B"))
    assert {event["response"]["id"] for event in events(stream) if "response" in event} == {
        "resp_B"
    }


@pytest.mark.requirement("live:responses-lifecycle")
def test_a_reply_without_an_opening_is_opened_by_ours() -> None:
    stream = write(writer(), streamed(message("Hi."))[1:])
    check_counts(stream)
    assert events(stream)[0]["response"]["id"] == OWN.id
    assert final_response(stream).output_text == "Hi."


@pytest.mark.requirement("live:responses-lifecycle")
@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_the_last_reply_says_how_the_stream_ends(status: str) -> None:
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    last = streamed(message("Hi."), status=status, incomplete_details=details)
    end = events(write(writer(), streamed(MANAGED), last))[-1]
    assert end["type"] == f"response.{status}"
    assert (end["response"]["status"], end["response"]["incomplete_details"]) == (status, details)


@pytest.mark.requirement("live:responses-item-ids")
def test_an_id_that_an_earlier_reply_has_shown_is_minted_anew_everywhere() -> None:
    first = streamed(message("One. ", "msg_0"), MANAGED)
    last = streamed(message("Two.", "msg_0"), function_call("c1", "shell", "{}"))
    made = writer()
    stream = write(made, first, last)
    check_counts(stream)
    kept, minted, call = [item["id"] for item in items_of(stream)]
    assert (kept, call) == ("msg_0", "fc_c1")
    assert made.minted == {minted: "msg_0"}
    assert len(minted) <= 40
    assert minted.isalnum()
    assert [item["id"] for item in events(stream)[-1]["response"]["output"]] == [kept, minted, call]
    assert final_response(stream).output_text == "One. Two."


@pytest.mark.requirement("live:responses-item-ids")
@pytest.mark.parametrize("given_id", [None, "", 5])
def test_an_item_without_an_id_gets_one(given_id: Any) -> None:
    item = {**message("Hi."), "id": given_id}
    made = writer()
    stream = b"".join(map(made.write, tell(json.dumps(response(item)).encode(), ASKED)))
    check_counts(stream)
    assert [*made.minted.values()] == [""]
    assert items_of(stream)[0]["id"] in made.minted


@pytest.mark.requirement("live:responses-output")
def test_hosted_work_before_a_managed_call_is_shown_with_its_progress() -> None:
    stream = write(writer(), streamed(SEARCH, MANAGED), streamed(message("Hi.")))
    assert b"response.web_search_call.searching" in stream
    assert [item["type"] for item in events(stream)[-1]["response"]["output"]] == [
        "web_search_call",
        "message",
    ]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("live:responses-output")
@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_an_item_that_was_shown_and_never_finished_is_in_the_output(left: int) -> None:
    begun = shown_of(streamed(reasoning("Hm."), message("Hello there."), MANAGED))
    begun = begun[: len(begun) - left]
    made = writer()
    stream = b"".join(map(made.write, begun))
    made.begin_reply()
    stream += b"".join(map(made.write, streamed(NEW)))
    thought, said, _ = events(stream)[-1]["response"]["output"]
    assert thought["summary"][0]["text"] == "Hm."
    assert said["content"][0]["text"] == "Hello there."
    assert said["status"] == ("in_progress" if left else "completed")
    assert final_response(stream).output_text == "Hello there."


@pytest.mark.requirement("live:responses-echo")
def test_no_lifecycle_event_repeats_a_managed_tool_or_another_choice() -> None:
    echo = {"tools": TOOLS, "tool_choice": {"type": "function", "name": "desk__get"}}
    last = streamed(message("Hi."), instructions="Ours.", previous_response_id="resp_0", **echo)
    stream = write(writer(), last)
    for event in events(stream):
        if "response" in event:
            shown = event["response"]
            assert (shown["tools"], shown["tool_choice"]) == (TOOLS[:1], "auto")
            assert (shown["instructions"], shown["previous_response_id"]) == (None, None)
    assert b"desk__get" not in stream


def beat_behind(*shown: ReplyEvent) -> tuple[Body, bytes, ResponseWriter]:
    made = writer()
    stream = b"".join(map(made.write, shown))
    beat = made.beat("", "native")
    (event,) = events(beat)
    return event, stream + beat, made


def ends(made: ResponseWriter, stream: bytes, rest: Sequence[ReplyEvent]) -> Body:
    """Return what the SDK reads of a stream after the rest of it."""
    stream += b"".join(map(made.write, rest))
    check_counts(stream)
    final_response(stream)
    whole: Body = events(stream)[-1]["response"]
    return whole


@pytest.mark.requirement("live:responses-beat")
@pytest.mark.parametrize(
    ("output", "shown", "beat"),
    [
        ([message("Hello.")], 4, {"type": "response.output_text.delta", "logprobs": []}),
        ([reasoning("Hello.")], 4, {"type": "response.reasoning_summary_text.delta"}),
        ([SEARCH, message("Hi.")], 4, {"type": "response.web_search_call.searching"}),
    ],
)
def test_a_beat_says_nothing_new_of_what_is_open(
    output: list[Body], shown: int, beat: Body
) -> None:
    told = streamed(*output)
    event, stream, made = beat_behind(*told[:shown])
    assert {**event, **beat} == event
    assert not event.get("delta")
    assert event["output_index"] == 0
    assert ends(made, stream, told[shown:])["output"] == output


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("live:responses-beat")
@pytest.mark.parametrize("item", [message("Hello."), reasoning("Hm."), NEW])
def test_a_beat_where_nothing_is_open_holds_all_that_was_shown(item: Body) -> None:
    told = streamed(message("One.", "msg_0"), item)
    for shown in range(2, len(told) - 1):
        event, stream, made = beat_behind(*told[:shown])
        if event["type"] == "response.in_progress":
            assert [each["id"] for each in event["response"]["output"]] == [
                each["item"]["id"]
                for each in events(stream)
                if each["type"] == "response.output_item.added"
            ]
        assert ends(made, stream, told[shown:])["output"] == [message("One.", "msg_0"), item]


@pytest.mark.requirement("live:responses-beat")
def test_a_beat_shows_no_part_of_an_image_again() -> None:
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "eA=="}
    told = streamed(image)
    partial = ReplyEvent(
        "content",
        0,
        {"type": "response.image_generation_call.partial_image", "partial_image_b64": "eA=="},
        "other.response.image_generation_call.partial_image",
    )
    event, _, _ = beat_behind(*told[:2], partial)
    assert event["type"] == "response.in_progress"
    assert [item["id"] for item in event["response"]["output"]] == ["ig_1"]


@pytest.mark.requirement("live:responses-beat")
def test_a_beat_between_two_replies_keeps_the_open_text() -> None:
    told = shown_of(streamed(message("Let me look. "), MANAGED))
    event, stream, made = beat_behind(*told[:-3])
    assert (event["type"], event["delta"]) == ("response.output_text.delta", "")
    stream += b"".join(map(made.write, told[-3:]))
    made.begin_reply()
    stream += made.beat("", "native")
    whole = ends(made, stream, streamed(message("Fifty.", "msg_2")))
    assert texts_of(whole["output"]) == ["Let me look. ", "Fifty."]


@pytest.mark.requirement("live:responses-beat")
def test_a_beat_that_comes_first_gives_the_stream_an_id_that_stays() -> None:
    made = writer()
    stream = made.beat("a\nb", "comment")
    assert stream == b": a b\n\n"
    assert made.id == ""
    stream += made.beat("", "native") + made.beat("", "native")
    assert [event["type"].rpartition(".")[2] for event in events(stream)] == [
        "created",
        "in_progress",
        "in_progress",
    ]
    assert ends(made, stream, streamed(message("Hi.")))["id"] == made.id == OWN.id


@pytest.mark.requirement("live:responses-error")
@pytest.mark.parametrize("shown", [0, 1, 4, 7])
def test_an_error_ends_a_stream_at_any_moment(shown: int) -> None:
    told = streamed(message("Hello."), id="resp_A")
    made = writer()
    stream = b"".join(map(made.write, told[:shown]))
    stream += made.error(b'{"error":{"code":"insufficient_quota","message":"no"}}')
    *before, flat, failed = events(stream)
    assert before[0]["type"] == "response.created"
    assert (flat["type"], flat["code"], flat["message"]) == ("error", "insufficient_quota", "no")
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "insufficient_quota", "message": "no"}
    assert failed["response"]["id"] == before[0]["response"]["id"]
    assert [item["id"] for item in failed["response"]["output"]] == ["msg_1"] * (shown > 1)
    numbers = [event["sequence_number"] for event in events(stream)]
    assert numbers == list(range(len(numbers)))


@pytest.mark.requirement("live:responses-answer")
@settings(max_examples=100)
@given(REPLIES, REPLIES)
def test_an_answer_has_all_that_was_shown_and_is_told_again_with_the_same_pieces(
    first: Body, last: Body
) -> None:
    first = {**first, "output": [*first["output"], MANAGED], "id": "resp_A"}
    made = writer()
    _, told = assemble(provider_events(first, by(5)))
    last_body = json.dumps({**last, "id": "resp_B"}).encode()
    stream = write(made, told, list(tell(last_body, ASKED)))
    answer = made.answer(last_body)

    whole = events(stream)[-1]["response"]
    assert {**json.loads(answer), "id": made.id} == whole
    again = writer()
    told_again = list(tell(answer, ASKED))
    stream_again = b"".join(map(again.write, told_again))
    assert items_of(stream_again) == items_of(stream)
    assert events(stream_again)[-1]["response"] == whole
    assert again.minted == {}
    assert len(told_texts(told_again)) == len(whole["output"])


@pytest.mark.requirement("live:responses-answer")
def test_the_answer_of_one_reply_keeps_its_bytes() -> None:
    body = json.dumps(response(message("Hi."), SEARCH), indent=1).encode()
    for spelled in (body, body.replace(b"resp_1", rb"resp\u005f1")):
        made = writer()
        stream = b"".join(map(made.write, tell(spelled, ASKED)))
        assert made.id == "resp_1"
        assert made.answer(spelled) == spelled
        assert stream.count(rb'"id":"resp\u005f1"') == 3 * (spelled != body)


@pytest.mark.requirement("live:responses-reasoning")
def test_a_thought_whose_run_was_not_shown_is_sealed_off_in_the_stream_and_its_output() -> None:
    told = shown_of(streamed(reasoning("Hm."), MANAGED))
    rules = ReasoningRules()
    made = writer()
    stream = b"".join(
        made.write(rules.unseal(event) if event.kind == "closing" else event) for event in told
    )
    made.begin_reply()
    last = [{**reasoning("So."), "id": "rs_2"}, message("Fifty.")]
    whole = ends(made, stream, streamed(*last))
    assert ["encrypted_content" in item for item in whole["output"]] == [False, True, False]
    assert "sealed+Hm." not in json.dumps(events(stream))


@pytest.mark.requirement("live:responses-lifecycle")
def test_members_that_a_redactor_has_read_and_written_are_written_as_before() -> None:
    told = streamed(reasoning("Hm."), SEARCH, message("Hi."), function_call("c1", "shell", "{}"))
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    redacted = [
        msgspec.structs.replace(event, data=decode(msgspec.json.encode(event.data)))
        for event in told
    ]
    assert write(writer(), redacted) == write(writer(), told)
