"""A server of MCP without an HTTP library, and the part of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from claw_mcp.protocol import CAPABILITIES_META, VERSION_META, RpcError, write_notification
from claw_mcp.server import HttpRequest, HttpResponse, StreamableHttpServer
from claw_mcp.sessions import ClientRequest, Session

HEADERS = {
    "Host": "ok",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
META = {VERSION_META: "2026-07-28", CAPABILITIES_META: {}}
STATELESS = {"MCP-Protocol-Version": "2026-07-28"}


class Echo:
    """A backend whose methods are what they do."""

    def __init__(self) -> None:
        self.ended: list[Session] = []
        self.running: list[ClientRequest] = []
        self.go = asyncio.Event()

    async def describe(self, request: ClientRequest) -> Mapping[str, Any]:
        if b"refuse" in bytes(request.message.params):
            raise RpcError(-32000, "not now")
        return {"capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}

    async def answer(self, request: ClientRequest) -> bytes:
        self.running.append(request)
        match request.method:
            case "note":
                request.send(write_notification("notifications/progress", b'{"progress":1}'))
            case "wait":
                await self.go.wait()
            case "fail":
                raise ZeroDivisionError
            case "none":
                raise RpcError(-32601, "none", {"big": 2**80})
        return b'{"big":123456789012345678901234567890}'

    def end_session(self, session: Session) -> None:
        self.ended.append(session)


class Host:
    """The part of an HTTP library: it passes requests to a server and reads its responses."""

    def __init__(self, **settings: Any) -> None:
        self.backend = Echo()
        self.server = StreamableHttpServer(
            self.backend,
            is_allowed_host=lambda host: host == "ok",
            is_allowed_origin=lambda origin: origin == "http://ok",
            **settings,
        )

    async def send(
        self,
        method: str,
        body: Any = None,
        principal: str = "",
        raw: bytes | None = None,
        **headers: str,
    ) -> HttpResponse:
        fields = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        return await self.server.handle(
            HttpRequest(method, "/mcp", [(n, v) for n, v in fields.items() if v], data), principal
        )

    async def ask(
        self, method: str, session: str = "", request_id: Any = 1, **more: Any
    ) -> tuple[int, Any]:
        """The status and the last message of the answer."""
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": more.pop("params", {}),
        }
        if request_id is None:
            del message["id"]
        headers = {"Mcp_Session_Id": session} if session else {}
        response = await self.send("POST", message, **headers, **more)
        return response.status, await last(response)

    async def open(self, principal: str = "") -> str:
        params = {"protocolVersion": "2025-11-25"}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.send("POST", message, principal)
        assert response.status == 200
        return dict(response.headers)["mcp-session-id"]


async def last(response: HttpResponse) -> Any:
    body = b"".join([chunk async for chunk in response.chunks])
    if dict(response.headers).get("content-type") == "text/event-stream":
        body = [line[5:] for line in body.splitlines() if line.startswith(b"data:")][-1]
    return json.loads(body) if body else None


def code_of(message: Any) -> int:
    code: int = message["error"]["code"]
    return code
