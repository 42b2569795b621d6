"""The worked pods, which a newcomer copies from: each is complete, and every part
that reads it accepts it.
"""

from __future__ import annotations

import json
import re
import runpy
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_compile.compiler import compile_pod
from claw_contract.manifest import read_manifest
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.telemetry.event_log import EventLog
from tests.compile.oracle import compose_config
from tests.compile.worked_pods import PODS, WORKED_PODS, WorkedPod
from tests.events import known

SUFFIX = "-with-$word"


@pytest.fixture(params=WORKED_PODS, ids=lambda pod: pod.name)
def pod(request: pytest.FixtureRequest) -> WorkedPod:
    pod: WorkedPod = request.param
    return pod


@pytest.mark.requirement("pods:worked")
def test_a_readme_names_every_variable_that_the_pod_needs_and_no_other(pod: WorkedPod) -> None:
    readme = (pod.directory / "README.md").read_text(encoding="utf-8")
    source = (pod.directory / "claw-pod.yml").read_text(encoding="utf-8")
    asked = {
        name for name, operator in re.findall(r"\$\{([A-Z_]+)(:\?|:-)?", source) if operator != ":-"
    }
    asked |= set(re.findall(r"env: ([A-Z_]+)$", source, re.MULTILINE))
    assert asked == set(pod.variables)
    assert [name for name in pod.variables if name not in readme] == []


@pytest.mark.requirement("pods:worked", "compose:oracle")
def test_compose_takes_what_is_made_of_a_worked_pod(pod: WorkedPod, tmp_path: Path) -> None:
    environ = {name: value + SUFFIX for name, value in pod.environ.items()}
    file = pod.copy(tmp_path)
    assert compile_pod(file, environ).value is not None
    config = compose_config(file.with_name("compose.generated.yml"), **environ)
    assert config["name"] == pod.name
    assert "x-claw" not in str(config)


@pytest.mark.requirement("pods:worked")
def test_the_proxy_loads_every_agent_with_all_of_its_tools(pod: WorkedPod, tmp_path: Path) -> None:
    pod.compiled(pod.directory / "claw-pod.yml", tmp_path)
    root = tmp_path / "context"
    events: list[dict[str, object]] = []
    agents = AgentDirectory(root, EventLog(lambda line: events.append(known(line))))
    assert agents.ids() != []
    for name in agents.ids():
        agent = agents.find(name)
        assert agent is not None, events
        manifest, _ = read_manifest((root / name / "tools.json").read_bytes())
        assert agent.granted == manifest.tools
        assert bool(agent.feeds) == (root / name / "feeds.json").exists()
        assert (agent.memory is not None) == (root / name / "memory.json").exists()
        assert bool(agent.blocks) == (root / name / "context-blocks.json").exists()
    assert [event for event in events if event["type"] in {"intervention", "error"}] == []


@pytest.mark.requirement("pods:worked")
def test_no_agents_files_hold_the_token_of_another(pod: WorkedPod) -> None:
    tree = pod.expected()
    tokens = {
        name.split("/")[1]: json.loads(content)["token"].partition(":")[2].encode()
        for name, content in tree.items()
        if name.endswith("/metadata.json")
    }
    assert len(set(tokens.values())) == len(tokens) > 0
    held = {
        name: [agent for agent, token in tokens.items() if token in content]
        for name, content in tree.items()
    }
    assert {
        name: agents for name, agents in held.items() if agents not in ([], name.split("/")[1:2])
    } == {}


@pytest.mark.requirement("pods:worked")
def test_behind_a_compile_plan_has_nothing_to_say_and_explain_knows_each_tool(
    pod: WorkedPod, tmp_path: Path
) -> None:
    file, cli = str(pod.copy(tmp_path)), CliRunner(env=dict(pod.environ))
    assert cli.invoke(app, ["compile", file]).exit_code == 0
    assert cli.invoke(app, ["plan", file]).exit_code == 0
    manifest = json.loads(pod.expected()["pod-manifest.json"])
    for name, agent in manifest["agents"].items():
        reported = cli.invoke(app, ["explain", name, "--file", file])
        assert reported.exit_code == 0
        assert all(f"{name} may call {tool['name']} " in reported.stdout for tool in agent["tools"])


@pytest.mark.requirement("pods:worked")
def test_the_minimal_pods_clock_answers_as_its_descriptor_says() -> None:
    clock = PODS / "minimal" / "clock"
    tool = json.loads((clock / ".claw-describe.json").read_text(encoding="utf-8"))["tools"][0]
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), runpy.run_path(str(clock / "clock.py"))["Clock"]
    ) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            connection = HTTPConnection("127.0.0.1", server.server_port)
            connection.request(tool["http"]["method"], f"{tool['http']['path']}?zone=UTC")
            answer = connection.getresponse()
            assert (answer.status, json.load(answer)["zone"]) == (200, "UTC")
            connection.request("GET", f"{tool['http']['path']}?zone=../../etc/passwd")
            answer = connection.getresponse()
            assert (answer.status, list(json.load(answer))) == (404, ["error"])
            connection.close()
        finally:
            server.shutdown()
