"""Servers that people use: discovered, compiled, called by a model through the proxy, and by the official SDK at the broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.report import as_text
from tests.mcp_peers.peers import CLAW, environment, git_repository, npm_program, server_process, wrapper
from tests.mcp_peers.sdk import SECONDS, Sdk, ask, job, program
from tests.peers import Provider, Service
from tests.proxy.pod import Pod
from tests.proxy.test_compiled import composed
from tests.waiting import free_port
from tests.wires.openai import completion

type Call = tuple[str, dict[str, Any], str]
"""A tool, its arguments, and a text that its result contains. Arguments may have ``{home}`` and ``{url}``."""

PAGE = "The page of a service of this pod."
KEY = "sk-of-the-provider-0007"
POD = """\
x-claw:
  pod: servers
  cllama-defaults: {{proxy: passthrough, env: {{OPENAI_API_KEY: {key}, OPENAI_BASE_URL: "{model}/v1"}}}}
  tools-defaults: [{{service: {name}, allow: all}}]
services:
  mediated: {{image: "agent:1", x-claw: {{agent: AGENTS.md}}}}
  native: {{image: "agent:1", x-claw: {{agent: AGENTS.md, delivery: native}}}}
  {name}:
    image: server:1
    environment: {variables}
    x-claw:
      {transport}
      base-url: "{url}"
"""


@dataclass(frozen=True)
class RealServer:
    """A published server, with calls of which the last one reads. ``sdk``: the SDK that asks at the broker."""

    command: Callable[[], list[str]]
    arguments: tuple[str, ...]
    calls: tuple[Call, ...]
    sdk: Sdk = 2
    variables: dict[str, str] = field(default_factory=dict)
    is_http: bool = False
    """It speaks streamable HTTP itself, at the port of ``PORT``; else it is on stdio, behind the wrapper."""


ENTITY = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
THOUGHT = {"thought": "First.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
SERVERS = {
    "everything": RealServer(
        lambda: npm_program("mcp-server-everything"), (), (("echo", {"message": "hello"}, "Echo: hello"),), sdk=1
    ),
    "everything-http": RealServer(
        lambda: npm_program("mcp-server-everything"),
        ("streamableHttp",),
        (("get-structured-content", {"location": "Chicago"}, "conditions"), ("get-sum", {"a": 2, "b": 40}, "is 42")),
        is_http=True,
    ),
    "filesystem": RealServer(
        lambda: npm_program("mcp-server-filesystem"),
        ("{home}",),
        (
            ("write_file", {"path": "{home}/note.txt", "content": "Buy bread."}, "Successfully wrote"),
            ("read_text_file", {"path": "{home}/note.txt"}, "Buy bread."),
        ),
    ),
    "memory": RealServer(
        lambda: npm_program("mcp-server-memory"),
        (),
        (("create_entities", {"entities": [ENTITY]}, "Ada"), ("read_graph", {}, "likes tea")),
        variables={"MEMORY_FILE_PATH": "{home}/memory.jsonl"},
    ),
    "sequential-thinking": RealServer(
        lambda: npm_program("mcp-server-sequential-thinking"), (), (("sequentialthinking", THOUGHT, "thoughtHistoryLength"),)
    ),
    "time": RealServer(
        lambda: [program("mcp-server-time")],
        ("--local-timezone", "UTC"),
        (("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "T21:00:00+09:00"),),
    ),
    "git": RealServer(
        lambda: [program("mcp-server-git")], (), (("git_status", {"repo_path": "{home}/repository"}, "untracked.txt"),)
    ),
    "fetch": RealServer(
        lambda: [program("mcp-server-fetch")],
        ("--allow-private-ips", "--ignore-robots-txt"),
        (("fetch", {"url": "{url}/page"}, PAGE),),
    ),
    "sqlite": RealServer(
        lambda: [program("mcp-server-sqlite", 1)],
        ("--db-path", "{home}/data.db"),
        (
            ("create_table", {"query": "CREATE TABLE note (text TEXT)"}, "created"),
            ("write_query", {"query": "INSERT INTO note VALUES ('Buy bread.')"}, "affected_rows"),
            ("read_query", {"query": "SELECT text FROM note"}, "Buy bread."),
        ),
        sdk=1,
    ),
}


@dataclass
class Desk:
    """A pod with one server, whose tools an agent ``mediated`` and an agent ``native`` are granted."""

    pod: Pod
    name: str
    server: RealServer

    @property
    def calls(self) -> list[Call]:
        """The server's calls, as they are made on this machine."""
        calls: list[Call] = json.loads(self._placed(json.dumps(self.server.calls)))
        return calls

    def command(self) -> list[str]:
        return [*self.server.command(), *map(self._placed, self.server.arguments)]

    def variables(self) -> dict[str, str]:
        return {name: self._placed(value) for name, value in self.server.variables.items()}

    @contextmanager
    def running(self, port: int) -> Iterator[str]:
        """Run the server, by itself or behind the wrapper, until the block ends; yield its base URL."""
        url = f"http://127.0.0.1:{port}"
        if self.server.is_http:
            environ = environment(self.pod.home, PORT=str(port), **self.variables())
            with server_process(self.command(), self.pod.home, environ, f"{url}/mcp"):
                yield url
        else:
            with wrapper(self.command(), self.pod.home, port, **self.variables()):
                yield url

    def compile(self, url: str) -> None:
        """Write the pod file, discover the server's tools, and compile."""
        program, *arguments = self.command()
        stdio = f"mcp-stdio: {json.dumps({'command': program, 'args': arguments})}"
        pod_text = POD.format(
            key=KEY,
            model=self.pod.provider.url,
            name=self.name,
            variables=json.dumps(self.variables()),
            transport="mcp: {path: /mcp}" if self.server.is_http else stdio,
            url=url,
        )
        for name, text in (("claw-pod.yml", pod_text), ("AGENTS.md", "Be good.\n")):
            (self.pod.home / name).write_text(text, encoding="utf-8")
        verb = [*CLAW, "discover", self.name]
        environ = environment(self.pod.home, **self.variables())
        run = subprocess.run(verb, cwd=self.pod.home, env=environ, capture_output=True, check=False, timeout=SECONDS)
        assert run.returncode == 0, (run.stdout + run.stderr).decode()
        result = compile_pod(self.pod.home / "claw-pod.yml", {"CLAW_MASTER_SECRET": "the-master-secret-of-these-tests"})
        assert result.value is not None, as_text(result.diagnostics)

    def token(self, agent_id: str) -> str:
        """Return the token that was compiled for an agent."""
        lines = (self.pod.home / ".claw-runtime" / "agents" / agent_id / "env").read_text(encoding="utf-8").splitlines()
        return dict(line.partition("=")[::2] for line in lines)["CLLAMA_TOKEN"]

    def alias(self, tool: str) -> str:
        return f"{self.name}__{tool}"

    def _placed(self, text: str) -> str:
        return text.replace("{home}", str(self.pod.home)).replace("{url}", self.pod.service.url)


@pytest.fixture(params=SERVERS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A real server behind ``claw mcp-stdio``, and the proxy with what was compiled for it."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    service.routes["GET", "/page"] = PlainTextResponse(PAGE)
    git_repository(tmp_path / "repository")
    desk = Desk(Pod(tmp_path, provider, service), request.param, SERVERS[request.param])
    with desk.running(free_port()) as url:
        desk.compile(url)
        desk.pod.environment = composed(tmp_path)
        desk.pod.start()
        yield desk
        desk.pod.stop()
    provider.stop()
    service.stop()


@pytest.mark.long
@pytest.mark.requirement("mcp:real-servers")
def test_a_real_server_is_called_by_a_model_and_by_the_official_sdk(desk: Desk) -> None:
    offered = {tool["function"]["name"] for tool in call_by_model(desk)}
    name, arguments, expected = desk.calls[-1]
    url = f"{desk.pod.url}/mcp/native"
    (answer,) = ask(desk.server.sdk, job(url, (desk.alias(name), arguments), bearer=desk.token("native")))
    assert {tool["name"] for tool in answer["tools"]} == offered
    assert not answer["results"][0].get("isError"), answer["results"]
    assert expected in answer["results"][0]["content"][0]["text"]


def call_by_model(desk: Desk) -> list[dict[str, Any]]:
    """Let the model make each call in a round of its own, check what it reads, and return the tools that it was offered."""
    for number, (name, arguments, _) in enumerate(desk.calls):
        desk.pod.provider.says(chat(calls=[(f"call{number}", desk.alias(name), arguments)]))
    desk.pod.provider.says(chat("Done."))
    runner = desk.pod.client("mediated", api_key=desk.token("mediated"))
    reply = runner.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": "Do it"}])
    assert reply.choices[0].message.content == "Done."
    requests = desk.pod.provider.received
    for request, (_, _, expected) in zip(requests[1:], desk.calls, strict=True):
        result = json.loads(request.json["messages"][-1]["content"])
        assert result["ok"], result
        assert expected in json.dumps(result["data"], ensure_ascii=False), result
    tools: list[dict[str, Any]] = requests[0].json["tools"]
    return tools


def chat(text: str | None = None, **more: Any) -> Response:
    return JSONResponse(completion(text, **more))
