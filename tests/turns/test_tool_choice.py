"""``tool_choice`` and parallel calls over the rounds of a turn
(docs/spec/mediation.md section 3).
"""

from __future__ import annotations

import pytest

from tests.turns.desk import Desk, tool, with_tools
from tests.wires import Body


def chosen(desk: Desk) -> list[str | None]:
    return [desk.wire.chosen(body)[0] for body in desk.model.bodies]


def allowed(mode: str, *names: str) -> Body:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.requirement("injection:tool-choice-released")
@pytest.mark.parametrize(
    ("word", "rounds"),
    [
        ("auto", ["auto", "auto", "auto"]),
        ("desk__balance", ["desk__balance", "auto", "auto"]),
        ("desk.balance", ["desk__balance", "auto", "auto"]),
    ],
)
async def test_a_choice_that_forces_a_call_holds_until_a_managed_call_obeyed_it(
    desk: Desk, word: str, rounds: list[str]
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go", **desk.wire.choice(word))
    assert chosen(desk) == rounds


@pytest.mark.requirement("injection:tool-choice-kept")
async def test_where_the_runner_chose_nothing_nothing_is_chosen(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert chosen(desk) == [None, None]


@pytest.mark.requirement("injection:tool-choice-kept")
async def test_a_choice_of_the_runners_own_tool_stays_though_its_name_is_a_canonical_one(
    desk: Desk,
) -> None:
    desk.model_says("No.")
    await desk.asks("Go", native=["desk.balance"], **desk.wire.choice("desk.balance"))
    assert chosen(desk) == ["desk.balance"]


@with_tools
@pytest.mark.requirement("injection:tool-choice-released")
async def test_that_any_call_is_required_holds_until_a_managed_one_was_made(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go", **desk.wire.choice("required"))
    assert chosen(desk) == ["required", "auto"]


@with_tools
@pytest.mark.requirement("injection:tool-choice-kept")
async def test_a_forced_choice_that_nothing_obeyed_stays(desk: Desk) -> None:
    desk.model_says(("shell", {}), ("desk.balance", {}))
    desk.model_says(("desk.typo", {}))
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go", native=["shell"], **desk.wire.choice("required"))
    assert chosen(desk) == ["required", "required", "required", "auto"]


@pytest.mark.requirement("injection:tool-choice-released")
async def test_openais_list_of_allowed_tools_names_aliases_and_stays_when_it_no_longer_forces(
    gpt: Desk,
) -> None:
    gpt.model_says(("desk.balance", {}))
    gpt.model_says("Done.")
    await gpt.asks("Go", native=["shell"], tool_choice=allowed("required", "desk.balance", "shell"))
    assert [body["tool_choice"] for body in gpt.model.bodies] == [
        allowed("required", "desk__balance", "shell"),
        allowed("auto", "desk__balance", "shell"),
    ]


@with_tools
@pytest.mark.requirement("injection:parallel-kept")
@pytest.mark.parametrize("word", ["auto", "required", "desk.balance"])
@pytest.mark.parametrize("parallel", [False, True])
async def test_whether_calls_may_be_made_side_by_side_stays_as_the_runner_said(
    desk: Desk, word: str, *, parallel: bool
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go", **desk.wire.choice(word, parallel=parallel))
    assert [desk.wire.chosen(body)[1] for body in desk.model.bodies] == [parallel] * 3


@pytest.mark.both_forms
@pytest.mark.buffered
@pytest.mark.requirement("injection:whole-response")
async def test_the_provider_is_asked_for_a_whole_response_whatever_the_runner_asked_for(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go", **{} if desk.stream else {"stream": False})
    assert [(body["stream"], "stream_options" in body) for body in desk.model.bodies] == [
        (False, False)
    ] * 2


@with_tools
@pytest.mark.requirement("budget:rounds")
async def test_the_last_word_forbids_by_choice_whatever_the_runner_chose(desk: Desk) -> None:
    desk.grant(tool("balance"), max_rounds=1)
    desk.model_says(("desk.balance", {"n": 1}))
    desk.model_says(("desk.balance", {"n": 2}))
    desk.model_says("Done.")
    await desk.asks("Go", **desk.wire.choice("required", parallel=False))
    assert chosen(desk) == ["required", "auto", "none"]
    assert len({tuple(desk.wire.tools(body)) for body in desk.model.bodies}) == 1
