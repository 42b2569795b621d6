"""The tools of one principal, and how a call of them runs (docs/spec/tools-host.md "Interfaces").

Rules. A principal can call only what it may see; a tool that it may not see is answered exactly as
one that does not exist. Arguments are read strictly and checked against the schema before anything
runs. The time of a call is limited, and so is the number of a principal's calls, at once and in a
minute.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_contract.json_schema import check_instance, find_schema_problem
from claw_contract.strict_json import read_strict_object
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import CompositeToolProvider
from claw_tools.settings import Principal
from claw_tools.tool import Tool

_MAX_VIOLATIONS: Final = 8
_MAX_PATH: Final = 200  # Characters of a member's path in a message
_MINUTE: Final = 60.0
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
        self.principal = principal
        self._provided = provided
        self._clock = clock
        self._tools: dict[str, Tool] = {}
        self._recent_starts: deque[float] = deque()
        self._running = 0

    def register(self, tool: Tool) -> None:
        """Add a tool; it replaces one of the same name.

        Raise ``ValueError`` for a schema that can't be used.
        """
        problem = find_schema_problem(tool.parameters)
        if problem is not None:
            raise ValueError(f"the tool {tool.name!r}: {problem}")
        self._tools[tool.name] = tool

    def tools(self, allowed: Sequence[str] | None = None) -> list[Tool]:
        """Return the tools that can be called, sorted by name.

        With ``allowed``, only those whose names these globs match; internal tools are returned only
        if ``allowed`` names them.
        """
        return sorted(self._visible(allowed), key=lambda tool: tool.name)

    def schemas(self) -> list[JsonObject]:
        """Return the tools that can be called in OpenAI's shape, sorted by name."""
        return self.schemas_for_tools(None)

    def schemas_for_tools(self, globs: Sequence[str] | None) -> list[JsonObject]:
        """Return ``schemas()`` of the tools that these globs match."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in self.tools(globs)
        ]

    def find(self, name: str, allowed: Sequence[str] | None = None) -> Tool:
        """Return a tool that can be called. Raise ``ToolError`` with NOT_FOUND."""
        tool = self._tools.get(name)
        is_internal = False
        if tool is None:
            provided = self._provided.find(name)
            if provided is not None:
                tool, is_internal = provided

        if tool is None or not self._is_visible(name, allowed, is_internal=is_internal):
            raise ToolError(
                ErrorCode.NOT_FOUND,
                f"there is no tool {name[:64]!r} here: list the tools to see which there are.",
            )
        return tool

    async def execute(self, tool: Tool, arguments: str) -> Any:
        """Return the result of a call as JSON data. Raise ``ToolError``."""
        self._count_start()
        args = _read_arguments(tool, arguments)
        if self._running >= self.principal.limits.concurrent:
            raise ToolError(
                ErrorCode.BUSY,
                f"{self._running} calls run already, which is the limit: wait for one to end.",
            )

        self._running += 1
        try:
            return await _run(tool, args)
        finally:
            self._running -= 1

    def _count_start(self) -> None:
        """Count a call. Raise ``ToolError`` with BUSY if there were too many in a minute."""
        now = self._clock()
        starts = self._recent_starts
        while starts and now - starts[0] >= _MINUTE:
            starts.popleft()

        limit = self.principal.limits.calls_per_minute
        if len(starts) >= limit:
            wait = _MINUTE - (now - starts[0])
            raise ToolError(
                ErrorCode.BUSY,
                f"there were {limit} calls in a minute, which is the limit: wait {wait:.0f} s.",
            )
        starts.append(now)

    def _visible(self, allowed: Sequence[str] | None) -> Iterator[Tool]:
        for name, tool in self._tools.items():
            if self._is_visible(name, allowed, is_internal=False):
                yield tool

        for tool, is_internal in self._provided.tools():
            is_replaced = tool.name in self._tools
            if not is_replaced and self._is_visible(tool.name, allowed, is_internal=is_internal):
                yield tool

    def _is_visible(self, name: str, allowed: Sequence[str] | None, *, is_internal: bool) -> bool:
        is_requested = not is_internal if allowed is None else matches_any(allowed, name)
        return is_requested and matches_any(self.principal.globs, name)


def matches_any(globs: Iterable[str], name: str) -> bool:
    """Return True if one of the globs is the whole name. No globs match nothing."""
    return any(matches(glob, name) for glob in globs)


def matches(glob: str, name: str) -> bool:
    """Return True if a glob is the whole name: ``*`` and ``?``, and other characters as they are.

    It takes one step for each character of both, whatever the glob.

    >>> matches("memory_*", "memory_read"), matches("read_?ile", "read_file")
    (True, True)
    >>> matches("[a-z]*", "a")
    False
    """
    # A glob is a row of places, each for one sign of the name, and stars between them. These are
    # sets of places as bits: bit n stands for the n-th place.
    length = 0
    after_star = 0
    for_any_sign = 0
    for_sign = dict.fromkeys(name, 0)
    for sign in glob:
        if sign == "*":
            after_star |= 1 << length
            continue

        if sign == "?":
            for_any_sign |= 1 << length
        elif sign in for_sign:
            for_sign[sign] |= 1 << length
        length += 1

    # Bit n: the signs of the name so far fill the first n places. The next sign fills the n-th
    # place, or is one more sign of the star before that.
    filled = 1
    for sign in name:
        by_place = (filled & (for_sign[sign] | for_any_sign)) << 1
        by_star = filled & after_star
        filled = by_place | by_star
    return bool(filled >> length)


def _read_arguments(tool: Tool, arguments: str) -> JsonObject:
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
        problems = "; ".join(
            f"{violation['path'][:_MAX_PATH] or 'the arguments'}: {violation['message']}"
            for violation in violations
        )
        raise ToolError(ErrorCode.INVALID_ARGS, f"the arguments do not fit the schema: {problems}")
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
        fault = error  # The caller is still there: the tool raised this by itself
    except Exception as error:  # noqa: BLE001 - a tool of a third party may raise anything
        fault = error

    _log.error("the tool %s failed", tool.name, exc_info=fault)
    raise ToolError(
        ErrorCode.EXECUTION_FAILED,
        "the tool failed, by a fault of its own: the log of its host says more.",
    )
