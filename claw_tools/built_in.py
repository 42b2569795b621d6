"""The built-in tools, by group, and the reason why one of them is missing.

Specification: docs/spec/tools-host.md "The tools".

Rules. A tool that is not configured, or that the kernel can't contain, is not registered.
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
from claw_tools.message import message_tools
from claw_tools.settings import HostSettings, Principal
from claw_tools.tool import Tool
from claw_tools.web.fetch import WebFetch
from claw_tools.web.search import WebSearch

COMMANDS: Final = ("exec_shell", "spawn")


class NotOfferedError(Exception):
    """Tools that are not registered. ``is_fault``: the settings ask for them."""

    def __init__(self, reason: str, *, is_fault: bool = False) -> None:
        """Keep the reason, one line with the remedy."""
        super().__init__(reason)
        self.is_fault = is_fault


class Parts(AsyncExitStack):
    """Parts that the tools of all principals share; closing it ends what the tools hold."""

    def __init__(self, settings: HostSettings) -> None:
        """Start with nothing."""
        super().__init__()
        self.settings = settings

    @cached_property
    def containment(self) -> Containment:
        """Return the containment of commands on this machine; ``form`` is None if there is none."""
        containment = find_containment(self.settings.tools.exec)
        self.callback(containment.close)
        return containment


class ToolGroup(NamedTuple):
    """Tools that are made together.

    ``reason`` says why one of ``names`` is not among what ``make`` returns.
    """

    names: tuple[str, ...]
    make: Callable[[Principal, Parts], Iterable[Tool]]
    reason: str = ""


def _make_files(principal: Principal, parts: Parts) -> Iterable[Tool]:
    settings = parts.settings
    workspace = Workspace.open(principal.workspace)
    parts.callback(workspace.close)

    yield from file_tools(workspace, settings.limits, settings.protected)
    yield from memory_tools(workspace, settings.limits)


def _make_exec(principal: Principal, parts: Parts) -> Iterable[Tool]:
    tools = parts.settings.tools
    if not tools.exec.enabled:
        raise NotOfferedError("write 'exec: {enabled: true}' below 'tools' to have it")
    problem = parts.containment.problem_of(principal.workspace)
    if problem is not None:
        raise NotOfferedError(problem, is_fault=True)

    max_result = parts.settings.limits.result_bytes
    yield from exec_tools(principal.workspace, tools, parts.containment, max_result)


def _make_web(_principal: Principal, parts: Parts) -> Iterable[Tool]:
    """Yield the tools of the web. They keep no connection, so there is nothing to close."""
    tools = parts.settings.tools
    yield WebFetch(tools.url_policy)
    if tools.web_search is not None:
        yield WebSearch(tools.web_search)


def _make_message(principal: Principal, parts: Parts) -> Iterable[Tool]:
    section = parts.settings.tools.message
    if section is None or not section.channels:
        raise NotOfferedError("name a channel below 'tools: {message: {channels: …}}' to have it")
    yield from message_tools(section.channels, principal.name)


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
