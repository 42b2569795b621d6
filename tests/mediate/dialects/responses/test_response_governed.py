"""Policy, budget, history, audit, the Turn view and metrics of a turn over the
Responses protocol, as of any other.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from typer.testing import CliRunner

from claw_cli.app import app
from claw_contract.transcript.render import render_transcript
from claw_mediate.telemetry.metrics import Metrics
from tests.turns.desk import Desk

POLICY = {"mode": "clamp", "allowed": [{"slot": "primary", "ref": "openai/gpt-cheap"}]}


def govern(desk: Desk, **more: Any) -> None:
    """Give the agent a policy, prices, and more metadata."""
    metadata = {
        "service": desk.agent,
        "pod": "desk",
        "token": desk.token,
        "model_policy": POLICY,
        **more,
    }
    (desk.home / "context" / desk.agent / "metadata.json").write_text(
        json.dumps(metadata), encoding="utf-8"
    )
    (desk.home / "auth").mkdir(exist_ok=True)
    prices = {"openai/gpt-cheap": {"input": 1, "cached_input": 0.5, "output": 10}}
    (desk.home / "auth" / "prices.json").write_text(json.dumps(prices), encoding="utf-8")


def claw(desk: Desk, *arguments: str) -> str:
    log = desk.home / "proxy.log"
    log.write_text("".join(json.dumps(event) + "\n" for event in desk.events), encoding="utf-8")
    result = CliRunner().invoke(
        app, ["audit", *arguments, "--history", str(desk.home / "history"), "--log", str(log)]
    )
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.requirement("responses:governed")
async def test_a_turn_is_clamped_counted_recorded_and_shown(codex: Desk) -> None:
    govern(codex)
    details = {
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details}
    codex.model_says(("desk.balance", {}), usage=usage)
    codex.model_says("Fifty.", usage=usage)
    await codex.asks("How much?", model="openai/gpt-dear")
    assert {body["model"] for body in codex.model.bodies} == {"gpt-cheap"}

    (line,) = codex.history()
    assert [line[name] for name in ("path", "requested_model", "effective_model")] == [
        "/v1/responses",
        "openai/gpt-dear",
        "gpt-cheap",
    ]
    cost = 2 * (6 * 1 + 4 * 0.5 + 5 * 10) / 1e6
    assert line["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "cached_tokens": 8,
        "reported_cost_usd": pytest.approx(cost),
        "total_rounds": 2,
    }
    told = render_transcript(line).split("\n", 3)[3]
    for number, place in (
        (line["tool_trace"][0]["wall_time_ms"], "1 · "),
        (line["tool_trace"][0]["tool_calls"][0]["latency_ms"], ""),
    ):
        told = told.replace(f"{place}{number} ms", f"{place}0 ms")
    assert told == snapshot("""\

runner → cllama
  │ user: How much?
cllama → openai gpt-cheap
  offers desk__balance, desk__quote, desk__trade

── round 1 · 0 ms · 10 prompt_tokens · 5 completion_tokens
model → cllama: desk.balance
  │ {}
cllama → desk → model: 0 ms · HTTP 200 · ok
  │ {}

cllama → runner: ok 200
  │ assistant: Fifty.\
""")

    report = json.loads(claw(codex, "--json"))
    assert [(tool["tool"], tool["calls"], tool["failed"]) for tool in report["tools"]] == [
        ("desk.balance", 1, 0)
    ]
    assert "disallowed_clamped" in json.dumps(report)
    assert "1 " in claw(codex, "verify")

    metrics = Metrics()
    for event in codex.events:
        metrics.count(event)
    samples = {
        (each.name, *each.labels.values()): each.value
        for family in metrics.registry.collect()
        for each in family.samples
    }
    tokens = {
        labels[-1]: value for labels, value in samples.items() if labels[0] == "claw_tokens_total"
    }
    assert tokens == {"input": 20, "output": 10, "cached": 8}


@pytest.mark.requirement("responses:governed")
async def test_a_spent_budget_refuses_the_next_request(codex: Desk) -> None:
    govern(codex, budget={"window": "1h", "max_requests": 1, "behavior": "hard_stop"})
    codex.model_says("Hi.")
    await codex.asks("Hi")
    assert (await codex.asks("Again")).endswith(" budget_exceeded\n")
    assert len(codex.model.bodies) == 1
    assert codex.interventions() == ["disallowed_clamped", "budget_exceeded"]


@pytest.mark.requirement("responses:governed")
@pytest.mark.parametrize(
    "model", ["openai/gpt-test", "anthropic/claude-opus", "nobody/gpt-test", ""]
)
async def test_the_prefix_of_a_model_picks_the_provider_as_for_chat(
    codex: Desk, gpt: Desk, model: str
) -> None:
    seen = []
    for desk in (codex, gpt):
        desk.model_says("Hi.")
        picture = await desk.asks("Hi", model=model)
        seen.append(
            (
                picture,
                [body["model"] for body in desk.model.bodies],
                desk.history()[-1]["effective_provider"],
            )
        )
    assert seen[0] == seen[1]
