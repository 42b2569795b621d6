"""What only OpenAI's Responses protocol has: items, reasoning, and a response that repeats its request."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from claw_mediate.core.http import Forward, RunnerResponse
from claw_mediate.core.types import Image, Round, ToolResult
from claw_mediate.dialects.base import StreamOpening, UnreadableRequestError
from claw_mediate.dialects.responses import response as dialect
from tests.mediate.desk import TERMINAL_TOOL, Desk, tool
from tests.mediate.made import catalog, granted
from tests.mediate.openai_sdk import final_response
from tests.mediate.scripted import Thought
from tests.wires import Body, responses
from tests.wires.responses import function_call, message, reasoning, response

TITLE = "You are a title generator. You output ONLY a thread title."
BALANCE = function_call("call_1", "desk__balance", "{}")
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "bank", "arguments": "{}"}
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "call_c", "action": {"type": "click"}, "status": "completed"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "NVDA"}}
NEW = {"type": "hologram", "id": "ho_1", "beam": {"n": 9007199254740993}}
PATCH = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_p", "name": "apply_patch", "input": "*** Begin Patch"}
LOCAL = {"type": "local_shell_call", "id": "ls_1", "call_id": "call_l", "action": {"command": ["ls"]}, "status": "completed"}
SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_s",
    "action": {"commands": ["ls"]},
    "environment": {"type": "local"},
}
EDIT = {"type": "apply_patch_call", "id": "ap_1", "call_id": "call_e", "operation": {"type": "delete_file", "path": "x"}}


def answers(desk: Desk, *output: Body, **more: Any) -> None:
    desk.model_answers(json.dumps(response(*output, **more)).encode())


def sent(desk: Desk) -> list[Body]:
    """Return the items of the last request behind the user's first one."""
    return desk.model.messages()[1:]


def types(items: list[Body]) -> list[str]:
    return [item["type"] for item in items]


@pytest.mark.requirement("responses:injection")
async def test_a_managed_tool_is_written_with_strict_false_behind_the_runners(codex: Desk) -> None:
    codex.model_says("Hi.")
    await codex.asks("Hi", native=["shell"])
    tools = codex.model.bodies[-1]["tools"]
    assert [each["name"] for each in tools] == ["shell", "desk__balance", "desk__quote", "desk__trade"]
    assert {each["strict"] for each in tools} == {False}
    codex.model_says("Hi.")
    await codex.asks("Hi", native=["shell"], tools=[{"type": "programmatic_tool_calling"}])
    assert codex.model.bodies[-1]["tools"][-1]["allowed_callers"] == ["direct"]


@pytest.mark.requirement("responses:injection")
@pytest.mark.parametrize("own", [{}, {"tools": None}, {"tools": []}], ids=str)
async def test_where_the_runner_has_no_tools_the_member_holds_the_managed_ones(codex: Desk, own: Body) -> None:
    codex.model_says("Hi.")
    await codex.asks("Hi", **own)
    assert [each["name"] for each in codex.model.bodies[-1]["tools"]] == ["desk__balance", "desk__quote", "desk__trade"]


@pytest.mark.requirement("responses:injection")
async def test_tools_in_a_namespace_count_to_the_most_that_a_request_may_have(codex: Desk) -> None:
    inner = [{"type": "function", "name": f"t{number}", "parameters": {}} for number in range(125)]
    codex.model_says("Hi.")
    await codex.asks("Hi", tools=[{"type": "namespace", "name": "team", "tools": inner}])
    assert [each["name"] for each in codex.model.bodies[-1]["tools"]] == ["team", "desk__balance", "desk__quote"]


@pytest.mark.requirement("responses:text-input")
async def test_a_text_stays_a_text_until_a_round_is_put_behind_it(codex: Desk) -> None:
    codex.messages = []
    codex.model_says("Hi.")
    await codex.asks("unused", input="Say hello")
    assert codex.model.bodies[-1]["input"] == "Say hello"
    codex.model_says(("desk.balance", {}))
    codex.model_says("Fifty.")
    await codex.asks("unused", input="How much?")
    assert codex.model.bodies[-2]["input"] == "How much?"
    assert codex.model.bodies[-1]["input"][0] == {"role": "user", "content": "How much?"}
    assert types(sent(codex)) == ["function_call", "function_call_output"]


@pytest.mark.requirement("responses:not-mediated")
@pytest.mark.parametrize(
    ("more", "event"),
    [
        ({"background": True}, "background_not_mediated"),
        ({"generate": False}, "no_generation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt_template"),
        ({"tool_choice": "none"}, "tool_choice_none"),
        ({"input": None}, "no_input"),
    ],
)
async def test_a_request_that_can_not_be_mediated_passes_with_one_event(codex: Desk, more: Body, event: str) -> None:
    assert await codex.asks("Hi", **more) == "\ncllama → model    the runner's request, as it is\n"
    assert codex.interventions() == [event]


@pytest.mark.requirement("responses:side-requests")
@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"input": [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]}, "compaction-trigger"),
        ({"client_metadata": {"x-codex-turn-metadata": '{"request_kind":"compaction"}'}}, "codex-compaction"),
        ({"instructions": TITLE}, "opencode-title"),
        ({"input": [{"role": "developer", "content": TITLE}, {"role": "user", "content": "Hi"}]}, "opencode-title"),
    ],
)
async def test_housekeeping_is_known_by_what_the_runners_program_writes(codex: Desk, more: Body, rule: str) -> None:
    assert await codex.asks("Hi", **more) == "\ncllama → model    the runner's request, as it is\n"
    assert codex.interventions() == [f"housekeeping:{rule}"]


@pytest.mark.requirement("responses:side-requests")
async def test_a_compaction_gets_the_hidden_rounds_and_no_tools(codex: Desk) -> None:
    codex.model_says(("desk.balance", {}))
    codex.model_says("You have fifty.")
    await codex.asks("How much?")
    codex.messages.append({"type": "compaction_trigger"})
    exchange = await codex.mediator.exchange(codex._admitted(), codex._request())
    assert isinstance(exchange, Forward)
    assert exchange.body is not None
    sent = json.loads(exchange.body)
    assert "tools" not in sent
    kinds = [item.get("type") for item in sent["input"]]
    assert kinds == [None, "function_call", "function_call_output", "message", "compaction_trigger"]


@pytest.mark.requirement("responses:items")
@pytest.mark.parametrize("native", [APPROVAL, COMPUTER, PATCH, LOCAL, SHELL, EDIT], ids=lambda item: item["type"])
async def test_a_native_item_before_a_managed_call_stops_both_and_each_is_told_in_its_own_form(
    codex: Desk, native: Body
) -> None:
    answers(codex, reasoning("Both."), native, BALANCE)
    codex.model_says("One by one, then.")
    await codex.asks("Go", tools=[{"type": "custom", "name": "apply_patch"}])
    assert codex.services.calls == []
    told = {"mcp_approval_request": ["mcp_approval_response"], "computer_call": []}.get(
        native["type"], [f"{native['type']}_output"]
    )
    own = [native["type"]] if told else []
    assert types(sent(codex)) == ["reasoning", *own, "function_call", *told, "function_call_output"]
    assert "managed_tools_first" in json.dumps(sent(codex)[-1])
    assert [item["approve"] for item in sent(codex) if "approve" in item] == [False] * told.count("mcp_approval_response")
    assert types(json.loads(codex.body)["output"]) == ["message"]


@pytest.mark.requirement("responses:items")
async def test_a_call_without_an_answer_in_text_leaves_with_its_reasoning(codex: Desk) -> None:
    answers(codex, reasoning("Click."), COMPUTER, {**reasoning("Look."), "id": "rs_2"}, BALANCE)
    codex.model_says("One by one, then.")
    await codex.asks("Go")
    assert [item.get("id") for item in sent(codex)] == ["rs_2", BALANCE["id"], None]
    assert codex.services.calls == []


@pytest.mark.requirement("responses:items")
async def test_what_is_no_call_stays_in_the_transcript_as_it_came(codex: Desk) -> None:
    said = [SEARCH, {**message("Let me see."), "phase": "commentary"}, NEW, BALANCE]
    answers(codex, *said)
    codex.model_says("Fifty.")
    await codex.asks("Go")
    assert sent(codex)[:-1] == said
    assert len(codex.services.calls) == 1
    assert types(json.loads(codex.body)["output"]) == ["message"]
    assert codex.answer.text == "Fifty."


@pytest.mark.requirement("responses:items")
@pytest.mark.parametrize("native", [function_call("call_2", "shell", "{}"), PATCH], ids=lambda item: item["type"])
async def test_a_native_suffix_leaves_with_the_reasoning_that_led_to_nothing_else(codex: Desk, native: Body) -> None:
    second = {**reasoning("Now list."), "id": "rs_2"}
    answers(codex, reasoning("Look."), BALANCE, second, native)
    codex.model_says("Done.")
    await codex.asks("Go", native=["shell"], tools=[{"type": "custom", "name": "apply_patch"}])
    assert len(codex.services.calls) == 1
    assert types(sent(codex)) == ["reasoning", "function_call", "function_call_output"]


@pytest.mark.requirement("responses:names")
@pytest.mark.parametrize(
    ("call", "tools", "owner"),
    [
        ({"namespace": "team", "name": "desk__balance"}, [{"type": "namespace", "name": "team", "tools": []}], "native"),
        ({"namespace": "team", "name": "desk__balance"}, [], "unknown"),
        ({"name": "found_later"}, [{"type": "tool_search"}], "native"),
        ({"name": "found_later"}, [{"type": "function", "name": "x", "strict": False, "defer_loading": True}], "native"),
        ({"name": "found_later"}, [], "unknown"),
    ],
)
async def test_a_call_belongs_to_whom_its_name_was_declared_by(codex: Desk, call: Body, tools: list[Body], owner: str) -> None:
    answers(codex, {**BALANCE, **call})
    if owner == "unknown":
        codex.model_says("Sorry.")
    await codex.asks("Go", tools=tools)
    assert codex.services.calls == []
    if owner == "native":
        assert [item["type"] for item in json.loads(codex.body)["output"]] == ["function_call"]
    else:
        assert "unknown_tool" in sent(codex)[-1]["output"]


@pytest.mark.requirement("responses:names")
@pytest.mark.parametrize("kind", ["tool_search_output", "additional_tools"])
async def test_a_tool_that_an_item_brought_is_the_runners(codex: Desk, kind: str) -> None:
    codex.messages.append({"type": kind, "tools": [{"type": "function", "name": "found_later", "parameters": {}}]})
    answers(codex, {**BALANCE, "name": "found_later"})
    await codex.asks("Go")
    assert [call.name for call in codex.answer.calls] == ["found_later"]


@pytest.mark.requirement("responses:names")
async def test_a_free_text_call_with_a_managed_name_never_runs(codex: Desk) -> None:
    answers(codex, {**PATCH, "name": "desk__balance"})
    codex.model_says("Sorry.")
    await codex.asks("Go")
    assert codex.services.calls == []
    assert "invalid_arguments" in sent(codex)[-1]["output"]


@pytest.mark.requirement("responses:names")
async def test_a_runners_tool_that_has_a_managed_name_keeps_it(codex: Desk) -> None:
    answers(codex, BALANCE)
    await codex.asks("Go", native=["desk__balance"])
    assert codex.services.calls == []
    assert [call.name for call in codex.answer.calls] == ["desk__balance"]
    names = [each["name"] for each in codex.model.bodies[-1]["tools"]]
    assert names.count("desk__balance") == 1
    assert len(names) == 4


@pytest.mark.requirement("responses:ids")
async def test_missing_and_repeated_ids_are_minted(codex: Desk) -> None:
    nameless = {name: value for name, value in BALANCE.items() if name != "id"}
    answers(codex, nameless, {**BALANCE, "name": "desk__quote"})
    codex.model_says("Done.")
    await codex.asks("Go")
    ids = [item["call_id"] for item in sent(codex)]
    assert len(set(ids)) == 2
    assert ids[:2] == ids[2:]
    assert len(codex.services.calls) == 2
    assert "id" not in sent(codex)[0]
    answers(codex, {**function_call("", "shell", "{}"), "id": ""})
    await codex.asks("And?", native=["shell"])
    item = json.loads(codex.body)["output"][0]
    assert item["id"]
    assert item["call_id"].isalnum()


@pytest.mark.requirement("responses:arguments")
async def test_empty_arguments_are_those_of_a_call_without_any_and_held_to_the_schema(codex: Desk) -> None:
    codex.grant(tool("balance"), tool("trade", write=True, schema={"type": "object", "required": ["symbol"]}))
    answers(codex, function_call("call_1", "desk__balance", ""), function_call("call_2", "desk__trade", ""))
    codex.model_says("Sorry.")
    await codex.asks("Go")
    assert len(codex.services.calls) == 1
    assert "schema_validation" in sent(codex)[-1]["output"]


@pytest.mark.requirement("responses:arguments")
@pytest.mark.parametrize("whole", [True, False])
async def test_a_call_that_was_cut_off_never_runs_and_its_arguments_stay_an_objects_json(codex: Desk, whole: bool) -> None:
    text = "{}" if whole else '{"symbol": "NV'
    cut = {} if whole else {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    answers(codex, {**function_call("call_1", "desk__balance", text), "status": "incomplete"}, **cut)
    codex.model_says("Sorry.")
    await codex.asks("Go")
    assert codex.services.calls == []
    call, told = sent(codex)
    assert isinstance(json.loads(call["arguments"]), dict)
    assert json.loads(call["arguments"]).get("invalid_json", "{}") == text
    assert "invalid_arguments" in told["output"]


@pytest.mark.requirement("responses:status")
async def test_an_answer_that_ran_out_of_tokens_is_incomplete(codex: Desk) -> None:
    details = {"reason": "max_output_tokens"}
    answers(codex, message("It is"), status="incomplete", incomplete_details=details)
    await codex.asks("Go")
    assert [json.loads(codex.body)[name] for name in ("status", "incomplete_details")] == ["incomplete", details]
    assert codex.stream == (b"event: response.incomplete\n" in codex.raw)


@pytest.mark.requirement("responses:members")
async def test_what_only_the_provider_acts_on_is_in_every_call_and_limits_no_managed_one(codex: Desk) -> None:
    logprobs = [{"token": "5", "logprob": 0, "bytes": [53], "top_logprobs": []}]
    last = message('{"balance":50}', "msg_2")
    last["content"][0]["logprobs"] = logprobs
    members = {
        "parallel_tool_calls": False,
        "max_tool_calls": 1,
        "include": ["message.output_text.logprobs"],
        "text": {"format": {"type": "json_schema", "name": "b", "schema": {"type": "object"}, "strict": True}},
    }
    answers(codex, message("Let me see."), BALANCE, function_call("call_2", "desk__quote", "{}"))
    answers(codex, function_call("call_3", "desk__quote", '{"n":2}'))
    answers(codex, last)
    await codex.asks("Go", **members)
    assert len(codex.services.calls) == 3
    assert [{name: body[name] for name in members} for body in codex.model.bodies] == [members] * 3
    assert json.loads(codex.body)["output"] == [last]


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


@pytest.mark.requirement("responses:reasoning")
async def test_reasoning_that_can_not_be_sent_back_leaves_with_the_ids_of_what_it_led_to(codex: Desk) -> None:
    unsealed = {name: value for name, value in reasoning("Look.").items() if name != "encrypted_content"}
    answers(codex, unsealed, BALANCE)
    codex.model_says("Fifty.")
    await codex.asks("Go")
    assert types(sent(codex)) == ["function_call", "function_call_output"]
    assert "id" not in sent(codex)[0]


@pytest.mark.requirement("responses:programmatic")
async def test_the_output_of_a_programmatic_call_names_its_caller(codex: Desk) -> None:
    caller = {"type": "program", "caller_id": "prog_1"}
    program = {"type": "program", "id": "prog_1", "code": "x()", "fingerprint": "f"}
    answers(codex, program, {**BALANCE, "caller": caller})
    codex.model_says("Fifty.")
    await codex.asks("Go")
    assert sent(codex)[0] == program
    assert sent(codex)[-1]["caller"] == caller


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
async def test_a_failed_response_counts_as_an_error_of_its_kind(codex: Desk, code: str, status: int) -> None:
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
    answers(codex, message("I was"), reasoning("Buy."), BALANCE, status="incomplete", incomplete_details=details)
    await codex.asks("Go")
    assert codex.services.calls == []
    assert types(json.loads(codex.body)["output"]) == ["message"]
    assert json.loads(codex.body)["incomplete_details"] == details


@pytest.mark.requirement("responses:echo")
@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_response_repeats_the_runners_request_and_not_ours(codex: Desk, rounds: int) -> None:
    own: list[Body] = [{"type": "web_search"}, {"type": "function", "name": "shell", "parameters": {}, "strict": False}]
    managed = {"type": "function", "name": "desk__balance", "description": "balance of the desk", "strict": False}
    echo: Body = {"tools": [*own, managed], "tool_choice": "auto", "instructions": "Be brief.\n\nA secret feed."}
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


@pytest.mark.requirement("responses:choice")
async def test_a_forced_choice_is_released_once_and_allowed_tools_stay_allowed(codex: Desk) -> None:
    forced = {"type": "function", "name": "desk.balance"}
    codex.model_says(("desk.balance", {}))
    codex.model_says("Fifty.")
    await codex.asks("Go", tool_choice=forced)
    choices = [body["tool_choice"] for body in codex.model.bodies]
    assert choices == [{"type": "function", "name": "desk__balance"}, "auto"]
    answers(codex, message("Hi."), tool_choice={"type": "function", "name": "desk__balance"})
    await codex.asks("Go", tool_choice=forced)
    assert json.loads(codex.body)["tool_choice"] == forced
    own = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "shell"}]}
    codex.model_says("Hi.")
    await codex.asks("Go", native=["shell"], tool_choice=own)
    assert codex.model.bodies[-1]["tool_choice"] == own
    assert len(codex.model.bodies[-1]["tools"]) == 4
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [forced]}
    codex.model_says(("desk.balance", {}))
    codex.model_says("Fifty.")
    await codex.asks("Again", tool_choice=allowed)
    tools = [{"type": "function", "name": "desk__balance"}]
    assert codex.model.bodies[-1]["tool_choice"] == {**allowed, "mode": "auto", "tools": tools}


@pytest.mark.requirement("responses:context")
async def test_hidden_rounds_before_a_compaction_are_not_woven_in(codex: Desk) -> None:
    codex.model_says(("desk.balance", {}))
    codex.model_says("You have fifty.")
    await codex.asks("How much?")
    codex.messages.append({"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"})
    codex.model_says("Yes.")
    assert await codex.asks("Sure?") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")


@pytest.mark.requirement("responses:anchors")
@pytest.mark.parametrize("form", ["as it came", "without ids and status", "without what it thought", "as text"])
async def test_an_answer_is_known_again_in_every_form_in_which_runners_send_it(codex: Desk, form: str) -> None:
    codex.model_says(("desk.balance", {}))
    codex.model_says("You have fifty.") if form == "as text" else codex.model_says(Thought("Fifty."), "You have fifty.")
    await codex.asks("How much?")
    codex.messages[-1] = codex.wire.echoes(codex.messages[-1])[form]
    codex.model_says("Yes.")
    assert "2 hidden messages" in await codex.asks("Sure?")


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("responses:stream")
async def test_items_of_every_type_stream_as_the_strict_sdk_reads_them(codex: Desk) -> None:
    cited = message("It rose.", "msg_2")
    note = {"type": "url_citation", "url": "https://x.example", "title": "x", "start_index": 0, "end_index": 2}
    cited["content"][0]["annotations"] = [note]
    refused = {**message(""), "id": "msg_3", "content": [{"type": "refusal", "refusal": "I can't."}]}
    long = message("word " * 400, "msg_4")
    output = [reasoning("Think."), cited, SEARCH, refused, PATCH, NEW, long, function_call("call_9", "shell", '{"cmd":"ls"}')]
    answers(codex, *output)
    await codex.asks("Go", native=["shell"], tools=[{"type": "custom", "name": "apply_patch"}])
    assert json.loads(codex.body)["output"] == output
    if codex.stream:
        assert [item.id for item in final_response(codex.raw).output] == [item["id"] for item in output]


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
        early += dialect.keepalive("note", "native", replace(opening, beats=beat))
    opened = replace(opening, beats=beats)
    request = dialect.read_request(b'{"model":"m","input":"Hi","stream":true,"store":false}')
    body = json.dumps(response(message("Hello.")), separators=(",", ":")).encode()
    whole = early + b"".join(dialect.stream(body, request, opened))
    assert json.loads(responses.assembled(whole))["id"] == "resp_turn1"
    assert final_response(whole).output_text == "Hello."
    error = early + dialect.stream_error(b'{"error":{"code":"x","message":"no"}}', opened)
    assert responses.stream_error(error) is not None


@pytest.mark.requirement("responses:keepalive")
async def test_comments_alone_keep_no_stream_alive_for_long(codex: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claw_mediate.turns.response._SILENT_SECONDS", 0.02)
    monkeypatch.setattr("claw_mediate.turns.response._EVENT_SECONDS", 0.02)
    codex.settings = dataclasses.replace(codex.settings, keepalive=0.001, keepalive_first=0.001)
    codex.open()
    codex.stream, codex.messages = True, [codex.wire.user("How much?")]
    codex.model_says(("desk.balance", {}))
    codex.model_says("Fifty.")
    gate = codex.services.gates["desk.balance"] = asyncio.Event()
    exchange = await codex.mediator.exchange(codex._admitted(), codex._request())
    assert isinstance(exchange, RunnerResponse)
    chunks = b""
    async for chunk in exchange.chunks:
        chunks += chunk
        if chunks.count(b"event: response.in_progress") == 3:
            gate.set()
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
def test_an_error_in_a_stream_has_a_code_that_clients_know_behind_a_beginning(code: str, told: tuple[str, str]) -> None:
    body = json.dumps({"error": {"code": code, "message": "no"}}).encode()
    stream = dialect.stream_error(body, StreamOpening("resp_turn1", "gpt-test", 7))
    created, error, failed = [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")]
    assert [each["type"] for each in (created, error, failed)] == ["response.created", "error", "response.failed"]
    assert (error["code"], error["message"]) == told
    assert (failed["response"]["error"]["code"], failed["response"]["error"]["message"]) == told


@pytest.mark.requirement("responses:items")
def test_a_request_of_fifty_thousand_items_is_read_and_one_more_is_refused() -> None:
    items = ",".join(['{"role":"user","content":"Hi"}'] * 50_000)
    dialect.read_request(f'{{"model":"m","input":[{items}]}}'.encode())
    with pytest.raises(UnreadableRequestError, match="50000"):
        dialect.read_request(f'{{"model":"m","input":[{items},{{}}]}}'.encode())


@pytest.mark.requirement("mcp:images")
def test_an_image_of_a_result_is_a_part_of_the_output() -> None:
    body = json.dumps(response(BALANCE)).encode()
    reply = dialect.read_response(body, catalog(granted("desk.balance")))
    (call,) = reply.calls
    result = ToolResult(call, b'{"ok":true}', ok=True, images=(Image("image/png", "iVBORw0KGgo="),))
    output = json.loads(dialect.write_hidden_rounds([Round(1, reply, (result,))], replayed=False)[-1])["output"]
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    assert output == [{"type": "input_text", "text": '{"ok":true}'}, picture]
    assert (
        "input_image"
        not in dialect.summarize(dialect.write_hidden_rounds([Round(1, reply, (result,))], replayed=False)[-1]).decode()
    )
