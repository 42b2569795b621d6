"""Calls of the runner's own that are handed over while they come, where the model can call no
managed tool (docs/spec/live.md section 3).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns.desk import WIRES, Desk, opened
from tests.wires import Body, ReplyContent, responses

NAMES = ("openai", "anthropic", "responses")


@pytest.fixture(params=NAMES)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, whose agent's streams are live."""
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        yield desk


def allowed(desk: Desk, *names: str) -> Body:
    """Return the choice that leaves these tools to the model, in OpenAI's protocols."""
    if desk.wire is responses:
        tools: list[Body] = [{"type": "function", "name": name} for name in names]
        return {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": tools}}
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    inner = {"mode": "auto", "tools": tools}
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": inner}}


CALL = ("shell", {"cmd": "ls -la"})


async def breaks_off_in_a_call(desk: Desk, **more: Body) -> bytes:
    """Return what the runner has when a reply breaks off in the arguments of its call."""
    desk.model_breaks_off("Listing.", CALL, behind='{\\"cmd')
    await desk.asks("List", native=["shell", "edit"], **more)
    return desk.raw


@pytest.mark.requirement("live:early-calls")
@pytest.mark.parametrize(
    ("live", "form"),
    [*((name, "choice") for name in NAMES), ("openai", "allowed"), ("responses", "allowed")],
    indirect=["live"],
)
async def test_a_call_is_shown_while_it_comes_where_no_managed_tool_can_be_called(
    live: Desk, form: str
) -> None:
    more = live.wire.choice("shell") if form == "choice" else allowed(live, "shell", "edit")
    raw = await breaks_off_in_a_call(live, **more)
    assert b"Listing." in raw
    assert b'"shell"' in raw
    assert b"cmd" in raw


@pytest.mark.requirement("live:early-calls-only-where")
@pytest.mark.parametrize("word", ["", "required", "desk.trade", "desk__trade"])
async def test_a_call_waits_where_a_managed_tool_can_be_called(live: Desk, word: str) -> None:
    raw = await breaks_off_in_a_call(live, **(live.wire.choice(word) if word else {}))
    assert b"Listing." in raw
    assert b"cmd" not in raw


@pytest.mark.requirement("live:early-calls-only-where")
@pytest.mark.parametrize("live", ["openai", "responses"], indirect=True)
@pytest.mark.parametrize("names", [["shell", "desk.trade"], ["desk.trade"]])
async def test_a_call_waits_where_a_managed_tool_is_allowed(live: Desk, names: list[str]) -> None:
    raw = await breaks_off_in_a_call(live, **allowed(live, *names))
    assert b"cmd" not in raw


@pytest.mark.requirement("live:early-calls")
async def test_early_calls_are_the_answer_and_their_results_go_on(live: Desk) -> None:
    live.model_says("Listing.", CALL, ("shell", {"cmd": "pwd"}))
    await live.asks("List", native=["shell"], **live.wire.choice("shell"))
    assert live.shown.text == "Listing."
    cmds = [json.loads(call.arguments)["cmd"] for call in live.shown.calls]
    assert cmds == ["ls -la", "pwd"]
    assert live.interventions() == []
    assert live.wire.said(json.dumps(live.history()[-1]["response"]["json"]).encode()) == live.shown

    live.model_says("Two files.")
    await live.runs_native("a b")
    assert live.shown == ReplyContent("Two files.")


@pytest.mark.requirement("live:call-after-early-native")
@pytest.mark.parametrize("name", ["desk.trade", "desk.typo"])
async def test_a_managed_call_behind_an_early_one_is_not_run_and_leaves_the_answer(
    live: Desk, name: str
) -> None:
    live.model_says("Listing.", CALL, (name, {}), ("shell", {"cmd": "pwd"}))
    await live.asks("List", native=["shell"], **live.wire.choice("shell"))
    assert live.status == 200
    assert live.services.calls == []
    assert live.interventions() == ["call_after_early_native"]
    assert [json.loads(call.arguments) for call in live.shown.calls] == [CALL[1]]
    assert name.replace(".", "__").encode() not in live.raw
    assert live.wire.said(json.dumps(live.history()[-1]["response"]["json"]).encode()) == live.shown
    assert len(live.model.bodies) == 1

    live.model_says("One file.")
    await live.runs_native("a")
    assert live.shown == ReplyContent("One file.")


@pytest.mark.requirement("live:call-after-early-native")
async def test_a_retry_of_such_a_turn_has_the_same_answer(live: Desk) -> None:
    live.model_says("Listing.", CALL, ("desk.trade", {}))
    await live.asks("List", native=["shell"], **live.wire.choice("shell"))
    first = live.shown
    live.messages, live.headers = live.messages[:1], {"x-stainless-retry-count": "1"}
    await live.turn()
    assert live.shown == first
    assert live.services.calls == []


@pytest.mark.requirement("live:call-after-early-native")
async def test_a_managed_call_before_any_early_one_is_judged_as_ever(live: Desk) -> None:
    live.model_says("Both.", ("desk.balance", {}), CALL)
    live.model_says("Listing.", CALL)
    await live.asks("List", native=["shell"], **live.wire.choice("shell"))
    assert live.services.calls == ["desk.balance"]
    assert [call.name for call in live.shown.calls] == ["shell"]
    assert "call_after_early_native" not in live.interventions()


@pytest.mark.requirement("live:early-calls-only-where")
async def test_with_preambles_hidden_calls_wait(live: Desk) -> None:
    live.grant(preamble="hide")
    raw = await breaks_off_in_a_call(live, **live.wire.choice("shell"))
    assert raw.count(b"cmd") == 0


@pytest.mark.requirement("live:call-after-early-native")
async def test_what_a_kept_responses_provider_waits_for_is_answered_next_time(
    tmp_path: Path,
) -> None:
    async with opened(Desk(tmp_path, responses, stream=True, live=True)) as desk:
        calls = [
            responses.function_call("c1", "shell", '{"cmd": "ls"}'),
            responses.function_call("c2", "desk__trade", "{}"),
        ]
        body = responses.response(*calls, id="resp_a", store=True)
        desk.model_answers(json.dumps(body).encode())
        await desk.asks("List", native=["shell"], store=True, **responses.choice("shell"))
        assert [call.id for call in desk.shown.calls] == ["c1"]

        desk.messages = [*responses.results([("c1", "a")])]
        desk.model_says("One file.")
        desk.more = {"store": True, "previous_response_id": "resp_a"}
        await desk.turn()
        sent = desk.model.bodies[-1]["input"]
        assert {item["call_id"] for item in sent} == {"c1", "c2"}
        assert desk.services.calls == []
