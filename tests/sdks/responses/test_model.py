"""The scripted API refuses what the real one refuses: else the real clients would
prove little at it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request

from tests.sdks.responses.model import CaseModel
from tests.wires import Body, responses

USER = {"role": "user", "content": "case:hidden 1;"}
CALL = responses.function_call("call_1", "shell", "{}")
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "a file"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
FUNCTION = {"type": "function", "name": "shell", "parameters": {}}


async def ask(model: CaseModel, **body: Any) -> tuple[int, Body]:
    sent = json.dumps({"model": "gpt-test", **body}).encode()

    async def receive() -> Any:
        return {"type": "http.request", "body": sent}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/responses",
        "headers": [],
        "query_string": b"",
    }
    response = await model(Request(scope, receive))
    return response.status_code, json.loads(bytes(response.body))


@pytest.mark.requirement("responses:clients")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": [USER, CALL]}, "No tool output found for function call call_1."),
        ({"input": [USER, OUTPUT]}, "No tool call found for function call output"),
        ({"input": [USER, CALL, OUTPUT, OUTPUT]}, "No tool call found for function call output"),
        ({"input": [USER, CALL, OUTPUT, CALL]}, "Duplicate item found with id fc_call_1."),
        ({"input": [USER, REASONING]}, "Items are not persisted when `store` is set to false."),
        ({"input": [USER, {**REASONING, "encrypted_content": "made up"}]}, "could not be verified"),
        ({"input": [{**CALL, "id": f"fc_{'1' * 62}"}]}, "Invalid 'input[0].id': string too long."),
        ({"input": [{**CALL, "id": "call_1"}]}, "Expected an ID that begins with 'fc'."),
        ({"input": [{"type": "item_reference", "id": "msg_9"}]}, "Item with id 'msg_9' not found."),
        (
            {"input": [USER], "previous_response_id": "resp_9"},
            "Previous response with id 'resp_9' not found.",
        ),
        (
            {"input": [USER], "conversation": {"id": "conv_9"}},
            "Conversation with id 'conv_9' not found.",
        ),
        (
            {"input": [USER], "previous_response_id": "resp_9", "conversation": "conv_9"},
            "Mutually exclusive parameters",
        ),
        ({"input": [USER], "tools": [FUNCTION, FUNCTION]}, "Invalid 'tools[1].name'"),
        (
            {"input": [USER], "tool_choice": {"type": "function", "name": "sh"}},
            "not found in 'tools' parameter",
        ),
        ({"input": [USER], "stream_options": {}}, "only allowed when 'stream' is enabled"),
        ({}, "Missing required parameter: 'input'."),
    ],
    ids=str,
)
async def test_the_provider_of_these_tests_refuses_it(body: Body, words: str) -> None:
    model = CaseModel()
    status, said = await ask(model, **body)
    assert status in {400, 404}
    assert words in said["error"]["message"]
    assert model.refused == [said["error"]["message"]]


@pytest.mark.requirement("responses:clients")
async def test_it_keeps_reasoning_with_what_it_led_to_and_takes_a_missing_strict_for_true() -> None:
    model = CaseModel()
    _, first = await ask(model, input=[USER], tools=[{**FUNCTION, "name": "desk__balance"}])
    assert [tool["strict"] for tool in first["tools"]] == [True]
    thought, call = first["output"]
    output = {**OUTPUT, "call_id": call["call_id"]}
    assert (await ask(model, input=[output], previous_response_id=first["id"]))[0] == 200
    assert (await ask(model, input=[USER, thought, call, output]))[0] == 200
    for items, words in (
        ([call, output], "without its required 'reasoning' item"),
        ([thought], "required following item"),
    ):
        _, refused = await ask(model, input=[USER, *items])
        assert words in refused["error"]["message"]
