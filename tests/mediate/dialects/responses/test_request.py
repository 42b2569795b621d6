"""Requests of Responses, as the model gets them, and those that are not mediated."""

from __future__ import annotations

import json

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from claw_mediate.core.http import Forward
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.responses import DIALECT
from tests.mediate.any_reply import CATALOG
from tests.mediate.items import BALANCE, answers, sent, types
from tests.turns.desk import Desk
from tests.turns.scripted import Thought
from tests.wires import Body
from tests.wires.responses import function_call, message

TITLE = "You are a title generator. You output ONLY a thread title."


@pytest.mark.requirement("responses:injection")
async def test_managed_tools_come_after_the_runners_and_are_not_strict(codex: Desk) -> None:
    codex.model_says("Hi.")
    await codex.asks("Hi", native=["shell"])
    tools = codex.model.bodies[-1]["tools"]
    assert [each["name"] for each in tools] == [
        "shell",
        "desk__balance",
        "desk__quote",
        "desk__trade",
    ]
    assert {each["strict"] for each in tools} == {False}
    codex.model_says("Hi.")
    await codex.asks("Hi", native=["shell"], tools=[{"type": "programmatic_tool_calling"}])
    assert codex.model.bodies[-1]["tools"][-1]["allowed_callers"] == ["direct"]


@pytest.mark.requirement("responses:injection")
@pytest.mark.parametrize("own", [{}, {"tools": None}, {"tools": []}], ids=str)
async def test_a_request_without_tools_gets_the_managed_ones(codex: Desk, own: Body) -> None:
    codex.model_says("Hi.")
    await codex.asks("Hi", **own)
    assert [each["name"] for each in codex.model.bodies[-1]["tools"]] == [
        "desk__balance",
        "desk__quote",
        "desk__trade",
    ]


@pytest.mark.requirement("responses:injection")
async def test_tools_in_a_namespace_count_towards_the_limit_of_a_request(codex: Desk) -> None:
    inner = [{"type": "function", "name": f"t{number}", "parameters": {}} for number in range(125)]
    codex.model_says("Hi.")
    await codex.asks("Hi", tools=[{"type": "namespace", "name": "team", "tools": inner}])
    assert [each["name"] for each in codex.model.bodies[-1]["tools"]] == [
        "team",
        "desk__balance",
        "desk__quote",
    ]


@pytest.mark.requirement("responses:text-input")
async def test_an_input_of_text_stays_text_until_a_round_follows_it(codex: Desk) -> None:
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
async def test_a_request_that_can_not_be_mediated_passes_with_one_event(
    codex: Desk, more: Body, event: str
) -> None:
    assert await codex.asks("Hi", **more) == "\ncllama → model    the runner's request, as it is\n"
    assert codex.interventions() == [event]


@pytest.mark.requirement("responses:side-requests")
@pytest.mark.parametrize(
    ("more", "rule"),
    [
        (
            {"input": [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]},
            "compaction-trigger",
        ),
        (
            {"client_metadata": {"x-codex-turn-metadata": '{"request_kind":"compaction"}'}},
            "codex-compaction",
        ),
        ({"instructions": TITLE}, "opencode-title"),
        (
            {"input": [{"role": "developer", "content": TITLE}, {"role": "user", "content": "Hi"}]},
            "opencode-title",
        ),
    ],
)
async def test_side_requests_are_recognized_by_the_text_of_the_runners_program(
    codex: Desk, more: Body, rule: str
) -> None:
    assert await codex.asks("Hi", **more) == "\ncllama → model    the runner's request, as it is\n"
    assert codex.interventions() == [f"housekeeping:{rule}"]


@pytest.mark.requirement("responses:side-requests")
async def test_a_compaction_gets_the_hidden_rounds_and_no_tools(codex: Desk) -> None:
    codex.model_says(("desk.balance", {}))
    codex.model_says("You have fifty.")
    await codex.asks("How much?")
    codex.messages.append({"type": "compaction_trigger"})
    exchange = await codex.mediator.exchange(codex.admitted(), codex.request())
    assert isinstance(exchange, Forward)
    assert exchange.body is not None
    sent = json.loads(exchange.body)
    assert "tools" not in sent
    kinds = [item.get("type") for item in sent["input"]]
    assert kinds == [None, "function_call", "function_call_output", "message", "compaction_trigger"]


@pytest.mark.requirement("responses:members")
async def test_members_for_the_provider_are_in_every_request_and_limit_no_managed_call(
    codex: Desk,
) -> None:
    logprobs = [{"token": "5", "logprob": 0, "bytes": [53], "top_logprobs": []}]
    last = message('{"balance":50}', "msg_2")
    last["content"][0]["logprobs"] = logprobs
    members = {
        "parallel_tool_calls": False,
        "max_tool_calls": 1,
        "include": ["message.output_text.logprobs"],
        "text": {
            "format": {
                "type": "json_schema",
                "name": "b",
                "schema": {"type": "object"},
                "strict": True,
            }
        },
    }
    answers(codex, message("Let me see."), BALANCE, function_call("call_2", "desk__quote", "{}"))
    answers(codex, function_call("call_3", "desk__quote", '{"n":2}'))
    answers(codex, last)
    await codex.asks("Go", **members)
    assert len(codex.services.calls) == 3
    assert [{name: body[name] for name in members} for body in codex.model.bodies] == [members] * 3
    assert json.loads(codex.body)["output"] == [last]


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
    own = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "shell"}],
    }
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
async def test_hidden_rounds_before_a_compaction_are_not_inserted(codex: Desk) -> None:
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
@pytest.mark.parametrize(
    "form", ["as it came", "without ids and status", "without what it thought", "as text"]
)
async def test_an_answer_is_known_again_in_every_form_in_which_runners_send_it(
    codex: Desk, form: str
) -> None:
    codex.model_says(("desk.balance", {}))
    codex.model_says("You have fifty.") if form == "as text" else codex.model_says(
        Thought("Fifty."), "You have fifty."
    )
    await codex.asks("How much?")
    codex.messages[-1] = codex.wire.echoes(codex.messages[-1])[form]
    codex.model_says("Yes.")
    assert "2 hidden messages" in await codex.asks("Sure?")


@pytest.mark.long
@pytest.mark.requirement("responses:items")
def test_a_request_of_fifty_thousand_items_is_read_and_one_more_is_refused() -> None:
    items = ",".join(['{"role":"user","content":"Hi"}'] * 50_000)
    DIALECT.read_request(f'{{"model":"m","input":[{items}]}}'.encode())
    with pytest.raises(UnreadableRequestError, match="50000"):
        DIALECT.read_request(f'{{"model":"m","input":[{items},{{}}]}}'.encode())


@pytest.mark.requirement("live:responses-request")
@pytest.mark.parametrize("own", [{}, {"stream": True}, {"stream": False}], ids=str)
def test_a_live_model_call_streams_and_keeps_the_options_of_the_stream(own: Body) -> None:
    options = {"include_obfuscation": False}
    asked = {"model": "m", "input": "Hi", "stream_options": options, **own}
    request = DIALECT.read_request(json.dumps(asked).encode())
    sent_bodies = [
        json.loads(b"".join(DIALECT.build_request(view, CATALOG)(ToolUse.AS_REQUESTED)))
        for view in (replace(request, is_live=True), request)
    ]
    live, buffered = sent_bodies
    assert (live["stream"], live["stream_options"]) == (True, options)
    assert buffered.get("stream") == (False if own else None)
    assert "stream_options" not in buffered
    others = [
        {name: value for name, value in body.items() if not name.startswith("stream")}
        for body in sent_bodies
    ]
    assert others[0] == others[1]


@pytest.mark.requirement("live:responses-buffered")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"format": {"type": "json_schema", "name": "x", "schema": {}}}, "structured_output"),
        ({"format": {"type": "json_object"}}, "structured_output"),
        ({"format": {"type": "text"}, "verbosity": "low"}, None),
        ({"format": None}, None),
        ("json_schema", None),
        (None, None),
    ],
    ids=str,
)
def test_an_answer_in_json_is_not_told_while_it_comes(text: object, reason: str | None) -> None:
    asked = {"model": "m", "input": "Hi", "stream": True, "text": text}
    assert DIALECT.read_request(json.dumps(asked).encode()).buffered_reason == reason
