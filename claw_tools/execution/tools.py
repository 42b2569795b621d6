"""``exec_shell`` and ``spawn`` (docs/tools-host.md "What is contained, and how")."""

from pathlib import Path
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.containment import Containment
from claw_tools.execution.policy import CommandPolicy
from claw_tools.execution.process import ContainedProcess
from claw_tools.settings import ExecSettings
from claw_tools.tool import Tool

_MAX_COMMAND: Final = (
    32_768  # Characters: at most 128 KiB, which is what the kernel takes as one argument
)
_MAX_ARGUMENT: Final = 8_192
_MAX_ARGUMENTS: Final = 256
_SPARE_SECONDS = 15.0
"""Time of a call beside that of its command: to start, and to end everything."""


def exec_tools(root: Path, settings: ExecSettings, containment: Containment) -> list[Tool]:
    """Return the tools that run commands in a workspace; none where
    ``containment.problem_of(root)`` says why.
    """
    if containment.problem_of(root) is not None:
        return []
    return [ExecShell(root, settings, containment), Spawn(root, settings, containment)]


class ExecShell(Tool):
    """``sh -c`` in the workspace."""

    name = "exec_shell"

    def __init__(self, root: Path, settings: ExecSettings, containment: Containment) -> None:
        """Run commands in ``root``."""
        self._root, self._settings, self._containment = root, settings, containment
        self._policy = CommandPolicy(settings.allow, settings.deny)
        self._default = min(settings.default_seconds, settings.max_seconds)
        self.max_seconds = settings.max_seconds + _SPARE_SECONDS
        self.description = (
            "Run a command line with sh in the workspace, and return its exit code and what it "
            "printed. Processes that it "
            "leaves in the background end with it. " + _describe(settings)
        )
        self.parameters = _schema(
            {"command": {"type": "string", "minLength": 1, "maxLength": _MAX_COMMAND}},
            self._default,
            settings.max_seconds,
        )

    async def execute(self, args: JsonObject) -> Any:
        command = str(args["command"])
        _check_text(command)
        if not command.strip():
            raise ToolError(ErrorCode.INVALID_ARGS, "the command is empty.")
        self._policy.check_shell(command)
        seconds = float(args.get("timeout", self._default))
        return await ContainedProcess(
            self._containment, self._root, seconds, self._settings.max_shown
        ).run(["sh", "-c", command])


class Spawn(Tool):
    """A program with arguments, without a shell."""

    name = "spawn"

    def __init__(self, root: Path, settings: ExecSettings, containment: Containment) -> None:
        """Run programs in ``root``."""
        self._root, self._settings, self._containment = root, settings, containment
        self._policy = CommandPolicy(settings.allow, settings.deny)
        self._running = 0
        self._default = min(settings.spawn_seconds, settings.max_seconds)
        self.max_seconds = settings.max_seconds + _SPARE_SECONDS
        self.description = (
            "Run a program with arguments in the workspace, without a shell: nothing in the "
            "arguments is expanded. "
            f"At most {settings.max_spawned} run at once. " + _describe(settings)
        )
        argument = {"type": "string", "maxLength": _MAX_ARGUMENT}
        properties: JsonObject = {
            "command": {"type": "string", "minLength": 1, "maxLength": 1_024},
            "args": {"type": "array", "items": argument, "maxItems": _MAX_ARGUMENTS},
        }
        self.parameters = _schema(properties, self._default, settings.max_seconds)

    async def execute(self, args: JsonObject) -> Any:
        words = [str(args["command"]), *map(str, args.get("args", []))]
        _check_text(*words)
        self._policy.check_program(words)
        if self._running >= self._settings.max_spawned:
            raise ToolError(
                ErrorCode.BUSY,
                f"{self._running} processes run already: try again when one has ended.",
            )
        seconds = float(args.get("timeout", self._default))
        self._running += 1
        try:
            return await ContainedProcess(
                self._containment, self._root, seconds, self._settings.max_shown
            ).run(words)
        finally:
            self._running -= 1


def _schema(properties: JsonObject, default: float, longest: float) -> JsonObject:
    seconds = {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": longest,
        "default": default,
        "description": "Seconds.",
    }
    needed = ["command"]
    whole = {**properties, "timeout": seconds}
    return {
        "type": "object",
        "properties": whole,
        "required": needed,
        "additionalProperties": False,
    }


def _describe(settings: ExecSettings) -> str:
    allowed = f" Allowed programs: {', '.join(settings.allow)}." if settings.allow else ""
    return ("The network can be reached." if settings.network else "There is no network.") + allowed


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
