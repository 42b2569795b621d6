"""Real agents at the broker: each is started with what ``claw compile`` wrote for it, and its model
calls a granted tool.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.report import as_text
from tests.mcp_peers.peers import client_program
from tests.mcp_peers.sdk import SECONDS
from tests.one_call import MODEL, OneCallModel
from tests.peers import Provider
from tests.proxy.pod import Pod, pod_at
from tests.proxy.test_compiled import composed

FACT = "forty-two"
PROVIDER_KEY = "sk-of-the-provider-0006"
POD = """\
x-claw: {{pod: clients}}
services:
  agent:
    image: agent:1
    x-claw:
      agent: AGENTS.md
      type: {client}
      delivery: native
      tools: [{{service: api, allow: all}}]
      cllama: passthrough
      cllama-env:
        {{OPENAI_API_KEY: {key}, OPENAI_BASE_URL: "{model}/v1", ANTHROPIC_API_KEY: {key}, ANTHROPIC_BASE_URL: "{model}/v1"}}
  api:
    image: api:1
    x-claw: {{describe-file: api.json, base-url: "{service}"}}
"""
LOOK_UP = {
    "name": "look_up",
    "description": "Look a word up.",
    "inputSchema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
    "annotations": {"readOnly": True},
    "http": {"method": "GET", "path": "/look-up"},
}
OPENCODE = {
    "provider": {
        "pod": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "pod",
            "models": {MODEL: {"name": MODEL}},
        }
    },
    "model": f"pod/{MODEL}",
    "small_model": f"pod/{MODEL}",
    "autoupdate": False,
    "permission": "allow",
}
CODEX = """\
model = "{model}"
model_provider = "pod"
[model_providers.pod]
name = "pod"
base_url = "{base_url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""


def claude_code(home: Path, _environment: dict[str, str]) -> list[str]:
    permission = ["--allowedTools", "mcp__claw__api__look_up", "--output-format", "json"]
    return [
        *client_program("claude"),
        "-p",
        "Look it up",
        "--mcp-config",
        str(home / "mcp/.mcp.json"),
        "--strict-mcp-config",
        *permission,
    ]


def codex(home: Path, environment: dict[str, str]) -> list[str]:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    model = CODEX.format(model=MODEL, base_url=environment["OPENAI_BASE_URL"])
    file.write_text(
        model + (home / "mcp/config.toml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    return [
        *client_program("codex"),
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "Look it up",
    ]


def opencode(home: Path, environment: dict[str, str]) -> list[str]:
    options = {"baseURL": environment["OPENAI_BASE_URL"], "apiKey": environment["OPENAI_API_KEY"]}
    OPENCODE["provider"]["pod"]["options"] = options  # type: ignore[index]
    file = home / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(OPENCODE), encoding="utf-8")
    environment |= {
        "OPENCODE_CONFIG": str(home / "mcp/opencode.json"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return [*client_program("opencode"), "run", "Look it up"]


CLIENTS = {"claude-code": claude_code, "codex": codex, "opencode": opencode}


@pytest.fixture(params=CLIENTS)
def client_and_pod(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Pod]]:
    """A client, and the pod that is compiled for it; the proxy runs."""
    model = OneCallModel(
        tool="api__look_up",
        marker=FACT,
        words=f"The tool says: {FACT}.",
        arguments={"word": "answer"},
    )
    with pod_at(tmp_path, Provider(model=model)) as pod:
        pod.service.routes["GET", "/look-up"] = JSONResponse({"answer": FACT})
        pod_text = POD.format(
            client=request.param, key=PROVIDER_KEY, model=pod.provider.url, service=pod.service.url
        )
        for name, text in (
            ("claw-pod.yml", pod_text),
            ("AGENTS.md", "Be good.\n"),
            ("api.json", json.dumps({"version": 2, "tools": [LOOK_UP]})),
        ):
            (tmp_path / name).write_text(text, encoding="utf-8")
        result = compile_pod(
            tmp_path / "claw-pod.yml", {"CLAW_MASTER_SECRET": "the-master-secret-of-these-tests"}
        )
        assert result.value is not None, as_text(result.diagnostics)
        pod.environment = composed(tmp_path)
        pod.start()
        yield request.param, pod


def client_home(pod: Pod) -> tuple[Path, dict[str, str]]:
    """Return a home for the client, with its compiled files, and its whole
    environment, with the address of this machine.
    """
    compiled = pod.home / ".claw-runtime"
    home = pod.home / "runner"
    (home / "mcp").mkdir(parents=True)
    for file in (compiled / "context/agent/mcp").iterdir():
        (home / "mcp" / file.name).write_text(at_this_machine(pod, file), encoding="utf-8")
    lines = at_this_machine(pod, compiled / "agents/agent/env").splitlines()
    environment = dict(line.partition("=")[::2] for line in lines)
    quiet = {
        "CI": "1",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    # Whatever else an agent would ask the internet for, it asks a port where nobody listens.
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    return home, {"PATH": os.environ["PATH"], "HOME": str(home), **nowhere, **quiet, **environment}


def at_this_machine(pod: Pod, file: Path) -> str:
    return file.read_text(encoding="utf-8").replace("http://cllama:8080", pod.url)


@pytest.mark.long
@pytest.mark.requirement("mcp:real-clients")
def test_a_real_agent_lists_and_calls_its_granted_tool_at_the_broker(
    client_and_pod: tuple[str, Pod],
) -> None:
    client, pod = client_and_pod
    model = pod.provider.model
    assert isinstance(model, OneCallModel)
    home, environment = client_home(pod)
    command = CLIENTS[client](home, environment)
    run = subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert FACT in run.stdout.decode(), (
        run.stdout.decode()[-2000:],
        run.stderr.decode()[-2000:],
        pod.said()[-2000:],
    )
    assert len([name for name in model.offered if name.endswith("api__look_up")]) == 1
    assert [request.path for request in pod.service.received] == ["/look-up?word=answer"]
    keys = {
        request.headers.get("x-api-key") or request.headers["authorization"]
        for request in pod.provider.received
    }
    assert {key.removeprefix("Bearer ") for key in keys} == {PROVIDER_KEY}
    native = [line for line in pod.history("agent") if line.get("delivery") == "native"]
    calls = [call for line in native for part in line["tool_trace"] for call in part["tool_calls"]]
    assert [call["name"] for call in calls] == ["api.look_up"]
