"""The tools of one principal, and how a call of them runs (docs/spec/tools-host.md "Interfaces").

Rules. What a principal may not see, it can't call, and it is told of it exactly as of what is not
there. Arguments are read strictly and checked against the schema before anything runs. A call has a
time, and a principal so many calls at once and in a minute.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_contract.json_schema import check_instance, find_schema_problem
from claw_contract.strict_json import read_strict_object
from claw_tools.composite import CompositeToolProvider
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.globs import matches_any
from claw_tools.settings import Principal
from claw_tools.tool import Tool

_MAX_VIOLATIONS: Final = 8
_MAX_PATH = 200
_MINUTE = 60.0
_log = logging.getLogger(__name__)


class ToolRegistry:
    """The tools that were registered for a principal, beside those that providers offer to all."""

    def __init__(
        self,
        principal: Principal,
        provided: CompositeToolProvider,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the providers' tools. ``clock`` gives seconds."""
        self.principal, self._provided, self._clock = principal, provided, clock
        self._tools: dict[str, Tool] = {}
        self._starts: deque[float] = deque()
        self._running = 0

    def register(self, tool: Tool) -> None:
        """Add a tool; it replaces one of the same name.

        Raise ``ValueError`` for a schema that can't be used.
        """
        if (problem := find_schema_problem(tool.parameters)) is not None:
            raise ValueError(f"the tool {tool.name!r}: {problem}")
        self._tools[tool.name] = tool

    def tools(self, allowed: Sequence[str] | None = None) -> list[Tool]:
        """Return the tools that can be called, by name; with ``allowed``, those
        whose names these globs match.

        Internal tools are among them only where ``allowed`` names them.
        """
        return sorted(self._visible(allowed), key=lambda tool: tool.name)

    def schemas(self) -> list[JsonObject]:
        """Return the tools that can be called in OpenAI's shape, by name."""
        return self.schemas_for_tools(None)

    def schemas_for_tools(self, globs: Sequence[str] | None) -> list[JsonObject]:
        """Return ``schemas()`` of the tools that these globs match."""
        return [
            {
                "type": "function",
                "function": {
                    "name": each.name,
                    "description": each.description,
                    "parameters": each.parameters,
                },
            }
            for each in self.tools(globs)
        ]

    def find(self, name: str, allowed: Sequence[str] | None = None) -> Tool:
        """Return a tool that can be called. Raise ``ToolError`` with NOT_FOUND."""
        tool, is_internal = self._tools.get(name), False
        if tool is None and (found := self._provided.find(name)) is not None:
            tool, is_internal = found
        if tool is None or not self._is_visible(name, allowed, is_internal=is_internal):
            raise ToolError(
                ErrorCode.NOT_FOUND,
                f"there is no tool {name[:64]!r} here: list the tools to see which there are.",
            )
        return tool

    async def execute(self, tool: Tool, arguments: str) -> Any:
        """Return the result of a call as JSON data. Raise ``ToolError``."""
        self._admit()
        args = _check(tool, arguments)
        if self._running >= self.principal.max_concurrent:
            raise ToolError(
                ErrorCode.BUSY,
                f"{self._running} calls run already, which is the limit: wait for one to end.",
            )
        self._running += 1
        try:
            return await _run(tool, args)
        finally:
            self._running -= 1

    def _admit(self) -> None:
        now, limit = self._clock(), self.principal.calls_per_minute
        while self._starts and now - self._starts[0] >= _MINUTE:
            self._starts.popleft()
        if len(self._starts) >= limit:
            wait = _MINUTE - (now - self._starts[0])
            raise ToolError(
                ErrorCode.BUSY,
                f"there were {limit} calls in a minute, which is the limit: wait {wait:.0f} s.",
            )
        self._starts.append(now)

    def _visible(self, allowed: Sequence[str] | None) -> Iterator[Tool]:
        for tool in self._tools.values():
            if self._is_visible(tool.name, allowed, is_internal=False):
                yield tool
        for tool, is_internal in self._provided.tools():
            if tool.name not in self._tools and self._is_visible(
                tool.name, allowed, is_internal=is_internal
            ):
                yield tool

    def _is_visible(self, name: str, allowed: Sequence[str] | None, *, is_internal: bool) -> bool:
        is_asked_for = not is_internal if allowed is None else matches_any(allowed, name)
        return is_asked_for and matches_any(self.principal.globs, name)


def _check(tool: Tool, arguments: str) -> JsonObject:
    """Return the arguments, which fit the schema. Raise ``ToolError``."""
    try:
        args = read_strict_object(arguments)
    except ValueError as error:
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            f"the arguments are no plain JSON object: {str(error)[:_MAX_PATH]}",
        ) from None
    violations = check_instance(tool.parameters, args, _MAX_VIOLATIONS)
    if violations:
        told = "; ".join(
            f"{each['path'][:_MAX_PATH] or 'the arguments'}: {each['message']}"
            for each in violations
        )
        raise ToolError(ErrorCode.INVALID_ARGS, f"the arguments do not fit the schema: {told}")
    return args


async def _run(tool: Tool, args: JsonObject) -> Any:
    try:
        async with asyncio.timeout(tool.max_seconds) as limit:
            return await tool.execute(args)
    except ToolError:
        raise
    except TimeoutError as error:
        if limit.expired():
            raise ToolError(
                ErrorCode.TIMEOUT, f"it took longer than {tool.max_seconds:g} s, and was ended."
            ) from None
        fault: BaseException = error
    except asyncio.CancelledError as error:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        fault = error  # One of its own
    except Exception as error:  # noqa: BLE001 - a tool of a third party may raise anything
        fault = error
    _log.error("the tool %s failed", tool.name, exc_info=fault)
    raise ToolError(
        ErrorCode.EXECUTION_FAILED,
        "the tool failed, by a fault of its own: the log of its host says more.",
    )
