"""The real proxy serves what ``claw compile`` writes: tools, feeds, memory, blocks,
models, budget, keys, tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.report import as_text
from tests.peers import calls, text
from tests.proxy.pod import Pod, pod_at

KEY, TOKEN, OWN, MEMORY = (
    "sk-compiled-provider-key",
    "compiled-token",
    "compiled-own-token",
    "compiled-memory-token",
)
POD = """\
x-claw:
  pod: desk
  cllama-defaults:
    proxy: passthrough
    env: {{OPENAI_API_KEY: "${{KEY}}", OPENAI_BASE_URL: "{provider}/v1"}}
  tools-defaults: [{{service: api, allow: [get_quote]}}]
  secrets: {{memory-token: {{env: MEMORY}}}}
services:
  analyst:
    image: analyst:1
    x-claw:
      agent: AGENTS.md
      count: 2
      models: {{primary: openai/gpt-allowed}}
      feeds: [prices]
      memory: {{service: notes, timeout-ms: 20000}}
      context: {{blocks: [{{id: house, text: Never promise returns.}}]}}
      budget: {{max-requests: 2, window: 1h}}
  trader:
    image: trader:1
    x-claw:
      agent: AGENTS.md
      tools: [..., {{service: api, allow: all}}]
      service-auth: [{{service: api, env: OWN}}]
  api:
    image: api:1
    environment: {{TOKEN: "${{TOKEN}}", OWN: "${{OWN}}"}}
    x-claw: {{describe-file: api.json, base-url: "{service}", auth: {{type: bearer, env: TOKEN}}}}
  notes:
    image: notes:1
    x-claw: {{describe-file: notes.json, base-url: "{service}/notes", auth: {{type: bearer, secret: memory-token}}}}
"""
API = {
    "version": 2,
    "feeds": [{"name": "prices", "path": "/prices/{claw_id}", "ttl": 60}],
    "tools": [
        {
            "name": name,
            "description": name,
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnly": method == "GET"},
            "http": {"method": method, "path": f"/{name}/{{claw_id}}"},
        }
        for name, method in (("get_quote", "GET"), ("trade", "POST"))
    ],
}
NOTES = {"version": 2, "memory": {"recall": {"path": "/recall"}, "retain": {"path": "/retain"}}}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Pod]:
    """Yield a compiled pod, whose proxy has the environment of its Compose file,
    except for the paths of the container.
    """
    with pod_at(tmp_path) as pod:
        pod_file = tmp_path / "claw-pod.yml"
        pod_file.write_text(
            POD.format(provider=pod.provider.url, service=pod.service.url), encoding="utf-8"
        )
        for name, content in (
            ("AGENTS.md", "Be good.\n"),
            ("api.json", json.dumps(API)),
            ("notes.json", json.dumps(NOTES)),
        ):
            (tmp_path / name).write_text(content, encoding="utf-8")
        environ = {"KEY": KEY, "TOKEN": TOKEN, "OWN": OWN, "MEMORY": MEMORY}
        result = compile_pod(pod_file, environ)
        assert result.value is not None, as_text(result.diagnostics)
        pod.environment = composed(tmp_path) | {
            "OPENAI_API_KEY": "",
            "ANTHROPIC_API_KEY": "",
            "ANTHROPIC_BASE_URL": "",
        }
        pod.start()
        yield pod


def composed(home: Path) -> dict[str, str]:
    """Return the proxy's environment, with its mounts at their places on this machine."""
    compose = yaml.safe_load((home / "compose.generated.yml").read_text(encoding="utf-8"))
    proxy = compose["services"]["cllama"]
    mounts = {"/claw/runtime": ".claw-runtime", "/claw/history": "history", "/claw/state": "state"}
    mounts["/claw/ca"] = ".claw-ca/private"
    environment: dict[str, str] = {}
    for name, value in proxy["environment"].items():
        if name in (
            "LISTEN_ADDR",
            "CLAW_PROXY_ADDR",
        ):  # the container's; here each test has ports of its own
            continue

        mount = next(
            (mount for mount in mounts if str(value).startswith(f"{mount}/") or value == mount),
            None,
        )
        environment[name] = (
            value if mount is None else str(home / mounts[mount]) + value.removeprefix(mount)
        )
    environment |= dict(
        line.partition("=")[::2] for line in env_file(home / proxy["env_file"][0]["path"])
    )
    (home / "state").mkdir()
    return environment | {
        "CLAW_SECRETS_DIR": str(home / ".claw-runtime" / "secrets"),
        "HOME": str(home / "home"),
    }


def env_file(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def client(desk: Pod, agent_id: str) -> openai.OpenAI:
    """Return the SDK with the agent's compiled environment, and the address of this machine."""
    runner = dict(
        line.partition("=")[::2]
        for line in env_file(desk.home / ".claw-runtime" / "agents" / agent_id / "env")
    )
    assert runner["OPENAI_BASE_URL"] == "http://cllama:8080/v1"
    return desk.client(agent_id, api_key=runner["OPENAI_API_KEY"])


def ask(client: openai.OpenAI, **more: Any) -> str:
    messages: Any = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "What now?"},
    ]
    reply = client.chat.completions.create(model="gpt-whatever", messages=messages, **more)
    return reply.choices[0].message.content or ""


@pytest.mark.requirement("compile:served")
def test_a_compiled_agent_gets_its_tools_its_context_its_model_and_its_budget(desk: Pod) -> None:
    async def echo(request: Request) -> Response:
        return JSONResponse({"path": request.url.path, "sent": request.headers["authorization"]})

    desk.service.routes["GET", "/get_quote/analyst-1"] = echo
    desk.service.routes["GET", "/prices/analyst-1"] = Response(b"NVDA 1.50")
    desk.service.routes["POST", "/notes/recall"] = JSONResponse(
        {"memories": [{"text": "Likes tea."}]}
    )
    desk.service.routes["POST", "/notes/retain"] = JSONResponse({})
    desk.provider.says(calls(("call_1", "api__get_quote", {})), text("Fine."))
    runner = client(desk, "analyst-1")
    assert ask(runner) == "Fine."
    first, second = desk.provider.received[-2:]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.json["model"] == "gpt-allowed"
    assert [tool["function"]["name"] for tool in first.json["tools"]] == ["api__get_quote"]
    told = json.dumps(first.json["messages"])
    for words in ("NVDA 1.50", "Likes tea.", "Never promise returns."):
        assert words in told
    result = json.loads(second.json["messages"][-1]["content"])
    assert result["data"]["path"] == "/get_quote/analyst-1"
    heard = {one.path: one.headers["authorization"] for one in desk.service.received}
    assert heard["/get_quote/analyst-1"] == heard["/prices/analyst-1"] == f"Bearer {TOKEN}"
    assert heard["/notes/recall"] == f"Bearer {MEMORY}"
    desk.provider.says(text("Again."))
    assert ask(runner) == "Again."
    with pytest.raises(openai.RateLimitError):
        ask(runner)


@pytest.mark.requirement("compile:served")
def test_an_agents_own_credential_is_used_for_it_alone_and_one_ordinal_is_not_another(
    desk: Pod,
) -> None:
    async def echo(request: Request) -> Response:
        return JSONResponse({"sent": request.headers["authorization"]})

    desk.service.routes["POST", "/trade/trader"] = echo
    desk.provider.says(calls(("call_2", "api__trade", {})), text("Done it."))
    assert ask(client(desk, "trader")) == "Done it."
    assert desk.service.received[-1].headers["authorization"] == f"Bearer {OWN}"
    token = client(desk, "analyst-0").api_key
    with pytest.raises(openai.PermissionDeniedError):
        ask(desk.client("analyst-1", api_key=token.replace("analyst-0:", "analyst-1:")))


@pytest.mark.requirement("compile:served")
def test_the_next_compile_counts_at_the_next_request_without_a_restart(desk: Pod) -> None:
    pod_file = desk.home / "claw-pod.yml"
    pod_text = pod_file.read_text(encoding="utf-8")
    environ = {"KEY": KEY, "TOKEN": TOKEN, "OWN": OWN, "MEMORY": MEMORY}
    pod_file.write_text(
        pod_text.replace("tools: [..., {service: api, allow: all}]", "tools: []"), encoding="utf-8"
    )
    assert compile_pod(pod_file, environ).value is not None
    desk.provider.says(text("Nothing."))
    assert ask(client(desk, "trader")) == "Nothing."
    assert "tools" not in desk.provider.received[-1].json
