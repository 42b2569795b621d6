"""Facts about one service or agent, as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claw_compile.compiler import Plan, check_pod
from claw_compile.inspection import inspect_pod
from claw_compile.policy.explain import UnknownName

TOOL = {
    "name": "look",
    "description": "Look at it.",
    "inputSchema": {"type": "object"},
    "http": {"method": "GET", "path": "/look"},
    "annotations": {"readOnly": True},
}
POD = """
x-claw: {pod: desk, secrets: {key: {env: API_KEY}}}
services:
  one:
    x-claw: {agent: AGENTS.md, cllama: passthrough, count: 2, tools: [{service: api, allow: all}]}
  api:
    image: "api:${TAG}"
    expose: ["80"]
    x-claw: {describe-file: api.json, base-url: "http://${HOST_NAME}/v1", auth: {type: bearer, secret: key}}
"""
ENVIRON = {"API_KEY": "planted-key", "TAG": "7", "HOST_NAME": "planted-host.test"}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (tmp_path / "api.json").write_text(json.dumps({"version": 2, "tools": [TOOL]}), "utf-8")
    (tmp_path / "claw-pod.yml").write_text(POD, encoding="utf-8")
    plan = check_pod(tmp_path / "claw-pod.yml", ENVIRON).value
    assert plan is not None
    return plan


def facts(plan: Plan, word: str) -> dict[str, Any]:
    found = inspect_pod(plan, word)
    assert not isinstance(found, UnknownName)
    return found


@pytest.mark.requirement("cli:inspect-service")
def test_of_a_service_it_is_told_where_it_is_called_and_for_whom(plan: Plan) -> None:
    service = facts(plan, "api")["service"]
    assert service["used_by"] == ["one-0", "one-1"]
    assert service["base_url"] == "http://${HOST_NAME}/v1"
    assert service["credential"]["type"] == "bearer"
    assert service["credential"]["secret"] == "key"
    assert [(tool["name"], tool["call"], tool["granted_to"]) for tool in service["tools"]] == [
        ("look", "GET /look", ["one-0", "one-1"])
    ]


@pytest.mark.requirement("cli:inspect-agent")
def test_of_a_counted_service_all_of_its_agents_are_told(plan: Plan) -> None:
    agents = facts(plan, "one")["agents"]
    assert [each["id"] for each in agents] == ["one-0", "one-1"]
    assert [each["id"] for each in facts(plan, "one-1")["agents"]] == ["one-1"]
    assert agents[0]["tools"] == [
        {"name": "api.look", "presented_as": "api__look", "effect": "read"}
    ]


@pytest.mark.requirement("cli:inspect-agent", "compile:secrets-never-printed")
def test_no_value_of_a_variable_is_among_the_facts(plan: Plan) -> None:
    text = json.dumps([facts(plan, word) for word in ("one", "api")])
    assert "planted" not in text


@pytest.mark.requirement("cli:inspect-agent")
def test_a_word_that_names_nothing_is_told_with_a_hint(plan: Plan) -> None:
    found = inspect_pod(plan, "one-2")
    assert isinstance(found, UnknownName)
    assert found.hint is not None
    assert "one-" in found.hint
