"""Names and owners of calls, whatever a model calls a tool (docs/spec/README.md;
docs/spec/mediation.md sections 3 and 4).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool
from tests.turns.scripted import ExactName


@pytest.mark.requirement("names:canonical-call")
async def test_a_call_by_the_canonical_name_is_managed_and_has_its_alias_in_the_transcript(
    desk: Desk,
) -> None:
    desk.model_says((ExactName("desk.balance"), {}))
    desk.model_says("Done.")
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__balance"]


@pytest.mark.requirement("names:case")
@pytest.mark.parametrize(
    "name", ["Desk__Balance", "desk__BALANCE", "DESK.balance", "desk__balance ", "Shell"]
)
async def test_a_name_in_another_case_is_nobodys(desk: Desk, name: str) -> None:
    desk.model_says((ExactName(name), {}))
    desk.model_says("Sorry.")
    await desk.asks("Go", native=["shell"])
    assert desk.interventions() == [f"unknown_tool_rejected:{name}"]
    assert desk.services.calls == []
    assert desk.answer.text == "Sorry."


@pytest.mark.requirement("names:odd-names")
@pytest.mark.parametrize(
    "name", ["", "multi_tool_use.parallel", "functions.desk__balance", "x" * 200, "wörk\n", "a b"]
)
async def test_a_name_that_no_provider_takes_back_is_told_in_plain_characters(
    desk: Desk, name: str
) -> None:
    desk.model_says((ExactName(name), {}))
    desk.model_says("Sorry.")
    await desk.asks("Go")
    assert desk.answer.text == "Sorry."


@pytest.mark.requirement("names:native-wins")
async def test_a_runners_tool_keeps_the_aliass_name_and_the_managed_one_has_another(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says((ExactName("desk__balance"), {}))
    assert await desk.asks("Go", native=["desk__balance"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   native:desk__balance
cllama → runner   native:desk__balance   [1 hidden]
""")
    own, managed, *_ = desk.wire.tools(desk.model.bodies[-1])
    assert own == "desk__balance"
    assert managed.startswith("desk__balance_")


@pytest.mark.requirement("injection:foreign-tools")
async def test_tools_of_the_runner_that_are_no_functions_stay_first_and_keep_their_names(
    desk: Desk,
) -> None:
    foreign = desk.wire.foreign("desk__quote")
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go", native=["shell"], tools=[foreign])
    assert [body["tools"][0] for body in desk.model.bodies] == [foreign, foreign]
    names = list(desk.wire.tools(desk.model.bodies[0]))
    assert names[:3] == ["desk__quote", "shell", "desk__balance"]
    assert names.count("desk__quote") == 1
    assert desk.services.calls == ["desk.quote"]


@pytest.mark.requirement("injection:same-bytes")
async def test_the_same_grants_give_the_same_tools_in_every_request(desk: Desk) -> None:
    for _ in range(2):
        desk.model_says(("desk.balance", {}))
        desk.model_says("Done.")
        await desk.asks("Go", native=["shell"])
    assert len({raw[raw.index(b'"tools"') :] for raw in desk.model.raw}) == 1


@pytest.mark.requirement("loop:unknown-tool")
async def test_a_native_call_behind_an_unknown_one_waits_until_the_model_asks_again(
    desk: Desk,
) -> None:
    desk.model_says(("desk.typo", {}), ("shell", {"cmd": "ls"}))
    desk.model_says(("shell", {"cmd": "ls"}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   unknown:desk.typo native:shell{"cmd": "ls"}
cllama → model    desk.typo = ! unknown_tool
model  → cllama   native:shell{"cmd": "ls"}
cllama → runner   native:shell{"cmd": "ls"}   [1 hidden]
""")


@pytest.mark.requirement("loop:native-before-managed")
async def test_a_native_call_before_an_unknown_one_is_sent_back_too(desk: Desk) -> None:
    desk.model_says(("shell", {"cmd": "ls"}), ("desk.typo", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   native:shell{"cmd": "ls"} unknown:desk.typo
cllama → model    shell = ! managed_tools_first, desk.typo = ! managed_tools_first
model  → cllama   native:shell{"cmd": "ls"}
cllama → runner   native:shell{"cmd": "ls"}   [1 hidden]
""")


@pytest.mark.requirement("loop:managed-first-native-behind")
async def test_of_a_long_reply_the_prefix_runs_and_every_native_call_behind_it_leaves(
    desk: Desk,
) -> None:
    desk.model_says(
        "Look:", ("desk.balance", {}), ("desk.typo", {}), ("shell", {"n": 1}), ("shell", {"n": 2})
    )
    desk.model_says(("shell", {"n": 1}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Look:' managed:desk.balance unknown:desk.typo native:shell{"n": 1} native:shell{"n": 2}
cllama → service  desk.balance {}
cllama → model    desk.balance = {}, desk.typo = ! unknown_tool
model  → cllama   native:shell{"n": 1}
cllama → runner   native:shell{"n": 1}   [1 hidden]
""")
    desk.model_says("Done.")
    assert await desk.runs_native("ok") == snapshot("""\

cllama → model    the runner's request + 3 hidden messages
model  → cllama   'Done.'
cllama → runner   'Done.'
""")


@pytest.mark.requirement("names:every-request")
async def test_what_the_runner_declares_counts_for_that_request_only(desk: Desk) -> None:
    desk.model_says(("shell", {}))
    await desk.asks("Go", native=["shell"])
    desk.model_says((ExactName("shell"), {}))
    desk.model_says("Sorry.")
    desk.messages = []
    assert await desk.asks("Go", native=[]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   unknown:shell
cllama → model    shell = ! unknown_tool
model  → cllama   'Sorry.'
cllama → runner   'Sorry.'   [1 hidden]
""")


@pytest.mark.requirement("names:grants-of-the-moment")
async def test_a_grant_that_is_gone_is_unknown_though_the_transcript_still_shows_it(
    desk: Desk,
) -> None:
    desk.model_says(("desk.trade", {}))
    desk.model_says("Bought.")
    await desk.asks("Buy")
    desk.grant(tool("balance"))
    desk.model_says((ExactName("desk__trade"), {}))
    desk.model_says("I can't.")
    assert await desk.asks("Buy again") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   unknown:desk__trade
cllama → model    desk__trade = ! unknown_tool
model  → cllama   "I can't."
cllama → runner   "I can't."   [1 hidden]
""")
    assert desk.services.calls == ["desk.trade"]
