"""``exec_shell`` and ``spawn`` (docs/tools-host.md "What is contained, and how")."""

from pathlib import Path
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_contract.toolhost_file import ExecSection, ToolsSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.containment import Containment
from claw_tools.execution.policy import CommandPolicy
from claw_tools.execution.process import ContainedProcess
from claw_tools.tool import Tool

SPAWN_SECONDS: Final = 60.0
"""The time of a ``spawn`` that names none."""
_MAX_COMMAND: Final = 32_768
"""Characters: at most 128 KiB, which is what the kernel takes as one argument."""
_MAX_ARGUMENT: Final = 8_192
_MAX_ARGUMENTS: Final = 256
_SPARE_SECONDS: Final = 15.0
"""Time of a call beside that of its command: to start, and to end everything."""
_SPARE_BYTES: Final = 512
"""Bytes of a result beside both streams, so that the result is never cut itself."""


def exec_tools(
    root: Path, tools: ToolsSection, containment: Containment, max_result: int
) -> list[Tool]:
    """Return the tools that run commands in a workspace.

    There are none if ``containment.problem_of(root)`` says why.
    """
    if containment.problem_of(root) is not None:
        return []
    max_shown = max_result - _SPARE_BYTES
    return [
        ExecShell(root, tools.exec, containment, max_shown),
        Spawn(root, tools, containment, max_shown),
    ]


class ExecShell(Tool):
    """``sh -c`` in the workspace."""

    name = "exec_shell"

    def __init__(
        self, root: Path, section: ExecSection, containment: Containment, max_shown: int
    ) -> None:
        """Run commands in ``root``; show so many bytes of JSON of both streams together."""
        self._root = root
        self._containment = containment
        self._max_shown = max_shown

        self._policy = CommandPolicy(section.allow, section.deny)
        self._default_seconds = min(section.default_timeout_s, section.max_timeout_s)
        self.max_seconds = section.max_timeout_s + _SPARE_SECONDS

        self.description = (
            "Run a command line with sh in the workspace, and return its exit code and what it "
            "printed. Processes that it leaves in the background end with it. " + _describe(section)
        )
        self.parameters = _schema(
            {"command": {"type": "string", "minLength": 1, "maxLength": _MAX_COMMAND}},
            self._default_seconds,
            section.max_timeout_s,
        )

    async def execute(self, args: JsonObject) -> Any:
        command = str(args["command"])
        _check_text(command)
        if not command.strip():
            raise ToolError(ErrorCode.INVALID_ARGS, "the command is empty.")
        self._policy.check_shell(command)

        seconds = float(args.get("timeout", self._default_seconds))
        process = ContainedProcess(self._containment, self._root, seconds, self._max_shown)
        return await process.run(["sh", "-c", command])


class Spawn(Tool):
    """A program with arguments, without a shell."""

    name = "spawn"

    def __init__(
        self, root: Path, tools: ToolsSection, containment: Containment, max_shown: int
    ) -> None:
        """Run programs in ``root``; show so many bytes of JSON of both streams together."""
        section = tools.exec
        self._root = root
        self._containment = containment
        self._max_shown = max_shown
        self._max_running = tools.spawn.max_concurrent
        self._running = 0

        self._policy = CommandPolicy(section.allow, section.deny)
        self._default_seconds = min(SPAWN_SECONDS, section.max_timeout_s)
        self.max_seconds = section.max_timeout_s + _SPARE_SECONDS

        self.description = (
            "Run a program with arguments in the workspace, without a shell: nothing in the "
            f"arguments is expanded. At most {self._max_running} run at once. " + _describe(section)
        )
        argument = {"type": "string", "maxLength": _MAX_ARGUMENT}
        self.parameters = _schema(
            {
                "command": {"type": "string", "minLength": 1, "maxLength": 1_024},
                "args": {"type": "array", "items": argument, "maxItems": _MAX_ARGUMENTS},
            },
            self._default_seconds,
            section.max_timeout_s,
        )

    async def execute(self, args: JsonObject) -> Any:
        words = [str(args["command"]), *map(str, args.get("args", []))]
        _check_text(*words)
        self._policy.check_program(words)
        if self._running >= self._max_running:
            raise ToolError(
                ErrorCode.BUSY,
                f"{self._running} processes run already: try again when one has ended.",
            )

        seconds = float(args.get("timeout", self._default_seconds))
        process = ContainedProcess(self._containment, self._root, seconds, self._max_shown)
        self._running += 1
        try:
            return await process.run(words)
        finally:
            self._running -= 1


def _schema(properties: JsonObject, default: float, longest: float) -> JsonObject:
    timeout = {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": longest,
        "default": default,
        "description": "Seconds.",
    }
    return {
        "type": "object",
        "properties": {**properties, "timeout": timeout},
        "required": ["command"],
        "additionalProperties": False,
    }


def _describe(section: ExecSection) -> str:
    text = "The network can be reached." if section.network else "There is no network."
    if section.allow:
        text += f" Allowed programs: {', '.join(section.allow)}."
    return text


def _check_text(*texts: str) -> None:
    """Refuse what no argument of a process can hold. Raise ``ToolError``."""
    for text in texts:
        if "\0" in text:
            raise ToolError(ErrorCode.INVALID_ARGS, "an argument has a NUL character.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ToolError(
                ErrorCode.INVALID_ARGS, "an argument has half of a surrogate pair."
            ) from None
