"""The answer to a Responses runner: its status, the members that repeat the
request, and the stream.
"""

from __future__ import annotations

import json

import pytest

from tests.mediate.items import BALANCE, answers, types
from tests.turns.desk import TERMINAL_TOOL, Desk, tool
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning


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
async def test_a_response_of_a_status_that_is_not_final_is_an_error(
    codex: Desk, status: str
) -> None:
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


@pytest.mark.requirement("responses:terminal")
async def test_a_turn_that_a_tool_ended_has_an_answer_without_the_call(codex: Desk) -> None:
    codex.grant(tool("trade", write=True, **TERMINAL_TOOL))
    answers(codex, reasoning("Buy."), function_call("call_1", "desk__trade", "{}"))
    await codex.asks("Buy")
    (item,) = json.loads(codex.body)["output"]
    assert item["content"][0]["text"] == "Done."
    assert item["id"]
