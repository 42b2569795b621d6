"""Repeated calls, and the exceptions (docs/spec/mediation.md section 4, "Repeats")."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool


def told(desk: Desk) -> list[dict[str, Any]]:
    """Return the results that the model got in the last request."""
    return [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]


@pytest.mark.requirement("calls:duplicate-advice")
async def test_a_repeat_is_told_with_the_tool_the_first_round_and_the_count(desk: Desk) -> None:
    for _ in range(3):
        desk.model_says(("desk.trade", {"n": 1}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert [answer["error"]["details"] for answer in told(desk)[1:]] == [
        {"tool": "desk.trade", "first_round": 1, "count": 1},
        {"tool": "desk.trade", "first_round": 1, "count": 2},
    ]
    assert "earlier result" in told(desk)[-1]["error"]["message"]
    assert desk.interventions() == ["duplicate_managed_tool_call:desk.trade"] * 2


@pytest.mark.requirement("calls:duplicate")
async def test_of_two_equal_calls_in_one_reply_the_first_runs(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}), ("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}, desk.balance = ! duplicate_tool_call
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")


@pytest.mark.requirement("calls:repeatable")
async def test_a_repeatable_tool_runs_every_time(desk: Desk) -> None:
    desk.grant(tool("poll", write=True, **{"x-claw.repeatable": True}))
    desk.service_answers("poll", "working", "done")
    desk.model_says(("desk.poll", {}))
    desk.model_says(("desk.poll", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.poll
cllama → service  desk.poll {}
cllama → model    desk.poll = working
model  → cllama   managed:desk.poll
cllama → service  desk.poll {}
cllama → model    desk.poll = done
model  → cllama   'Done.'
cllama → runner   'Done.'   [2 hidden]
""")


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_write_in_another_service_is_no_reason_to_read_again(desk: Desk) -> None:
    desk.grant(tool("balance"), tool("put", write=True, service="files"))
    desk.model_says(("desk.balance", {}), ("files.put", {}), ("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:files.put managed:desk.balance
cllama → service  desk.balance {}
cllama → service  files.put {}
cllama → model    desk.balance = {}, files.put = {}, desk.balance = ! duplicate_tool_call
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_failed_write_may_have_changed_what_is_read_and_an_unrun_one_has_not(
    desk: Desk,
) -> None:
    desk.grant(
        tool("balance"), tool("trade", write=True, schema={"type": "object", "required": ["n"]})
    )
    desk.service_answers("trade", "down", status=500)
    desk.model_says(("desk.balance", {}), ("desk.trade", {}), ("desk.balance", {}))
    desk.model_says(("desk.trade", {"n": 1}), ("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.trade managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}, desk.trade = ! schema_validation, desk.balance = ! duplicate_tool_call
model  → cllama   managed:desk.trade{"n": 1} managed:desk.balance
cllama → service  desk.trade {'n': 1}
cllama → service  desk.balance {}
cllama → model    desk.trade = ! http_500, desk.balance = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [2 hidden]
""")


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_write_that_failed_is_not_tried_again(desk: Desk) -> None:
    desk.service_answers("trade", "down", status=503)
    desk.model_says(("desk.trade", {}))
    desk.model_says(("desk.trade", {}))
    desk.model_says("Unsure.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = ! http_503
model  → cllama   managed:desk.trade
cllama → model    desk.trade = ! duplicate_tool_call
model  → cllama   'Unsure.'
cllama → runner   'Unsure.'   [2 hidden]
""")


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_read_that_failed_once_and_then_answered_is_not_run_again(desk: Desk) -> None:
    desk.services.script["desk.balance"] = [(503, "down"), (200, "up")]
    for _ in range(4):
        desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = ! http_503
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = up
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call
model  → cllama   'Done.'
cllama → runner   'Done.'   [4 hidden]
""")


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_read_that_always_fails_is_run_three_times(desk: Desk) -> None:
    desk.service_answers("balance", "down", status=503)
    for _ in range(5):
        desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert desk.services.calls == ["desk.balance"] * 3


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_the_latest_equal_read_counts_and_not_the_first(desk: Desk) -> None:
    for name in ("desk.balance", "desk.trade", "desk.balance", "desk.balance"):
        desk.model_says((name, {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = {}
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call
model  → cllama   'Done.'
cllama → runner   'Done.'   [4 hidden]
""")


@pytest.mark.requirement("calls:duplicate")
async def test_an_equal_call_in_the_next_turn_is_no_repeat(desk: Desk) -> None:
    for _ in range(2):
        desk.model_says(("desk.trade", {"n": 1}))
        desk.model_says("Done.")
        await desk.asks("Buy one")
    assert desk.services.calls == ["desk.trade", "desk.trade"]


@pytest.mark.requirement("calls:idle-rounds")
async def test_a_round_that_does_something_new_begins_the_count_anew(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    for _ in range(2):
        desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.balance", {}), ("desk.quote", {}))
    for _ in range(2):
        desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert desk.answer.text == "Done."
    assert "none" not in [desk.wire.chosen(body)[0] for body in desk.model.bodies]


@pytest.mark.requirement("calls:order-of-checks")
async def test_the_model_is_told_every_place_that_breaks_the_schema(desk: Desk) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["symbol"]}
    desk.grant(tool("quote", schema=schema))
    desk.model_says(("desk.quote", {"n": "one"}))
    desk.model_says("Sorry.")
    await desk.asks("Go")
    places = told(desk)[0]["error"]["details"]["violations"]
    assert [sorted(place) for place in places] == [["message", "path"]] * 2
    assert desk.services.calls == []
