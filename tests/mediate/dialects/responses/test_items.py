"""Items of Responses: calls, their names, ids and arguments, and who answers them."""

from __future__ import annotations

import json

import pytest

from claw_mediate.core.types import Image, Round, ToolResult
from claw_mediate.dialects.responses import DIALECT
from tests.mediate.items import BALANCE, NEW, PATCH, SEARCH, answers, sent, types
from tests.mediate.made import catalog, granted
from tests.turns.desk import Desk, tool
from tests.wires import Body
from tests.wires.responses import (
    COMPUTER_CALL,
    LOCAL_SHELL_CALL,
    function_call,
    message,
    reasoning,
    response,
)

APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "pay",
    "server_label": "bank",
    "arguments": "{}",
}
SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_s",
    "action": {"commands": ["ls"]},
    "environment": {"type": "local"},
}
EDIT = {
    "type": "apply_patch_call",
    "id": "ap_1",
    "call_id": "call_e",
    "operation": {"type": "delete_file", "path": "x"},
}


@pytest.mark.requirement("responses:items")
@pytest.mark.parametrize(
    "native",
    [APPROVAL, COMPUTER_CALL, PATCH, LOCAL_SHELL_CALL, SHELL, EDIT],
    ids=lambda item: item["type"],
)
async def test_a_native_item_before_a_managed_call_stops_both_with_an_answer_each(
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
    assert [item["approve"] for item in sent(codex) if "approve" in item] == [False] * told.count(
        "mcp_approval_response"
    )
    assert types(json.loads(codex.body)["output"]) == ["message"]


@pytest.mark.requirement("responses:items")
async def test_a_call_that_text_cannot_answer_leaves_with_its_reasoning(codex: Desk) -> None:
    answers(
        codex, reasoning("Click."), COMPUTER_CALL, {**reasoning("Look."), "id": "rs_2"}, BALANCE
    )
    codex.model_says("One by one, then.")
    await codex.asks("Go")
    assert [item.get("id") for item in sent(codex)] == ["rs_2", BALANCE["id"], None]
    assert codex.services.calls == []


@pytest.mark.requirement("responses:items")
async def test_items_that_are_not_calls_stay_in_the_transcript_unchanged(codex: Desk) -> None:
    said = [SEARCH, {**message("Let me see."), "phase": "commentary"}, NEW, BALANCE]
    answers(codex, *said)
    codex.model_says("Fifty.")
    await codex.asks("Go")
    assert sent(codex)[:-1] == said
    assert len(codex.services.calls) == 1
    assert types(json.loads(codex.body)["output"]) == ["message"]
    assert codex.answer.text == "Fifty."


@pytest.mark.requirement("responses:items")
@pytest.mark.parametrize(
    "native", [function_call("call_2", "shell", "{}"), PATCH], ids=lambda item: item["type"]
)
async def test_native_calls_at_the_end_leave_with_the_reasoning_for_them_alone(
    codex: Desk, native: Body
) -> None:
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
        (
            {"namespace": "team", "name": "desk__balance"},
            [{"type": "namespace", "name": "team", "tools": []}],
            "native",
        ),
        ({"namespace": "team", "name": "desk__balance"}, [], "unknown"),
        ({"name": "found_later"}, [{"type": "tool_search"}], "native"),
        (
            {"name": "found_later"},
            [{"type": "function", "name": "x", "strict": False, "defer_loading": True}],
            "native",
        ),
        ({"name": "found_later"}, [], "unknown"),
    ],
)
async def test_a_call_belongs_to_whoever_declared_its_name(
    codex: Desk, call: Body, tools: list[Body], owner: str
) -> None:
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
async def test_a_tool_that_an_item_declares_is_the_runners(codex: Desk, kind: str) -> None:
    codex.messages.append(
        {"type": kind, "tools": [{"type": "function", "name": "found_later", "parameters": {}}]}
    )
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
async def test_missing_and_repeated_ids_are_replaced_by_new_ones(codex: Desk) -> None:
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
async def test_empty_arguments_count_as_none_and_are_checked_by_the_schema(
    codex: Desk,
) -> None:
    codex.grant(
        tool("balance"),
        tool("trade", write=True, schema={"type": "object", "required": ["symbol"]}),
    )
    answers(
        codex,
        function_call("call_1", "desk__balance", ""),
        function_call("call_2", "desk__trade", ""),
    )
    codex.model_says("Sorry.")
    await codex.asks("Go")
    assert len(codex.services.calls) == 1
    assert "schema_validation" in sent(codex)[-1]["output"]


@pytest.mark.requirement("responses:arguments")
@pytest.mark.parametrize("whole", [True, False])
async def test_a_call_that_was_cut_off_never_runs_and_is_resent_as_valid_json(
    codex: Desk, whole: bool
) -> None:
    text = "{}" if whole else '{"symbol": "NV'
    cut = (
        {}
        if whole
        else {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    )
    answers(
        codex, {**function_call("call_1", "desk__balance", text), "status": "incomplete"}, **cut
    )
    codex.model_says("Sorry.")
    await codex.asks("Go")
    assert codex.services.calls == []
    call, told = sent(codex)
    assert isinstance(json.loads(call["arguments"]), dict)
    assert json.loads(call["arguments"]).get("invalid_json", "{}") == text
    assert "invalid_arguments" in told["output"]


@pytest.mark.requirement("responses:reasoning")
async def test_reasoning_that_cannot_be_resent_leaves_with_the_ids_of_its_results(
    codex: Desk,
) -> None:
    unsealed = {
        name: value for name, value in reasoning("Look.").items() if name != "encrypted_content"
    }
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


@pytest.mark.requirement("mcp:images")
def test_an_image_of_a_result_is_a_part_of_the_output() -> None:
    body = json.dumps(response(BALANCE)).encode()
    reply = DIALECT.read_response(body, catalog(granted("desk.balance")))
    (call,) = reply.calls
    result = ToolResult(call, b'{"ok":true}', ok=True, images=(Image("image/png", "iVBORw0KGgo="),))
    output = json.loads(
        DIALECT.write_hidden_rounds([Round(1, reply, (result,))], replayed=False)[-1]
    )["output"]
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    assert output == [{"type": "input_text", "text": '{"ok":true}'}, picture]
    assert (
        "input_image"
        not in DIALECT.summarize(
            DIALECT.write_hidden_rounds([Round(1, reply, (result,))], replayed=False)[-1]
        ).decode()
    )
