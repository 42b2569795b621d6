"""A service with ``mcp-stdio``, in compose.generated.yml and in the manifests for Kubernetes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from claw_mcp.wrapper import WrapperSettings, read_settings
from tests.compile.composed import agent, compiled
from tests.compile.manifests import manifests, spec_of

TOOLS = {
    "version": 2,
    "mcp": {"transport": "streamable-http", "path": "/mcp"},
    "tools": [
        {
            "name": "get",
            "description": "Get it.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
    ],
}


def pod(wrapper: str = "", port: str = 'expose: ["9000"]', claw: str = "") -> str:
    """A pod whose agent may use a wrapped server."""
    stdio = "mcp-stdio: {command: uvx, args: [some-server, '--key=${SERVER_KEY}', 'a \"b\" $$c']}"
    service = (
        f"  wrapped:\n    image: wrapper\n    {port}\n    x-claw: {{describe-file: "
        f"tools.json, {stdio}{claw}}}\n{wrapper}"
    )
    return (
        agent().replace("{service: desk, allow: all}", "{service: wrapped, allow: all}") + service
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    return tmp_path


def settings_of(environment: dict[str, str]) -> WrapperSettings:
    """Return the settings that the wrapper reads from it."""
    return read_settings(environment)


@pytest.mark.requirement("wrapper:compiled")
def test_compose_runs_the_wrapper_with_all_that_it_needs(directory: Path) -> None:
    service = compiled(directory, pod(), SERVER_KEY="from-the-environment")["services"]["wrapped"]
    assert service["entrypoint"] == ["claw", "mcp-stdio"]
    settings = settings_of(service["environment"])
    assert settings.command == ("uvx", "some-server", "--key=from-the-environment", 'a "b" $c')
    assert (settings.host, settings.port, settings.allowed_hosts) == (
        "",
        9000,
        {"wrapped", "wrapped:9000"},
    )
    assert "http://127.0.0.1:9000/health" in service["healthcheck"]["test"][-1]
    written = (directory / "compose.generated.yml").read_text("utf-8")
    assert "${SERVER_KEY}" in written
    assert "from-the-environment" not in written
    (tool,) = json.loads((directory / ".claw-runtime/context/one/tools.json").read_text("utf-8"))[
        "tools"
    ]
    assert tool["execution"]["base_url"] == "http://wrapped:9000", (
        "where the proxy calls it is where it listens"
    )


@pytest.mark.requirement("wrapper:compiled")
@pytest.mark.parametrize("value", ['x","--evil', 'a "quoted" one', "back\\slash"])
def test_no_value_of_a_variable_becomes_another_argument(directory: Path, value: str) -> None:
    service = compiled(directory, pod(), SERVER_KEY=value)["services"]["wrapped"]
    command = settings_of(service["environment"]).command
    assert command == ("uvx", "some-server", f"--key={value}", 'a "b" $c')


@pytest.mark.requirement("wrapper:compiled")
@pytest.mark.parametrize(
    ("port", "claw", "address", "hosts"),
    [
        ("", "", ":80", {"wrapped", "wrapped:80"}),
        ('ports: ["7000:7001"]', "", ":7001", {"wrapped", "wrapped:7001"}),
        (
            "",
            ", base-url: 'http://other:5000/x'",
            ":5000",
            {"wrapped", "wrapped:5000", "other", "other:5000"},
        ),
    ],
)
def test_it_listens_where_the_proxy_calls_it(
    directory: Path, port: str, claw: str, address: str, hosts: set[str]
) -> None:
    environment = compiled(directory, pod(port=port, claw=claw), SERVER_KEY="k")["services"][
        "wrapped"
    ]["environment"]
    assert (environment["LISTEN_ADDR"], settings_of(environment).allowed_hosts) == (address, hosts)


@pytest.mark.requirement("wrapper:compiled")
@pytest.mark.parametrize(
    "environment", ["{LISTEN_ADDR: ':1', MINE: a}", "['LISTEN_ADDR=:1', MINE=a]"]
)
def test_what_the_user_wrote_wins(directory: Path, environment: str) -> None:
    own = (
        f"    environment: {environment}\n    command: [other]\n    healthcheck: {{test: "
        f"[CMD, 'true']}}\n"
    )
    service = compiled(directory, pod(own), SERVER_KEY="k")["services"]["wrapped"]
    assert (service["environment"]["LISTEN_ADDR"], service["environment"]["MINE"]) == (":1", "a")
    assert service["environment"]["CLAW_MCP_COMMAND"] == "uvx"
    assert (service.get("entrypoint"), service["command"]) == (None, ["other"])
    assert service["healthcheck"]["test"] == ["CMD", "true"]


@pytest.mark.requirement("wrapper:compiled")
def test_kubernetes_runs_the_same(directory: Path) -> None:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text("{}", encoding="utf-8")
    objects = manifests(directory, pod(), SERVER_KEY="from-the-environment")
    (main,) = spec_of(objects, "desk-wrapped")["containers"]
    assert main["command"] == ["claw", "mcp-stdio"]
    assert "http://127.0.0.1:9000/health" in main["livenessProbe"]["exec"]["command"][-1]
    data: dict[str, Any] = objects["Secret", "desk-wrapped.env"]["data"]
    settings = settings_of({name: base64.b64decode(value).decode() for name, value in data.items()})
    assert settings.command == ("uvx", "some-server", "--key=from-the-environment", 'a "b" $c')
    assert (settings.port, settings.allowed_hosts) == (9000, {"wrapped", "wrapped:9000"})
