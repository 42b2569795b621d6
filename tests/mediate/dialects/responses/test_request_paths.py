"""``…/responses/compact`` and ``…/responses/input_tokens``: what they see of hidden
rounds and managed tools.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, RunnerResponse
from tests.turns.desk import Desk
from tests.wires import Body


async def posts(desk: Desk, path: str, **more: Any) -> tuple[Forward, Body]:
    """Send the runner's conversation to a path; return the decision, and what the provider gets."""
    desk.more = more
    request = replace(desk.request(), path=path)
    decision = await desk.mediator.exchange(desk.identity(), request)
    assert isinstance(decision, Forward)
    return decision, json.loads(decision.body or request.body)


def kinds(sent: Body) -> list[str]:
    return [item.get("type", "message") for item in sent["input"]]


async def told_something(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("You have fifty.")
    await desk.asks("How much?", native=["shell"])


HIDDEN = ["message", "function_call", "function_call_output", "message"]


@pytest.mark.requirement("responses:compact")
@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1//Responses/x/../compact/?a=b"])
async def test_a_compaction_knows_of_hidden_rounds_and_gets_no_tools(
    codex: Desk, path: str
) -> None:
    await told_something(codex)
    decision, sent = await posts(codex, path, store=None)
    assert (kinds(sent), [tool["name"] for tool in sent["tools"]]) == (HIDDEN, ["shell"])
    target = "/responses/compact" + ("?a=b" if "?" in path else "")  # in its plain spelling
    assert (decision.target, codex.interventions()) == (target, ["housekeeping:compact"])
    assert decision.handle.kept_as is None  # type: ignore[attr-defined]
    codex.mediator.passthrough.record_end(
        decision.handle, 200, ReceivedAnswer(200, {}), b"{}", whole=True
    )  # type: ignore[arg-type]
    assert (codex.history()[-1]["path"], codex.history()[-1]["status"]) == (
        "/v1/responses/compact",
        "ok",
    )


@pytest.mark.requirement("responses:input-tokens")
async def test_a_token_count_has_managed_tools_and_hidden_rounds_but_no_line_of_history(
    codex: Desk,
) -> None:
    await told_something(codex)
    lines = len(codex.history())
    decision, sent = await posts(codex, "/v1/responses/input_tokens")
    names = [tool["name"] for tool in sent["tools"]]
    assert (kinds(sent), names) == (
        HIDDEN,
        ["shell", "desk__balance", "desk__quote", "desk__trade"],
    )
    assert (decision.target, decision.handle.kept_as) == ("/responses/input_tokens", None)  # type: ignore[attr-defined]
    codex.mediator.passthrough.record_end(
        decision.handle, 200, ReceivedAnswer(200, {}), b"{}", whole=True
    )  # type: ignore[arg-type]
    assert len(codex.history()) == lines


@pytest.mark.requirement("responses:compact")
@pytest.mark.requirement("responses:input-tokens")
@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/responses/input_tokens"])
@pytest.mark.parametrize(
    "named", [{"previous_response_id": "resp_theirs"}, {"conversation": {"id": "conv_theirs"}}]
)
async def test_a_compaction_and_a_count_cannot_name_another_agents_objects(
    codex: Desk, path: str, named: Body
) -> None:
    codex.more = named
    decision = await codex.mediator.exchange(codex.identity(), replace(codex.request(), path=path))
    assert isinstance(decision, RunnerResponse)
    assert decision.status == (400 if "previous_response_id" in named else 404)
