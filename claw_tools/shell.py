"""The MCP server of the tools host: each principal sees and calls its own tools.

Specification: docs/spec/tools-host.md.

Rules. A request may narrow what its principal sees by globs in ``_meta["claw/allowedTools"]``, for
that request alone; only such a request sees internal tools. Each call that runs is one line of the
log, however it ends.
"""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_mcp.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from claw_mcp.sessions import ClientRequest, Session
from claw_mcp.stateless import members
from claw_tools.audit import CallLog, CallRecord
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import CompositeToolProvider, ToolProvider
from claw_tools.registry import ToolRegistry
from claw_tools.result import fit, write_failure, write_success
from claw_tools.tool import Tool

ALLOWED_TOOLS: Final = "claw/allowedTools"
_MAX_GLOBS: Final = 128
_MAX_GLOB: Final = 64  # Characters
_SERVER_INFO: Final = {"name": "claw-tools", "version": version("clawdapus")}
_strings = msgspec.json.Decoder(list[str])


class McpServerShell:
    """Answers ``tools/list`` and ``tools/call`` of every principal.

    It is a ``Backend`` of claw_mcp's servers.
    """

    def __init__(self, log: CallLog, max_result: int) -> None:
        """Log each call with ``log``; cut results after ``max_result`` bytes."""
        self._log = log
        self._max_result = max_result
        self.provided = CompositeToolProvider()
        self._registries: dict[str, ToolRegistry] = {}

    def register_provider(self, provider: ToolProvider, *, internal: bool = False) -> None:
        """Offer a provider's tools to all principals. Raise ``NamespaceError``."""
        self.provided.register(provider, internal=internal)

    def add(self, registry: ToolRegistry) -> None:
        """Serve a principal with these tools."""
        self._registries[registry.principal.name] = registry

    async def describe(self, _request: ClientRequest) -> Mapping[str, Any]:
        return {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": _SERVER_INFO}

    async def answer(self, request: ClientRequest) -> bytes:
        """Return the result of a request. Raise ``RpcError``."""
        registry = self._registries[request.session.principal]
        params = members(request.message.params)
        match request.method:
            case "tools/list":
                return _list_tools(registry, params)
            case "tools/call":
                return await self._run(registry, params)
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:64]!r} here")

    def end_session(self, session: Session) -> None:
        """Keep nothing of a session."""

    async def _run(self, registry: ToolRegistry, params: Mapping[str, msgspec.Raw]) -> bytes:
        name, arguments = _read_call(params)
        record = CallRecord(registry.principal.name, name, arguments.encode(errors="replace"))
        record.names = members(record.arguments)

        try:
            tool = registry.find(name, _read_allowed(params))
        except RpcError:
            self._log.refuse_call(record, ErrorCode.INVALID_ARGS)
            raise
        except ToolError as error:
            self._log.refuse_call(record, error.code)
            raise RpcError(INVALID_PARAMS, error.message) from None

        try:
            data = await registry.execute(tool, arguments)
            result = fit(data, self._max_result)
        except ToolError as error:
            content = write_failure(error)
            if error.code is ErrorCode.BUSY:
                # A tool that was too busy to run is logged as one that was refused.
                self._log.refuse_call(record, error.code, len(content))
            else:
                self._log.close_call(record, error.code, len(content))
            return content
        except asyncio.CancelledError:
            self._log.close_call(record, "cancelled")
            raise

        self._log.close_call(record, "ok", len(result.content), truncated=result.is_truncated)
        return write_success(result.content)


def _list_tools(registry: ToolRegistry, params: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the result of ``tools/list``: all tools at once. Raise ``RpcError``."""
    cursor = bytes(params.get("cursor", b"null"))
    if cursor != b"null":
        raise RpcError(INVALID_PARAMS, "there is one page of tools, and so no cursor")

    tools = registry.tools(_read_allowed(params))
    return msgspec.json.encode({"tools": [_entry(tool) for tool in tools]})


def _entry(tool: Tool) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": dict(tool.annotations),
    }


def _read_call(params: Mapping[str, msgspec.Raw]) -> tuple[str, str]:
    """Return the name of the tool, and its arguments as JSON. Raise ``RpcError``."""
    try:
        name = msgspec.json.decode(params.get("name", b""), type=str)
    except (msgspec.DecodeError, RecursionError):
        raise RpcError(INVALID_PARAMS, "tools/call needs the name of a tool") from None

    arguments = bytes(params.get("arguments", b"{}"))
    if arguments == b"null":
        return name, "{}"
    return name, arguments.decode()


def _read_allowed(params: Mapping[str, msgspec.Raw]) -> list[str] | None:
    """Return the globs of a request; None if it has none. Raise ``RpcError``."""
    raw = members(params.get("_meta", b"")).get(ALLOWED_TOOLS)
    if raw is None:
        return None

    problem = RpcError(
        INVALID_PARAMS,
        f"{ALLOWED_TOOLS} is a list of at most {_MAX_GLOBS} globs of {_MAX_GLOB} characters",
    )
    try:
        globs = _strings.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise problem from None
    if len(globs) > _MAX_GLOBS or any(len(glob) > _MAX_GLOB for glob in globs):
        raise problem
    return globs
