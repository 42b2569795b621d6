"""Managed calls to an MCP server, as an agent makes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_contract.manifest import Tool
from claw_contract.metadata import Metadata
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.observer import HiddenRequest, RequestObserver, ResponseInfo, TurnObserver
from claw_mediate.core.types import ToolResult
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.tools.executor import ToolExecutor
from tests.events import known
from tests.mcp.scripted_server import ECHO, ScriptedServer
from tests.mediate.made import called, limits

READ = {"readOnly": True}
METADATA = Metadata.model_validate({"service": "analyst", "pod": "p", "token": "analyst:s"})


def tool(server: ScriptedServer, name: str = "echo", **more: Any) -> Tool:
    """A tool of the server, as it would be compiled: a write unless it says otherwise."""
    entry = {
        "name": f"desk.{name}",
        "description": "",
        "inputSchema": more.pop("schema", ECHO["inputSchema"]),
        "annotations": more.pop("annotations", {}),
        "execution": {
            "transport": "mcp",
            "service": "desk",
            "base_url": server.url,
            "tool_name": name,
            **more,
        },
    }
    return Tool.model_validate(entry)


@dataclass
class Watcher(RequestObserver):
    """Notes every hidden request with its response."""

    requests: list[HiddenRequest] = field(default_factory=list)
    responses: list[ResponseInfo] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def on_turn(self, turn_id: str, agent_id: str) -> None: ...

    def on_end(self, entry: bytes) -> None: ...

    def on_request(self, hidden: HiddenRequest) -> Any:
        self.requests.append(hidden)
        return self

    def on_response(self, response: ResponseInfo) -> None:
        self.responses.append(response)

    def on_failure(self, reason: str) -> None:
        self.failures.append(reason)


@dataclass
class Caller:
    """Agents that call tools of one server."""

    server: ScriptedServer
    executor: ToolExecutor
    events: list[dict[str, Any]]
    watcher: Watcher = field(default_factory=Watcher)
    tools: tuple[Tool, ...] | None = None
    agents: dict[str, Agent] = field(default_factory=dict)

    def agent(self, agent_id: str, *tools: Tool, result_bytes: int = 16384) -> Agent:
        """The same object for the same tools, as the directory has it."""
        known_agent = self.agents.get(agent_id)
        bounds = limits(result_bytes=result_bytes)
        if known_agent is None or known_agent.tools != tools or known_agent.limits != bounds:
            self.agents[agent_id] = Agent(agent_id, METADATA, tools, bounds, "d")
        return self.agents[agent_id]

    async def call(
        self,
        text: str = '{"text":"hi"}',
        *,
        agent_id: str = "analyst",
        seconds: float = 20.0,
        used: Tool | None = None,
        **more: Any,
    ) -> ToolResult:
        limit = more.pop("result_bytes", 16384)
        of = used or tool(self.server, **more)
        agent = self.agent(agent_id, *(self.tools or (of,)), result_bytes=limit)
        redactor = Redactor(())
        observer = TurnObserver(self.watcher, "turn_1", agent_id, redactor)
        return await self.executor.call(agent, observer, called(of, text), "turn_1.1.0", seconds)


@asynccontextmanager
async def calling(server: ScriptedServer, secrets: Path) -> AsyncIterator[Caller]:
    events: list[dict[str, Any]] = []
    executor = ToolExecutor(secrets, EventLog(lambda line: events.append(known(line))))
    yield Caller(server, executor, events)
    await executor.close()


def envelope(result: ToolResult) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(result.content)
    return read


def error_of(result: ToolResult) -> tuple[str, str]:
    error = envelope(result)["error"]
    return error["code"], error["message"]
