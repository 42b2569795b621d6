"""Servers that people use: discovered, compiled, called by a model through the proxy, and by the
official SDK at the broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from claw_compile.compiler import compile_pod
from claw_compile.diagnostics.report import as_text
from tests.fork_server import run_claw
from tests.mcp_peers.peers import environment, git_repository, npm_program, server_process, wrapper
from tests.mcp_peers.sdk import SDKS, Sdk, ask, job, program
from tests.peers import calls, text
from tests.proxy.pod import Pod, pod_at
from tests.proxy.test_compiled import composed
from tests.waiting import free_port

type Call = tuple[str, dict[str, Any], str]
"""A tool, its arguments, and a text that its result contains.

Arguments may have ``{home}`` and ``{url}``.
"""

PAGE = "The page of a service of this pod."
KEY = "sk-of-the-provider-0007"
POD = """\
x-claw:
  pod: servers
  cllama-defaults: {{proxy: passthrough, env: {{OPENAI_API_KEY: {key}, OPENAI_BASE_URL: "{model}/v1"}}}}
  tools-defaults: {grants}
services:
  mediated: {{image: "agent:1", x-claw: {{agent: AGENTS.md}}}}
  native: {{image: "agent:1", x-claw: {{agent: AGENTS.md, delivery: native}}}}
"""
SERVICE = """\
  {name}:
    image: server:1
    environment: {variables}
    x-claw:
      {transport}
      base-url: "{url}"
"""


@dataclass(frozen=True)
class RealServer:
    """A published server, with calls of which the last one reads.

    ``sdk``: the SDK that asks at the broker.
    """

    command: Callable[[], list[str]]
    arguments: tuple[str, ...]
    calls: tuple[Call, ...]
    sdk: Sdk = 2
    variables: dict[str, str] = field(default_factory=dict)
    is_http: bool = False
    """It speaks streamable HTTP itself, at the port of ``PORT``; else it is on
    stdio, behind the wrapper.
    """


ENTITY = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
THOUGHT = {"thought": "First.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
SERVERS = {
    "everything": RealServer(
        lambda: npm_program("mcp-server-everything"),
        (),
        (("echo", {"message": "hello"}, "Echo: hello"),),
        sdk=1,
    ),
    "everything-http": RealServer(
        lambda: npm_program("mcp-server-everything"),
        ("streamableHttp",),
        (
            ("get-structured-content", {"location": "Chicago"}, "conditions"),
            ("get-sum", {"a": 2, "b": 40}, "is 42"),
        ),
        is_http=True,
    ),
    "filesystem": RealServer(
        lambda: npm_program("mcp-server-filesystem"),
        ("{home}",),
        (
            (
                "write_file",
                {"path": "{home}/note.txt", "content": "Buy bread."},
                "Successfully wrote",
            ),
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
        lambda: npm_program("mcp-server-sequential-thinking"),
        (),
        (("sequentialthinking", THOUGHT, "thoughtHistoryLength"),),
    ),
    "time": RealServer(
        lambda: [program("mcp-server-time")],
        ("--local-timezone", "UTC"),
        (
            (
                "convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                "T21:00:00+09:00",
            ),
        ),
    ),
    "git": RealServer(
        lambda: [program("mcp-server-git")],
        (),
        (("git_status", {"repo_path": "{home}/repository"}, "untracked.txt"),),
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
class RealServersPod:
    """A pod with real servers, whose tools an agent ``mediated`` and an agent
    ``native`` are granted.
    """

    pod: Pod

    def calls(self, name: str) -> list[Call]:
        """A server's calls, as they are made on this machine, with the names that agents see."""
        calls: list[Call] = json.loads(self._placed(json.dumps(SERVERS[name].calls)))
        return [(f"{name}__{tool}", arguments, expected) for tool, arguments, expected in calls]

    def command(self, name: str) -> list[str]:
        return [*SERVERS[name].command(), *map(self._placed, SERVERS[name].arguments)]

    def variables(self, name: str) -> dict[str, str]:
        return {
            variable: self._placed(value) for variable, value in SERVERS[name].variables.items()
        }

    @contextmanager
    def running(self, name: str) -> Iterator[str]:
        """Run a server, by itself or behind the wrapper, until the block ends;
        yield its base URL.
        """
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        if SERVERS[name].is_http:
            environ = environment(self.pod.home, PORT=str(port), **self.variables(name))
            with server_process(self.command(name), self.pod.home, environ, f"{url}/mcp"):
                yield url
        else:
            with wrapper(self.command(name), self.pod.home, port, **self.variables(name)):
                yield url

    def compile(self, urls: dict[str, str]) -> None:
        """Write the pod file, discover the tools of each server, and compile."""
        grants = json.dumps([{"service": name, "allow": "all"} for name in urls])
        pod_text = POD.format(key=KEY, model=self.pod.provider.url, grants=grants)
        pod_text += "".join(self._service(name, url) for name, url in urls.items())
        for file, content in (("claw-pod.yml", pod_text), ("AGENTS.md", "Be good.\n")):
            (self.pod.home / file).write_text(content, encoding="utf-8")
        with ThreadPoolExecutor(len(urls)) as pool:
            for run in pool.map(self._discover, urls):
                assert run.returncode == 0, run.stdout + run.stderr
        result = compile_pod(
            self.pod.home / "claw-pod.yml",
            {"CLAW_MASTER_SECRET": "the-master-secret-of-these-tests"},
        )
        assert result.value is not None, as_text(result.diagnostics)

    def _discover(self, name: str) -> CompletedProcess[str]:
        environ = environment(self.pod.home, **self.variables(name))
        return run_claw(["discover", name], self.pod.home, environ)

    def token(self, agent_id: str) -> str:
        """Return the token that was compiled for an agent."""
        lines = (
            (self.pod.home / ".claw-runtime" / "agents" / agent_id / "env")
            .read_text(encoding="utf-8")
            .splitlines()
        )
        return dict(line.partition("=")[::2] for line in lines)["CLLAMA_TOKEN"]

    def _service(self, name: str, url: str) -> str:
        program, *arguments = self.command(name)
        stdio = f"mcp-stdio: {json.dumps({'command': program, 'args': arguments})}"
        transport = "mcp: {path: /mcp}" if SERVERS[name].is_http else stdio
        return SERVICE.format(
            name=name, variables=json.dumps(self.variables(name)), transport=transport, url=url
        )

    def _placed(self, text: str) -> str:
        return text.replace("{home}", str(self.pod.home)).replace("{url}", self.pod.service.url)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RealServersPod]:
    """The real servers, most of them behind ``claw mcp-stdio``, and the proxy with
    what was compiled for them.
    """
    git_repository(tmp_path / "repository")
    with pod_at(tmp_path) as pod, ExitStack() as servers:
        pod.service.routes["GET", "/page"] = PlainTextResponse(PAGE)
        served = RealServersPod(pod)
        with ThreadPoolExecutor(len(SERVERS)) as pool:
            urls = pool.map(lambda name: servers.enter_context(served.running(name)), SERVERS)
        served.compile(dict(zip(SERVERS, urls, strict=True)))
        pod.environment = composed(tmp_path)
        pod.start()
        yield served
        pod.stop()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.requirement("mcp:real-servers")
def test_real_servers_are_called_by_a_model_and_by_the_official_sdk(served: RealServersPod) -> None:
    """One pod has all servers: most of a server's cost would be its proxy and its SDK."""
    offered = {tool["function"]["name"] for name in SERVERS for tool in call_by_model(served, name)}
    assert {name.partition("__")[0] for name in offered} == set(SERVERS)
    url, token = f"{served.pod.url}/mcp/native", served.token("native")
    for sdk in SDKS:
        reads = [served.calls(name)[-1] for name in SERVERS if SERVERS[name].sdk == sdk]
        (answer,) = ask(
            sdk, job(url, *((tool, arguments) for tool, arguments, _ in reads), bearer=token)
        )
        assert {tool["name"] for tool in answer["tools"]} == offered
        for result, (tool, _, expected) in zip(answer["results"], reads, strict=True):
            assert not result.get("isError"), (tool, result)
            assert expected in result["content"][0]["text"], tool


def call_by_model(served: RealServersPod, name: str) -> list[dict[str, Any]]:
    """Let the model make each call in a round of its own, check what it reads, and
    return the tools that it was offered.
    """
    made = served.calls(name)
    for number, (tool, arguments, _) in enumerate(made):
        served.pod.provider.says(calls((f"call{number}", tool, arguments)))
    served.pod.provider.says(text("Done."))
    before = len(served.pod.provider.received)
    runner = served.pod.client("mediated", api_key=served.token("mediated"))
    reply = runner.chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": f"Use {name}"}]
    )
    assert reply.choices[0].message.content == "Done."
    requests = served.pod.provider.received[before:]
    for request, (_, _, expected) in zip(requests[1:], made, strict=True):
        result = json.loads(request.json["messages"][-1]["content"])
        assert result["ok"], result
        assert expected in json.dumps(result["data"], ensure_ascii=False), result
    tools: list[dict[str, Any]] = requests[0].json["tools"]
    return tools
