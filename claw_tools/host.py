"""The composition root of the tools host: from settings to the parts that answer and run.

Rules. A tool that can't be had costs no other one. A server that is down stops nobody: its tools
are offered once it answers. Every principal has tools of its own, and those of the providers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from claw_contract.base import JsonObject
from claw_contract.secret import Secret
from claw_contract.toolhost_file import McpServerSection
from claw_tools.audit import CallLog, WriteEvent
from claw_tools.built_in import COMMANDS, GROUPS, NotOfferedError, Parts, ToolGroup
from claw_tools.provider import ToolProvider
from claw_tools.registry import ToolRegistry
from claw_tools.servers.server import McpServer
from claw_tools.settings import HostSettings
from claw_tools.shell import McpServerShell

_LIST_SECONDS: Final = 60.0
_RANKS: Final = ("registered", "off", "fault")
"""The states of a tool in ``Host.health``, the best first."""
_log = logging.getLogger(__name__)


class ToolState(NamedTuple):
    """The state of a principal's built-in tool: ``reason`` is empty if it is registered."""

    tool: str
    principal: str
    reason: str = ""
    is_fault: bool = False

    @property
    def rank(self) -> str:
        """The state in one word of ``Host.health``."""
        if not self.reason:
            return "registered"
        return "fault" if self.is_fault else "off"


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
        self.settings = settings
        self._write = write
        log = CallLog(write, settings.audit_arguments)
        self.shell = McpServerShell(log, settings.limits.result_bytes)
        self.on_change: Callable[[], None] = lambda: None
        self._parts = Parts(settings)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._listed: dict[str, asyncio.Event] = {}

        self._providers = [*providers]
        self._servers = [
            self._make_server(name, section) for name, section in settings.tools.mcp_servers.items()
        ]
        for provider in self._providers:
            self._add(provider, internal=False)
        for server in self._servers:
            self._add(server, internal=server.is_internal)

        provided = self.shell.provided
        self.registries = [ToolRegistry(principal, provided) for principal in settings.principals]
        self.states: list[ToolState] = []
        for registry in self.registries:
            self.shell.add(registry)
            for group in groups:
                self.states += self._register(registry, group)

    async def run(self) -> None:
        """Run the servers, and follow changes of their tools, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(_run_server(server))
            for provider in self._providers:
                tasks.create_task(self._list(provider.namespace))

            while True:
                namespace = await self._changed.get()
                tasks.create_task(self._list(namespace))

    async def list_providers(self) -> None:
        """List the tools of third parties' providers, but not those of servers."""
        for provider in self._providers:
            await self._list(provider.namespace)

    async def wait_for_lists(self, seconds: float) -> list[str]:
        """Wait until the tools of all that is not internal are listed.

        Return the names of those that have not listed theirs in time.
        """
        open_servers = [server for server in self._servers if not server.is_internal]
        names = [source.namespace for source in (*self._providers, *open_servers)]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for name in names:
                    await self._listed[name].wait()
        return [name for name in names if not self._listed[name].is_set()]

    async def close(self) -> None:
        """End what the tools hold."""
        await self._parts.aclose()

    def health(self) -> JsonObject:
        """Return the state of each part. A tool has the best state that a principal has of it."""
        tools: dict[str, str] = {}
        for state in self.states:
            best = tools.get(state.tool, state.rank)
            tools[state.tool] = min(state.rank, best, key=_RANKS.index)
        servers = {server.namespace: server.state for server in self._servers}
        return {"ok": True, "tools": tools, "servers": servers}

    def containment_of(self, tool: str) -> str:
        """Return the form of the containment that a tool runs in; "" for one that runs nothing."""
        is_contained = tool in COMMANDS and self.settings.tools.exec.enabled
        return self._parts.containment.form or "" if is_contained else ""

    def _make_server(self, name: str, section: McpServerSection) -> McpServer:
        def report(state: str, **members: Any) -> None:
            self._write("tool_host_server", {"state": state, **members})

        return McpServer(name, section, self._changed.put_nowait, report)

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
        principal = registry.principal
        registered: set[str] = set()
        reason = group.reason
        is_fault = False
        try:
            for tool in group.make(principal, self._parts):
                registry.register(tool)
                registered.add(tool.name)
                if hasattr(tool, "aclose"):
                    self._parts.push_async_callback(tool.aclose)
        except NotOfferedError as error:
            reason = str(error)
            is_fault = error.is_fault
        except OSError as error:
            raise ValueError(
                f"principal {principal.name}: {principal.workspace}: {error.strerror}"
            ) from None

        for name in group.names:
            if name in registered:
                yield ToolState(name, principal.name)
            else:
                yield ToolState(name, principal.name, reason, is_fault)


async def _run_server(server: McpServer) -> None:
    try:
        await server.run()
    except Exception:  # noqa: BLE001 - one server disturbs no other
        _log.exception("the server %s is given up", server.namespace)


def find_secrets(settings: HostSettings) -> list[Secret]:
    """Return every credential of the settings: no line of the log may hold one."""
    tools = settings.tools
    secrets = [principal.token for principal in settings.principals]
    if tools.web_search is not None:
        secrets.append(tools.web_search.api_key)
    if tools.message is not None:
        for channel in tools.message.channels.values():
            secrets += [channel.token, channel.redis]  # The URL of Redis may hold a password
    for server in tools.mcp_servers.values():
        secrets += [*server.env.values(), *server.headers.values()]
    return [secret for secret in secrets if secret is not None]
