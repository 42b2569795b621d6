"""The composition root of the tools host: from settings to what answers, and what
has to run beside it.

Rules. A tool that can't be had costs no other one, and a server that is down stops nobody: its
tools are there once it answers. Every principal has tools of its own, and those of the providers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from claw_contract.base import JsonObject
from claw_contract.secret import Secret
from claw_tools.audit import CallLog, WriteEvent
from claw_tools.built_in import COMMANDS, GROUPS, NotOfferedError, Parts, ToolGroup
from claw_tools.provider import ToolProvider
from claw_tools.registry import ToolRegistry
from claw_tools.servers.server import McpServer
from claw_tools.settings import HostSettings, McpServerSettings, StreamChannel
from claw_tools.shell import McpServerShell

_LIST_SECONDS = 60.0
_log = logging.getLogger(__name__)


class ToolState(NamedTuple):
    """The state of a principal's built-in tool: ``reason`` is empty where it is registered."""

    tool: str
    principal: str
    reason: str = ""
    is_fault: bool = False


class Host:
    """All parts of a tools host. ``run`` it, and ``close`` it at the end."""

    def __init__(
        self,
        settings: HostSettings,
        write: WriteEvent,
        providers: Iterable[ToolProvider] = (),
        groups: Sequence[ToolGroup] = GROUPS,
    ) -> None:
        """Make all tools; start nothing.

        Raise ``ValueError`` with one line for settings that can't be used.
        """
        self.settings, self._write = settings, write
        self.shell = McpServerShell(CallLog(write, settings.audit_arguments), settings.max_result)
        self.on_change: Callable[[], None] = lambda: None
        self._parts = Parts(settings)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._listed: dict[str, asyncio.Event] = {}
        self._providers, self._servers = (
            [*providers],
            [self._make_server(each) for each in settings.mcp_servers],
        )
        for provider in self._providers:
            self._add(provider, internal=False)
        for server in self._servers:
            self._add(server, internal=server.is_internal)
        self.registries = [ToolRegistry(each, self.shell.provided) for each in settings.principals]
        self.states: list[ToolState] = []
        for registry in self.registries:
            self.shell.add(registry)
            for group in groups:
                self.states += self._register(registry, group)

    async def run(self) -> None:
        """Run the servers, and follow their tools, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(_keep(server))
            for provider in self._providers:
                tasks.create_task(self._list(provider.namespace))
            while True:
                tasks.create_task(self._list(await self._changed.get()))

    async def list_providers(self) -> None:
        """List the tools of third parties' providers, and of no server."""
        for provider in self._providers:
            await self._list(provider.namespace)

    async def wait_for_lists(self, seconds: float) -> list[str]:
        """Wait until the tools of all that is not internal are listed; return the
        names of what is not in time.
        """
        names = [
            each.namespace
            for each in (
                *self._providers,
                *(each for each in self._servers if not each.is_internal),
            )
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for name in names:
                    await self._listed[name].wait()
        return [name for name in names if not self._listed[name].is_set()]

    async def close(self) -> None:
        """End what the tools hold."""
        await self._parts.aclose()

    def health(self) -> JsonObject:
        """Return the state of each part: of a tool, the best that a principal has."""
        ranks = ("registered", "off", "fault")
        tools: dict[str, str] = {}
        for each in self.states:
            state = "registered" if not each.reason else "fault" if each.is_fault else "off"
            tools[each.tool] = min(state, tools.get(each.tool, state), key=ranks.index)
        return {
            "ok": True,
            "tools": tools,
            "servers": {each.namespace: each.state for each in self._servers},
        }

    def containment_of(self, tool: str) -> str:
        """Return the form of the containment that a tool runs in; "" for one that runs nothing."""
        return (
            self._parts.containment.form or ""
            if tool in COMMANDS and self.settings.exec.enabled
            else ""
        )

    def _make_server(self, settings: McpServerSettings) -> McpServer:
        def report(state: str, **members: Any) -> None:
            self._write("tool_host_server", {"state": state, **members})

        return McpServer(settings, self._changed.put_nowait, report)

    def _add(self, provider: ToolProvider, *, internal: bool) -> None:
        self.shell.register_provider(provider, internal=internal)
        self._listed[provider.namespace] = asyncio.Event()

    async def _list(self, namespace: str) -> None:
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                problems = await self.shell.provided.refresh(namespace)
        except Exception as error:  # noqa: BLE001 - a third party's provider may raise anything
            self.shell.provided.clear(namespace)
            problems = [f"its tools can't be listed: {error!r}"]
        else:
            self._listed[namespace].set()
        for problem in problems:
            _log.warning("%s: %s", namespace, problem)
        self.on_change()

    def _register(self, registry: ToolRegistry, group: ToolGroup) -> Iterator[ToolState]:
        """Register the tools of a group; yield the state of each."""
        principal, made, reason, is_fault = registry.principal, set(), group.reason, False
        try:
            for tool in group.make(principal, self._parts):
                registry.register(tool)
                made.add(tool.name)
                if hasattr(tool, "aclose"):
                    self._parts.push_async_callback(tool.aclose)
        except NotOfferedError as error:
            reason, is_fault = str(error), error.is_fault
        except OSError as error:
            raise ValueError(
                f"principal {principal.name}: {principal.workspace}: {error.strerror}"
            ) from None
        for name in group.names:
            yield ToolState(name, principal.name, *(() if name in made else (reason, is_fault)))


async def _keep(server: McpServer) -> None:
    try:
        await server.run()
    except Exception:  # noqa: BLE001 - one server disturbs no other
        _log.exception("the server %s is given up", server.namespace)


def find_secrets(settings: HostSettings) -> list[Secret]:
    """Return all that no line of the log may hold."""
    secrets = [each.token for each in settings.principals]
    secrets += [settings.search.api_key] if settings.search is not None else []
    secrets += [
        each.url if isinstance(each, StreamChannel) else each.token
        for each in settings.channels.values()
    ]
    for server in settings.mcp_servers:
        secrets += [*server.environment.values(), *server.headers.values()]
    return [each for each in secrets if each is not None]
