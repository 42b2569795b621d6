"""MCP servers behind the host, as the host runs them; what they report and change
is kept for the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from claw_contract.log.tool_host import ToolHostServerEvent
from claw_contract.toolhost_file import McpServerSection
from claw_tools.errors import ToolError
from claw_tools.servers.links import ChildLink
from claw_tools.servers.server import McpServer
from tests.waiting import eventually_async

CHILD = Path(__file__).parents[1] / "mcp" / "child.py"


class NamedSection(NamedTuple):
    """A server of ``mcp_servers``."""

    name: str
    section: McpServerSection


def command(name: str, *words: str, **more: Any) -> NamedSection:
    """Return the section of a server that is a command."""
    program, *args = words
    return NamedSection(name, McpServerSection(command=program, args=args, **more))


def address(name: str, url: str, **more: Any) -> NamedSection:
    """Return the section of a server at a URL."""
    return NamedSection(name, McpServerSection(url=url, **more))


def child(*arguments: str, name: str = "child", **more: Any) -> NamedSection:
    """Return the section of the scripted server on stdio."""
    return command(name, sys.executable, "-S", str(CHILD), *arguments, **more)


@dataclass
class BackendServer:
    """A server behind the host."""

    settings: NamedSection
    reports: list[dict[str, Any]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    server: McpServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = McpServer(*self.settings, self.changes.append, self._report)

    def _report(self, state: str, **members: Any) -> None:
        ToolHostServerEvent(type="tool_host_server", ts="now", state=state, **members)
        self.reports.append({"state": state, **members})

    def of(self, state: str) -> list[dict[str, Any]]:
        return [report for report in self.reports if report["state"] == state]

    @property
    def pid(self) -> int:
        return int(self.of("started")[-1]["pid"])

    async def names(self) -> set[str]:
        return {tool.name for tool in await self.server.list_tools()}

    async def call(self, name: str, /, **arguments: Any) -> Any:
        return await self.server.call_tool(name, arguments)

    async def fails(self, name: str, /, **arguments: Any) -> ToolError:
        """Return the error of a call."""
        try:
            result = await self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(result)

    async def raw(self, name: str, /, **arguments: Any) -> Any:
        """Return a result of the scripted child as it sends it."""
        return json.loads(await self.server._link.call({"name": name, "arguments": arguments}, {}))

    async def seen(self) -> list[dict[str, Any]]:
        """Return the notifications that the scripted child got."""
        assert isinstance(self.server._link, ChildLink)
        seen: list[dict[str, Any]] = json.loads(
            await self.server._link._supervisor.call("seen", {})
        )["seen"]
        return seen

    @property
    def child_pid(self) -> int:
        """The server itself, below the reaper."""
        (pid,) = (
            Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="utf-8").split()
        )
        return int(pid)

    async def is_ready(self, times: int = 1) -> None:
        await eventually_async(
            lambda: len(self.of("ready")) >= times and self.server.state == "ready",
            "the server is ready",
        )


@asynccontextmanager
async def behind(settings: NamedSection, *, ready: bool = True) -> AsyncIterator[BackendServer]:
    """Yield a running server; nothing of it is left after the block."""
    made = BackendServer(settings)
    running = asyncio.create_task(made.server.run())
    try:
        if ready:
            await made.is_ready()
        yield made
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        for _ in range(8):
            await asyncio.sleep(0)  # A transport closes its socket a turn of the loop later


def text_of(result: object) -> str:
    assert isinstance(result, dict)
    return str(result["output"])
