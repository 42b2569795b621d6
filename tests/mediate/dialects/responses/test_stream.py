"""The stream of a Responses answer, read by the real ``openai`` SDK."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from claw_mediate.dialects.responses.request import read_request
from claw_mediate.dialects.responses.stream import tell
from claw_mediate.dialects.responses.writer import ResponseWriter
from claw_mediate.dialects.streams import OwnOpening
from tests.mediate.items import NEW, PATCH, SEARCH, answers, streamed
from tests.mediate.openai_sdk import final_response
from tests.mediate.response_events import REPLIES, assemble, by, provider_events, told_texts
from tests.turns.desk import Desk
from tests.wires import Body, responses
from tests.wires.responses import function_call, message, reasoning, response

REQUEST = read_request(b'{"model":"m","input":"Hi","stream":true,"store":false}')
OPENING = OwnOpening("resp_turn1", "gpt-test", 7)


@pytest.mark.requirement("responses:stream")
async def test_the_streams_that_we_make_are_not_obfuscated_and_have_a_usage(codex: Desk) -> None:
    bare = response(message("Hi."))
    del bare["usage"]
    codex.model_answers(json.dumps(bare).encode())
    await codex.asks("Go", stream_options={"include_obfuscation": True})
    assert "stream_options" not in codex.model.bodies[-1]
    assert b"obfuscation" not in codex.raw
    if codex.stream:
        assert final_response(codex.raw).usage.total_tokens == 0
    else:
        assert "usage" not in json.loads(codex.body)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("responses:stream")
async def test_items_of_every_type_stream_as_the_strict_sdk_reads_them(codex: Desk) -> None:
    cited = message("It rose.", "msg_2")
    note = {
        "type": "url_citation",
        "url": "https://x.example",
        "title": "x",
        "start_index": 0,
        "end_index": 2,
    }
    cited["content"][0]["annotations"] = [note]
    refused = {
        **message(""),
        "id": "msg_3",
        "content": [{"type": "refusal", "refusal": "I can't."}],
    }
    long = message("word " * 400, "msg_4")
    output = [
        reasoning("Think."),
        cited,
        SEARCH,
        refused,
        PATCH,
        NEW,
        long,
        function_call("call_9", "shell", '{"cmd":"ls"}'),
    ]
    answers(codex, *output)
    await codex.asks("Go", native=["shell"], tools=[{"type": "custom", "name": "apply_patch"}])
    assert json.loads(codex.body)["output"] == output
    if codex.stream:
        assert [item.id for item in final_response(codex.raw).output] == [
            item["id"] for item in output
        ]


@pytest.mark.requirement("responses:keepalive")
@pytest.mark.parametrize("beats", [1, 3])
def test_a_stream_that_keepalives_opened_goes_on_under_its_id_and_numbers(beats: int) -> None:
    writer = ResponseWriter(REQUEST, OPENING)
    early = b""
    for _ in range(beats):
        early += writer.beat("note", "comment") + writer.beat("note", "native")
    body = json.dumps(response(message("Hello.")), separators=(",", ":")).encode()
    whole = early + b"".join(map(writer.write, tell(body, REQUEST)))
    assert json.loads(responses.assembled(whole))["id"] == "resp_turn1"
    assert final_response(whole).output_text == "Hello."

    writer = ResponseWriter(REQUEST, OPENING)
    for _ in range(beats):
        writer.beat("note", "native")
    error = early + writer.error(b'{"error":{"code":"x","message":"no"}}')
    assert responses.stream_error(error) is not None


@pytest.mark.requirement("responses:keepalive")
async def test_comments_alone_keep_no_stream_alive_for_long(
    codex: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_mediate.turns.response._SILENT_SECONDS", 0.02)
    monkeypatch.setattr("claw_mediate.turns.response._EVENT_SECONDS", 0.02)
    codex.settings = replace(codex.settings, keepalive=0.001, keepalive_first=0.001)
    codex.open()
    codex.stream, codex.messages = True, [codex.wire.user("How much?")]
    codex.model_says(("desk.balance", {}))
    codex.model_says("Fifty.")
    _, chunks = await streamed(
        codex, "desk.balance", lambda came: came.count(b"event: response.in_progress") == 3
    )
    assert b": claw" in chunks.partition(b"event: response.created")[0]
    assert final_response(chunks).output_text == "Fifty."


@pytest.mark.requirement("responses:stream-error")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("rate_limit_exceeded", ("rate_limit_exceeded", "no")),
        ("tool_budget_exhausted", ("server_error", "tool_budget_exhausted: no")),
        ("server_error", ("server_error", "no")),
    ],
)
def test_an_error_in_a_stream_comes_after_its_opening_with_a_known_code(
    code: str, told: tuple[str, str]
) -> None:
    body = json.dumps({"error": {"code": code, "message": "no"}}).encode()
    stream = ResponseWriter(REQUEST, OPENING).error(body)
    created, error, failed = [
        json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")
    ]
    assert [each["type"] for each in (created, error, failed)] == [
        "response.created",
        "error",
        "response.failed",
    ]
    assert (error["code"], error["message"]) == told
    assert (failed["response"]["error"]["code"], failed["response"]["error"]["message"]) == told


@pytest.mark.requirement("live:responses-channels")
@settings(max_examples=100)
@given(REPLIES)
def test_a_body_is_told_as_the_stream_that_brought_it(reply: Body) -> None:
    assembler, streamed_events = assemble(provider_events(reply, by(5)))
    told = list(tell(assembler.body(), REQUEST))
    assert told_texts(told) == told_texts(streamed_events)
    assert [told[0].kind, told[-1].kind] == ["opening", "end"]
    assert [event.kind for event in told if not event.text] == [
        event.kind
        for event in streamed_events
        if not event.text and not event.channel.startswith("other.")
    ]


@pytest.mark.requirement("responses:stream")
def test_a_text_is_told_in_parts_and_a_response_without_an_id_gets_one() -> None:
    body = json.dumps({**response(message("word " * 100)), "id": ""}, indent=1).encode()
    opening, *told, end = tell(body, REQUEST)
    assert len([event for event in told if event.text]) > 5
    assert opening.data["id"] == end.data["id"]
    assert bytes(end.data["id"]).startswith(b'"resp_')
