"""The frame of the tools host in this process: registries, providers, and the shell
that answers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claw_contract.log.tool_host import ToolHostCallEvent
from claw_mcp.protocol import RpcError, read_messages, write_request
from claw_mcp.sessions import ClientRequest, Session
from claw_tools.audit import CallLog
from claw_tools.built_in import NotOfferedError, Parts, ToolGroup
from claw_tools.provider import ToolDefinition
from claw_tools.registry import ToolRegistry
from claw_tools.settings import HostSettings, Principal
from claw_tools.shell import McpServerShell
from claw_tools.tool import Tool

LIMIT = 64 << 10
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 100},
    },
    "additionalProperties": False,
}


class MadeTool(Tool):
    """A tool that does what a test says, and notes its arguments."""

    def __init__(
        self,
        name: str,
        work: Callable[[dict[str, Any]], Awaitable[Any]] | None = None,
        seconds: float = 60,
        **more: Any,
    ) -> None:
        self.name, self.description, self.parameters = (
            name,
            f"The tool {name}.",
            more.get("schema", SCHEMA),
        )
        self.annotations = more.get("annotations", {})
        self.max_seconds = seconds
        self._work = work
        self.calls: list[dict[str, Any]] = []

    async def execute(self, args: dict[str, Any]) -> Any:
        self.calls.append(args)
        return {"did": self.name} if self._work is None else await self._work(args)


class MadeProvider:
    """A provider of the tools of these names."""

    def __init__(self, namespace: str, *names: str) -> None:
        self.namespace = namespace
        self.definitions = [ToolDefinition(name, f"The tool {name}.", SCHEMA) for name in names]
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def list_tools(self) -> Sequence[ToolDefinition]:
        return self.definitions

    async def call_tool(self, name: str, args: dict[str, Any]) -> Any:
        self.calls.append((name, args))
        return {"did": f"{self.namespace}/{name}"}


class LoggedShell:
    """A shell with principals, and the lines of its log."""

    def __init__(self, *principals: Principal, audit: Any = "digest", limit: int = LIMIT) -> None:
        self.lines: list[dict[str, Any]] = []
        self.shell = McpServerShell(CallLog(self._write, audit), limit)
        self.registries = {
            each.name: ToolRegistry(each, self.shell.provided)
            for each in principals or [principal()]
        }
        for registry in self.registries.values():
            self.shell.add(registry)

    def _write(self, kind: str, members: dict[str, Any]) -> None:
        ToolHostCallEvent.model_validate({"type": kind, "ts": "", **members})
        self.lines.append(members)

    def register(self, *tools: Tool) -> None:
        for tool in tools:
            self.registries["a"].register(tool)

    async def provide(self, provider: MadeProvider, *, internal: bool = False) -> list[str]:
        self.shell.register_provider(provider, internal=internal)
        return await self.shell.provided.refresh(provider.namespace)

    async def ask(self, method: str, params: Any, who: str = "a") -> Any:
        """Return the result, or raise ``RpcError``. ``params``: data, or JSON as bytes."""
        content = params if isinstance(params, bytes) else json.dumps(params).encode()
        (message,) = read_messages(write_request(b"1", method, content))
        return json.loads(await self.shell.answer(ClientRequest(Session(who), message)))

    async def names(self, allowed: Sequence[str] | None = None, who: str = "a") -> list[str]:
        params = {} if allowed is None else {"_meta": {"claw/allowedTools": allowed}}
        return [tool["name"] for tool in (await self.ask("tools/list", params, who))["tools"]]

    async def call(
        self, name: str, arguments: Any = None, allowed: Sequence[str] | None = None, who: str = "a"
    ) -> Any:
        """Return the structured content. ``arguments``: data, or JSON as bytes."""
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        params: dict[str, Any] = {"name": name, "arguments": msgspec.Raw(raw)}
        if allowed is not None:
            params["_meta"] = {"claw/allowedTools": allowed}
        result = await self.ask("tools/call", msgspec.json.encode(params), who)
        (block,) = result["content"]
        assert json.loads(block["text"]) == result["structuredContent"]
        assert result["isError"] == ("error" in result["structuredContent"])
        return result["structuredContent"]

    async def outcome(
        self, name: str, arguments: Any = None, allowed: Sequence[str] | None = None, who: str = "a"
    ) -> str:
        """Return ``ok``, the code of a tool's error, or what the protocol's error says."""
        try:
            content = await self.call(name, arguments, allowed, who)
        except RpcError as error:
            return f"{error.code} {error.message}"
        code: str = content["error"]["code"] if "error" in content else "ok"
        return code


def principal(name: str = "a", globs: Sequence[str] = ("*",), **more: Any) -> Principal:
    return Principal(name=name, workspace=Path("/"), globs=tuple(globs), **more)


async def shell_with_tools(*globs: str) -> LoggedShell:
    scene = LoggedShell(principal("a", globs))
    scene.register(*(MadeTool(name) for name in ("read_file", "write_file", "exec_shell")))
    await scene.provide(MadeProvider("time", "now"))
    await scene.provide(MadeProvider("git", "log", "push"), internal=True)
    return scene


ALL_TOOLS = ["exec_shell", "git__log", "git__push", "read_file", "time__now", "write_file"]


def host_settings(*principals: Principal, **more: Any) -> HostSettings:
    return HostSettings(principals=principals or (principal(token_variable="TOKEN_A"),), **more)


def made_group(*names: str) -> ToolGroup:
    return ToolGroup(names, lambda _principal, _parts: [MadeTool(name) for name in names])


def refused_group(name: str, *, is_fault: bool) -> ToolGroup:
    def make(_principal: Principal, _parts: Parts) -> Iterable[Tool]:
        raise NotOfferedError("the kernel has no such thing", is_fault=is_fault)

    return ToolGroup((name,), make)
