"""The answers of the broker: an agent's native tools, and their calls.

docs/spec/mcp.md "The broker".
"""

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, Final

import msgspec

from claw_contract.manifest import Tool
from claw_mcp.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, read_object
from claw_mcp.sessions import ClientRequest, Session
from claw_mediate.broker.calls import Caller, NativeCalls
from claw_mediate.broker.once import AnswerMemory, RequestKey
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.types import Arguments

CALLER: Final[ContextVar[Caller]] = ContextVar("caller")
"""The client of the HTTP request that is being answered.

The tasks of its JSON-RPC request inherit it.
"""
_SERVER_INFO = {"name": "clawdapus", "version": version("clawdapus")}
_HINTS: Mapping[str, type] = {
    "title": str,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}
_MAX_NAME = 256  # Characters; a tool's alias has at most 64
_NO_ARGUMENTS = msgspec.Raw(b"{}")


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = _NO_ARGUMENTS


_call = msgspec.json.Decoder(_Call)


class NativeBackend:
    """Answers the clients of all agents, each with its own tools only."""

    def __init__(self, calls: NativeCalls) -> None:
        self._calls = calls
        self._answers: dict[str, AnswerMemory] = {}  # By agent

    async def describe(self, request: ClientRequest) -> Mapping[str, Any]:  # noqa: ARG002 - everybody gets the same
        """Return what ``initialize`` and ``server/discover`` say of the broker."""
        return {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": _SERVER_INFO}

    async def answer(self, request: ClientRequest) -> bytes:
        """Return the result of a request. Raise ``RpcError``."""
        caller = CALLER.get()
        match request.method:
            case "tools/list":
                return self._list_tools(caller, bytes(request.message.params))
            case "tools/call":
                return await self._run(caller, request)
            case method:
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:64]!r} here")

    def end_session(self, session: Session) -> None:
        """Forget the answers of a session."""
        answers = self._answers.get(session.principal)
        if answers is not None:
            answers.forget_session(session.id)

    def _list_tools(self, caller: Caller, params: bytes) -> bytes:
        if read_object(params).get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "there is one page of tools, and so no cursor")

        offered = self._calls.catalog(caller.agent).offered
        shown = [
            {
                "name": each.alias,
                "description": each.description,
                "inputSchema": each.schema,
                "annotations": _hints(tool),
            }
            for each, tool in zip(offered, caller.agent.native_tools, strict=True)
        ]
        return caller.redactor.document(msgspec.json.encode({"tools": shown}))

    async def _run(self, caller: Caller, request: ClientRequest) -> bytes:
        try:
            call = _call.decode(request.message.params)
        except (msgspec.DecodeError, RecursionError):
            message = "tools/call needs the name of a tool, and its arguments as an object"
            raise RpcError(INVALID_PARAMS, message) from None
        if len(call.name) > _MAX_NAME:
            raise RpcError(INVALID_PARAMS, f"the name of a tool has at most {_MAX_NAME} characters")

        arguments = "{}" if bytes(call.arguments) == b"null" else bytes(call.arguments).decode()

        # Only a request of a session can be told from an equal one that another client sent.
        key = None
        if request.session.id:
            digest = _digest(call.name, arguments)
            key = RequestKey(request.session.id, bytes(request.message.id), digest)

        answers = self._answers.setdefault(caller.agent.id, AnswerMemory())
        task = answers.find_or_start(key, lambda: self._calls.start(caller, call.name, arguments))
        return await self._calls.wait_for(task)


def _digest(name: str, arguments: str) -> bytes:
    """Return a digest that equal calls have in common, however they are written."""
    parsed = read_arguments(arguments)
    text = parsed.signature if isinstance(parsed, Arguments) else parsed.text
    return hashlib.sha256(f"{name}\0{text}".encode(errors="surrogatepass")).digest()


def _hints(tool: Tool) -> dict[str, Any]:
    """Return the annotations of MCP.

    By ``readOnlyHint``, clients decide which calls they make at the same time.
    """
    declared = tool.annotations.model_extra or {}
    hints: dict[str, Any] = {}
    for name, kind in _HINTS.items():
        if isinstance(declared.get(name), kind):
            hints[name] = declared[name]
    return {**hints, "readOnlyHint": tool.effect == "read"}
