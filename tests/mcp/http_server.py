"""An MCP server over streamable HTTP, as honest or as broken as a test asks for.

It holds its client to the standard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.peers import Peer

VERSION = "io.modelcontextprotocol/protocolVersion"
JSON, EVENTS = "application/json", "text/event-stream"
ANSWERS: dict[str, tuple[int, str | None, str]] = {
    "page": (200, "text/html", "<html>Hello</html>"),
    "not-found": (404, JSON, '{"detail": "Not Found"}'),
    "broken": (503, JSON, '{"detail": "sorry"}'),
    "garbage": (200, JSON, '{"jsonrpc": "2.0", "id": 1, "res'),
    "half": (200, EVENTS, 'data: {"jsonrpc": "2.0", "id": 1}\n'),
    "accepted": (202, None, ""),
}
STREAMS: dict[str, tuple[str, bytes, float]] = {
    "huge": (JSON, b" " * 65536, 0),
    "huge-event": (EVENTS, b"data: " + b"x" * 65536, 0),
    "silent": (EVENTS, b": nothing yet\n\n", 0.05),
}


@dataclass
class ListingServer(Peer):
    """``style``: ``json`` or ``sse``. ``fault``: what is wrong with it.

    ``stateless``: it knows no handshake.
    """

    pages: list[list[Any]] = field(default_factory=lambda: [[]])
    style: str = "json"
    stateless: bool = False
    fault: str = ""
    ended: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    echo: str = ""

    async def answer(self, request: Request) -> Response:
        if (fault := self._fault(request)) is not None:
            return fault
        if request.method == "DELETE":
            self.ended.append(request.headers["mcp-session-id"])
            return Response(status_code=204)
        message = json.loads(await request.body())
        assert {*request.headers["accept"].split(", ")} == {"application/json", "text/event-stream"}
        assert request.headers["content-type"] == "application/json"
        if "method" not in message:
            self.answers.append(message)
        if "id" not in message or "method" not in message:
            return Response(status_code=202)
        if self.stateless:
            return self._stateless(request, message)
        if message["method"] == "initialize":
            information = {"name": "listed", "version": "1.0"}
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": information,
            }
            return self._response(message, result, {"mcp-session-id": "session-1"})
        if (request.headers.get("mcp-session-id"), request.headers.get("mcp-protocol-version")) != (
            "session-1",
            "2025-11-25",
        ):
            return JSONResponse(
                {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}},
                404,
            )
        return self._response(message, self._page(message.get("params", {})))

    def _stateless(self, request: Request, message: dict[str, Any]) -> Response:
        meta = message.get("params", {}).get("_meta", {})
        if meta.get(VERSION) != "2026-07-28":
            error = {
                "code": -32022,
                "message": "unsupported",
                "data": {"supported": ["2026-07-28"]},
            }
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)
        assert request.headers["mcp-protocol-version"] == "2026-07-28"
        assert request.headers["mcp-method"] == message["method"]
        assert "mcp-session-id" not in request.headers
        information = {"io.modelcontextprotocol/serverInfo": {"name": "listed", "version": "1.0"}}
        return self._response(
            message,
            {**self._page(message["params"]), "resultType": "complete", "_meta": information},
        )

    def _page(self, params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", 0))
        following = {"nextCursor": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"tools": self.pages[number], **following}

    def _response(
        self, message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Response:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if self.style == "json":
            return JSONResponse(answer, headers=headers)
        return StreamingResponse(
            self._events(message["id"], answer), media_type="text/event-stream", headers=headers
        )

    async def _events(self, request_id: Any, answer: dict[str, Any]) -> AsyncIterator[bytes]:
        """The answer after a comment, a request with the same id, a notification
        and somebody else's answer, in pieces.
        """
        before = [
            {"jsonrpc": "2.0", "id": request_id, "method": "ping"},
            {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": "listing"},
            },
            {"jsonrpc": "2.0", "id": 4711, "result": {"tools": [{"name": "of_nobody"}]}},
        ]
        stream = ": hello\r\n\r\n" + "".join(
            f"event: message\nid: 7\ndata: {json.dumps(each)}\n\n" for each in [*before, answer]
        )
        for start in range(0, len(stream), 50):
            yield stream[start : start + 50].encode()
            await asyncio.sleep(0)

    def _fault(self, request: Request) -> Response | None:
        if self.fault == "unauthorized":
            return JSONResponse({"error": f"no: {request.headers.get('authorization')}"}, 401)
        if self.fault == "redirect":
            return Response(status_code=307, headers={"location": "http://elsewhere.example/mcp"})
        if self.fault == "packed":
            return Response(b"\x1f\x8b", media_type=JSON, headers={"content-encoding": "gzip"})
        if self.fault in STREAMS:
            kind, piece, pause = STREAMS[self.fault]
            return StreamingResponse(_endless(piece, pause), media_type=kind)
        if self.fault in ANSWERS:
            status, kind, body = ANSWERS[self.fault]
            return Response(body, status, media_type=kind)
        return None


async def _endless(piece: bytes, pause: float = 0) -> AsyncIterator[bytes]:
    while True:
        yield piece
        await asyncio.sleep(pause)
