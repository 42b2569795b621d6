"""``claw inspect``: everything compiled of an agent; of a service its declarations,
their source, and who may use it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import claw

POD = """\
x-claw:
  pod: desk
  cllama-defaults: {proxy: passthrough}
services:
  analyst:
    image: runner:1
    x-claw:
      agent: AGENTS.md
      count: 2
      type: openclaw
      models: {primary: "${MODEL}"}
      budget: {max-requests: 9, window: 24h}
      memory: {service: api, timeout-ms: 250}
      feeds: [market]
      surfaces: ["volume://data rw", "service://search"]
      tools: [{service: api, allow: [read]}]
      service-auth: [{service: api, env: MINE, principal: me}]
  api:
    image: api:1
    expose: ["${PORT}"]
    environment: {KEY: planted-key-value, MINE: planted-mine-value}
    x-claw: {describe-file: api.json}
  search:
    image: search:1
    expose: ["80"]
    x-claw: {describe-file: search.json, base-url: "${WHERE:-http://search:80}", auth: {type: header, header: X-Key, env: KEY}}
"""
DESCRIPTOR = {
    "version": 2,
    "description": "Desk \x1b[31mAPI",
    "auth": {"type": "bearer", "env": "KEY"},
    "feeds": [{"name": "market", "path": "/feed", "ttl": 5}],
    "endpoints": [{"method": "GET", "path": "/raw", "description": "everything"}],
    "memory": {"recall": {"path": "/recall"}},
    "tools": [
        {
            "name": name,
            "description": f"To {name}",
            "inputSchema": {"type": "object"},
            "http": {"method": method, "path": f"/{name}"},
            "annotations": {"readOnly": method == "GET"},
        }
        for name, method in (("read", "GET"), ("trade", "POST"))
    ],
}
ENVIRON = {"MODEL": "planted/secret-model", "PORT": "47113", "WHERE": "http://planted.example:81"}


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "claw-pod.yml").write_text(POD, encoding="utf-8")
    (tmp_path / "api.json").write_text(json.dumps(DESCRIPTOR), encoding="utf-8")
    (tmp_path / "search.json").write_text(
        '{"version": 1, "description": "Search"}', encoding="utf-8"
    )
    (tmp_path / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")
    return tmp_path


def inspected(pod: Path, name: str) -> tuple[dict[str, Any], str]:
    """Return the output as JSON and as text; neither has the value of a variable."""
    as_json, as_text = (claw(pod, "inspect", name, *more, **ENVIRON) for more in (["--json"], []))
    for result in (as_json, as_text):
        assert (result.returncode, result.stderr) == (0, "")
        assert "planted" not in result.stdout
        assert ENVIRON["PORT"] not in result.stdout
        assert "\x1b" not in result.stdout
    data: dict[str, Any] = json.loads(as_json.stdout)
    return data, as_text.stdout


@pytest.mark.requirement("cli:inspect-agent")
def test_of_an_agent_all_of_its_authority_is_told(pod: Path) -> None:
    data, text = inspected(pod, "analyst-1")
    assert data["service"] is None
    (agent,) = data["agents"]
    assert {
        key: agent[key]
        for key in ("id", "service", "runner", "contract", "proxy", "mode", "delivery")
    } == {
        "id": "analyst-1",
        "service": "analyst",
        "runner": "openclaw",
        "contract": "AGENTS.md",
        "proxy": ["passthrough"],
        "mode": "base-url",
        "delivery": "mediated",
    }
    assert agent["tools"] == [{"name": "api.read", "presented_as": "api__read", "effect": "read"}]
    assert agent["feeds"] == [{"name": "market", "service": "api", "ttl": 5}]
    assert agent["memory"] == {"service": "api", "timeout_ms": 250, "can": ["recall"]}
    assert agent["models"] == {"primary": "${MODEL}"}
    assert agent["budget"] == {"max_requests": 9, "window": "24h", "behavior": "hard_stop"}
    assert agent["surfaces"] == ["volume://data rw", "service://search"]
    assert agent["own_credentials"] == [{"service": "api", "variable": "MINE", "of": "api"}]
    assert agent["networks"] == [
        {"name": "claw-agent-analyst-1", "internal": True, "with": ["cllama", "search"]}
    ]
    assert text.startswith("agent analyst-1\n  service: analyst\n")
    assert "  tools\n    api.read: presented as api__read, effect read\n" in text


@pytest.mark.requirement("cli:inspect-service")
def test_a_service_is_told_with_its_words_its_credential_and_who_has_which_tool(
    pod: Path,
) -> None:
    data, text = inspected(pod, "api")
    service = data["service"]
    assert (data["agents"], service["base_url"]) == ([], "http://api:${PORT}")
    assert service["credential"] == {
        "type": "bearer",
        "variable": "KEY",
        "of": "api",
        "said_at": "api.json",
    }
    assert service["used_by"] == ["analyst-0", "analyst-1"]
    assert service["networks"] == ["claw-tool-api"]
    descriptor = service["descriptor"]
    assert (descriptor["found_in"], descriptor["as"]) == ("api.json", "describe-file")
    assert descriptor["endpoints"] == DESCRIPTOR["endpoints"]
    assert [
        (tool["name"], tool["effect"], tool["call"], tool["granted_to"])
        for tool in service["tools"]
    ] == [
        ("read", "read", "GET /read", ["analyst-0", "analyst-1"]),
        ("trade", "write", "POST /trade", []),
    ]
    assert (
        "    trade: effect write, call POST /trade, description To trade, granted to none\n" in text
    )
    assert "    endpoints\n      method GET, path /raw, description everything\n" in text
    other, _ = inspected(pod, "search")
    assert other["service"]["base_url"] == "${WHERE:-http://search:80}"
    assert other["service"]["credential"]["type"] == "header"
    assert other["service"]["credential"]["variable"] == "KEY"
    assert other["service"]["credential"]["said_at"].startswith("claw-pod.yml:26:")
    assert other["service"]["reached_by"] == ["analyst-0", "analyst-1"]


@pytest.mark.requirement("cli:inspect-agent")
def test_a_counted_service_is_all_of_its_agents_and_an_unknown_name_has_a_hint(
    pod: Path,
) -> None:
    data, _ = inspected(pod, "analyst")
    assert [agent["id"] for agent in data["agents"]] == ["analyst-0", "analyst-1"]
    unknown = claw(pod, "inspect", "analist", **ENVIRON)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    said = "claw-pod.yml: the pod has no service and no agent 'analist'; did you mean 'analyst'?\n"
    assert unknown.stderr == said
    assert claw(pod, "inspect", "api").returncode == 1
