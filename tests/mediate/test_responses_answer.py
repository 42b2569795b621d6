"""The answer to a Responses runner: its status, the members that repeat the
request, and the stream.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from claw_mediate.dialects.base import StreamOpening
from claw_mediate.dialects.responses import response as dialect
from tests.mediate.items import BALANCE, NEW, PATCH, SEARCH, answers, streamed, types
from tests.mediate.openai_sdk import final_response
from tests.turns.desk import TERMINAL_TOOL, Desk, tool
from tests.wires import Body, responses
from tests.wires.responses import function_call, message, reasoning, response


@pytest.mark.requirement("responses:status")
async def test_an_answer_that_ran_out_of_tokens_is_incomplete(codex: Desk) -> None:
    details = {"reason": "max_output_tokens"}
    answers(codex, message("It is"), status="incomplete", incomplete_details=details)
    await codex.asks("Go")
    assert [json.loads(codex.body)[name] for name in ("status", "incomplete_details")] == [
        "incomplete",
        details,
    ]
    assert codex.stream == (b"event: response.incomplete\n" in codex.raw)


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


@pytest.mark.requirement("responses:status")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("server_error", 502),
        ("vector_store_timeout", 502),
        ("new_code", 502),
        ("rate_limit_exceeded", 429),
        ("insufficient_quota", 402),
        ("invalid_prompt", 400),
        ("image_too_large", 400),
    ],
)
async def test_a_failed_response_counts_as_an_error_of_its_kind(
    codex: Desk, code: str, status: int
) -> None:
    answers(codex, status="failed", error={"code": code, "message": "no"})
    await codex.asks("Go")
    assert codex.status == status
    assert codex.history()[-1]["status_code"] == status


@pytest.mark.requirement("responses:status")
@pytest.mark.parametrize("status", ["cancelled", "queued", "in_progress"])
async def test_a_response_that_is_not_done_is_a_bad_one(codex: Desk, status: str) -> None:
    answers(codex, message("Hi."), status=status)
    await codex.asks("Go")
    assert codex.status == 502


@pytest.mark.requirement("responses:status")
async def test_calls_of_a_filtered_response_never_run(codex: Desk) -> None:
    details = {"reason": "content_filter"}
    answers(
        codex,
        message("I was"),
        reasoning("Buy."),
        BALANCE,
        status="incomplete",
        incomplete_details=details,
    )
    await codex.asks("Go")
    assert codex.services.calls == []
    assert types(json.loads(codex.body)["output"]) == ["message"]
    assert json.loads(codex.body)["incomplete_details"] == details


@pytest.mark.requirement("responses:echo")
@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_response_repeats_the_runners_request_and_not_ours(
    codex: Desk, rounds: int
) -> None:
    own: list[Body] = [
        {"type": "web_search"},
        {"type": "function", "name": "shell", "parameters": {}, "strict": False},
    ]
    managed = {
        "type": "function",
        "name": "desk__balance",
        "description": "balance of the desk",
        "strict": False,
    }
    echo: Body = {
        "tools": [*own, managed],
        "tool_choice": "auto",
        "instructions": "Be brief.\n\nA secret feed.",
    }
    for _ in range(rounds):
        answers(codex, BALANCE, **echo)
    answers(codex, message("Hi."), **echo)
    await codex.asks("Go", tools=own, tool_choice="required", instructions="Be brief.")
    shown = json.loads(codex.body)
    assert shown["tools"] == own
    assert (shown["tool_choice"], shown["instructions"]) == ("required", "Be brief.")
    assert "desk__" not in codex.raw.decode()
    assert "secret" not in codex.raw.decode()


@pytest.mark.requirement("responses:echo")
async def test_nothing_is_added_to_a_response_that_repeats_nothing(codex: Desk) -> None:
    bare = {"object": "response", "output": [message("Hi.")]}
    codex.model_answers(json.dumps(bare).encode())
    await codex.asks("Go")
    shown = json.loads(codex.body)
    assert shown.keys() - {"id", "status", "usage", "error", "incomplete_details"} == bare.keys()


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


@pytest.mark.requirement("responses:terminal")
async def test_a_turn_that_a_tool_ended_is_an_answer_of_its_own(codex: Desk) -> None:
    codex.grant(tool("trade", write=True, **TERMINAL_TOOL))
    answers(codex, reasoning("Buy."), function_call("call_1", "desk__trade", "{}"))
    await codex.asks("Buy")
    (item,) = json.loads(codex.body)["output"]
    assert item["content"][0]["text"] == "Done."
    assert item["id"]


@pytest.mark.requirement("responses:keepalive")
@pytest.mark.parametrize("beats", [1, 3])
def test_a_stream_that_keepalives_opened_goes_on_under_its_id_and_numbers(beats: int) -> None:
    opening = StreamOpening("resp_turn1", "gpt-test", 7)
    early = b""
    for beat in range(beats):
        early += dialect.keepalive("note", "comment", opening)
        early += dialect.keepalive("note", "native", structs.replace(opening, beats=beat))
    opened = structs.replace(opening, beats=beats)
    request = dialect.read_request(b'{"model":"m","input":"Hi","stream":true,"store":false}')
    body = json.dumps(response(message("Hello.")), separators=(",", ":")).encode()
    whole = early + b"".join(dialect.stream(body, request, opened))
    assert json.loads(responses.assembled(whole))["id"] == "resp_turn1"
    assert final_response(whole).output_text == "Hello."
    error = early + dialect.stream_error(b'{"error":{"code":"x","message":"no"}}', opened)
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
def test_an_error_in_a_stream_has_a_code_that_clients_know_behind_a_beginning(
    code: str, told: tuple[str, str]
) -> None:
    body = json.dumps({"error": {"code": code, "message": "no"}}).encode()
    stream = dialect.stream_error(body, StreamOpening("resp_turn1", "gpt-test", 7))
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
