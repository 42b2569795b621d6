"""A mediator whose agents have native tools, with real services, and MCP clients that speak to it
without an HTTP server.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.peers import Service
from tests.settings import default_settings
from tests.waiting import eventually_async

TOOL_TOKEN = "tool-token-planted-0002"
PROVIDER_KEY = "sk-provider-key-planted-0001"
STATELESS = "2026-07-28"
SYMBOL = {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]}


@dataclass(frozen=True)
class Reply:
    """An HTTP response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        """The JSON-RPC response: the body, or the last event of a stream."""
        if "event-stream" not in self.headers.get("content-type", ""):
            return json.loads(self.body)
        events = [
            line.removeprefix(b"data: ")
            for line in self.body.splitlines()
            if line.startswith(b"data: ")
        ]
        return json.loads(events[-1])

    @property
    def result(self) -> Any:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> int:
        code: int = self.message["error"]["code"]
        return code


@dataclass
class BrokerPod:
    """A pod with one service, ``desk``; agents are added by the test."""

    home: Path
    service: Service = field(default_factory=Service)
    events: list[dict[str, Any]] = field(default_factory=list)

    def open(self, **settings: Any) -> None:
        self.service.start()
        (self.home / "auth").mkdir()
        file = {
            "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key": PROVIDER_KEY}}
        }
        (self.home / "auth" / "providers.json").write_text(json.dumps(file), encoding="utf-8")
        values = default_settings()
        values |= {name: str(self.home / name) for name in ("context", "auth", "history")}
        log = EventLog(lambda line: self.events.append(known(line)))
        self.mediator = Mediator(Settings.of(values | settings), log, {})

    async def close(self) -> None:
        await self.mediator.close(0)
        self.service.stop()

    def tool(
        self, name: str, *, write: bool = False, schema: Any = None, **more: Any
    ) -> dict[str, Any]:
        """A native tool: it reads by GET, or writes by POST."""
        annotations = {"readOnly": not write, **more.pop("annotations", {})}
        execution = {
            "transport": "http",
            "service": "desk",
            "base_url": self.service.url,
            "method": "POST" if write else "GET",
            "path": f"/{name}",
            "auth": {"type": "bearer", "token": TOOL_TOKEN},
        }
        return {
            "name": f"desk.{name}",
            "description": f"The {name} of the desk.",
            "inputSchema": schema or {"type": "object"},
            "annotations": annotations,
            "execution": execution,
            "delivery": "native",
            **more,
        }

    def agent(
        self, agent_id: str, *tools: dict[str, Any], metadata: Any = None, **policy: Any
    ) -> None:
        directory = self.home / "context" / agent_id
        directory.mkdir(parents=True, exist_ok=True)
        about = {"service": agent_id, "pod": "p", "token": token(agent_id), **(metadata or {})}
        manifest = {"version": 1, "tools": tools, "policy": policy}
        for name, document in (("metadata.json", about), ("tools.json", manifest)):
            staged = directory / f"{name}.new"
            staged.write_text(json.dumps(document), encoding="utf-8")
            staged.rename(directory / name)

    def client(self, agent_id: str = "analyst", **headers: str) -> McpClient:
        return McpClient(self, agent_id, headers)

    def history(self, agent_id: str = "analyst") -> list[dict[str, Any]]:
        file = self.home / "history" / agent_id / "history.jsonl"
        return (
            [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            if file.exists()
            else []
        )

    def logged(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def calls_of(self, path: str) -> int:
        """Return the number of requests to the service on this path."""
        return sum(request.path.partition("?")[0] == path for request in self.service.received)


def token(agent_id: str) -> str:
    return f"{agent_id}:secret-of-{agent_id}"


class McpClient:
    """A client of the handshake era; ``stateless`` asks in the other one."""

    def __init__(self, pod: BrokerPod, agent_id: str, headers: dict[str, str]) -> None:
        self.pod = pod
        self.path = f"/mcp/{agent_id}"
        self.headers = {
            "authorization": f"Bearer {token(agent_id)}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **headers,
        }
        self.last_id = 0

    async def send(
        self, body: bytes = b"", method: str = "POST", path: str = "", **headers: str
    ) -> RunnerResponse:
        fields = {
            name.replace("_", "-"): value
            for name, value in (self.headers | headers).items()
            if value
        }
        head = Request(method, path or self.path, list(fields.items()), b"")
        admitted = self.pod.mediator.admit(head)
        if isinstance(admitted, RunnerResponse):
            return admitted
        assert isinstance(admitted, Identity)
        assert self.pod.mediator.must_read(admitted, head)
        answer = await self.pod.mediator.exchange(
            admitted, Request(method, head.path, head.headers, body)
        )
        assert isinstance(answer, RunnerResponse)
        return answer

    async def post(self, body: Any, **headers: str) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await read(await self.send(raw, **headers))

    async def ask(
        self, method: str, params: Any = None, request_id: Any = None, **headers: str
    ) -> Reply:
        self.last_id += 1
        message = {
            "jsonrpc": "2.0",
            "id": self.last_id if request_id is None else request_id,
            "method": method,
        }
        return await self.post(
            {**message, **({} if params is None else {"params": params})}, **headers
        )

    async def open(self, version: str = "2025-11-25") -> McpClient:
        """Shake hands, and keep the session."""
        info = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        reply = await self.ask("initialize", info)
        assert reply.status == 200, reply
        self.headers["mcp-session-id"] = reply.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = reply.result["protocolVersion"]
        assert (
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        ).status == 202
        return self

    async def list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = (await self.ask("tools/list")).result["tools"]
        return tools

    async def call(
        self, name: str, arguments: Any = None, request_id: Any = None, **headers: str
    ) -> Any:
        params = {"name": name, **({} if arguments is None else {"arguments": arguments})}
        return (await self.ask("tools/call", params, request_id, **headers)).result

    async def stateless(self, method: str, params: Any = None) -> Reply:
        return await read(await self.send_stateless(method, params))

    async def listen(self) -> RunnerResponse:
        """Subscribe to changes of the list of tools, in the stateless era."""
        return await self.send_stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )

    async def send_stateless(self, method: str, params: Any = None) -> RunnerResponse:
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        named = {"mcp-name": params["name"]} if params and "name" in params else {}
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**(params or {}), "_meta": meta},
        }
        headers = {"mcp-protocol-version": STATELESS, "mcp-method": method, **named}
        return await self.send(json.dumps(body).encode(), **headers)

    def begin(self, name: str, arguments: Any = None, request_id: Any = None) -> asyncio.Task[Any]:
        """Begin a call; cancelling it is how this client leaves."""
        return asyncio.ensure_future(self.call(name, arguments, request_id))


async def read(response: RunnerResponse) -> Reply:
    return Reply(
        response.status,
        dict(response.headers),
        b"".join([chunk async for chunk in response.chunks]),
    )


class Gate:
    """A route that answers when it is opened."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked, self.most = answer, 0, 0
        self.is_open = False
        self._running = 0

    async def __call__(self, _request: StarletteRequest) -> Response:
        self.asked += 1
        self._running += 1
        self.most = max(self.most, self._running)
        await eventually_async(lambda: self.is_open, "the test opens the gate")
        self._running -= 1
        return JSONResponse(self.answer)


def failure(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    error: dict[str, Any] = json.loads(result["content"][0]["text"])
    return error
