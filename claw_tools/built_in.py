"""The built-in tools, by group, and why one of them is not there
(docs/spec/tools-host.md "The tools").

Rules. What is not configured, or what the kernel can't contain, is not registered.
"""

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Final, NamedTuple

from claw_tools.execution.containment import Containment, find_containment
from claw_tools.execution.tools import exec_tools
from claw_tools.files.memory import memory_tools
from claw_tools.files.tools import file_tools
from claw_tools.files.workspace import Workspace
from claw_tools.message.tools import message_tools
from claw_tools.settings import HostSettings, Principal
from claw_tools.tool import Tool
from claw_tools.web.tools import web_tools

COMMANDS: Final = ("exec_shell", "spawn")


class NotOfferedError(Exception):
    """Tools that are not registered. ``is_fault``: the settings ask for them."""

    def __init__(self, reason: str, *, is_fault: bool = False) -> None:
        """Keep the reason, one line with the remedy."""
        super().__init__(reason)
        self.is_fault = is_fault


class Parts(AsyncExitStack):
    """Parts that the tools of all principals share; at its end, what the tools hold is ended."""

    def __init__(self, settings: HostSettings) -> None:
        """Start with nothing."""
        super().__init__()
        self.settings = settings

    @cached_property
    def containment(self) -> Containment:
        """Return what contains commands here; its ``form`` is None where nothing does."""
        found = find_containment(self.settings.exec)
        self.callback(found.close)
        return found


class ToolGroup(NamedTuple):
    """Tools that are made together.

    ``reason`` says why one of ``names`` is not among what ``make`` returns.
    """

    names: tuple[str, ...]
    make: Callable[[Principal, Parts], Iterable[Tool]]
    reason: str = ""


def _make_files(principal: Principal, parts: Parts) -> Iterable[Tool]:
    workspace = Workspace.open(principal.workspace)
    parts.callback(workspace.close)
    yield from file_tools(workspace, parts.settings.files)
    yield from memory_tools(workspace, parts.settings.files)


def _make_exec(principal: Principal, parts: Parts) -> Iterable[Tool]:
    if not parts.settings.exec.enabled:
        raise NotOfferedError("write 'exec: {enabled: true}' below 'tools' to have it")
    if (problem := parts.containment.problem_of(principal.workspace)) is not None:
        raise NotOfferedError(problem, is_fault=True)
    yield from exec_tools(principal.workspace, parts.settings.exec, parts.containment)


def _make_web(_principal: Principal, parts: Parts) -> Iterable[Tool]:
    yield from web_tools(parts.settings.urls, parts.settings.search)


def _make_message(principal: Principal, parts: Parts) -> Iterable[Tool]:
    if not parts.settings.channels:
        raise NotOfferedError("name a channel below 'tools: {message: {channels: …}}' to have it")
    yield from message_tools(parts.settings.channels, principal.name)


GROUPS: Final = (
    ToolGroup(
        ("read_file", "write_file", "edit_file", "list_directory", "memory_read", "memory_write"),
        _make_files,
    ),
    ToolGroup(COMMANDS, _make_exec),
    ToolGroup(
        ("web_fetch", "web_search"),
        _make_web,
        "name an endpoint below 'tools: {web_search: …}' to have it",
    ),
    ToolGroup(("message",), _make_message),
)
