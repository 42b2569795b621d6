"""A link to a server that is a command: a child on standard input and output.

Rules. The child gets a minimal environment and what is declared for it, and nothing else of the
host's. What it writes to standard error is in the log.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from claw_contract.toolhost_file import McpServerSection
from claw_mcp.channels import Channel, Quotation
from claw_mcp.child_log import ChildLog
from claw_mcp.client_protocol import TOOLS_CHANGED
from claw_mcp.client_session import ClientSession
from claw_mcp.protocol import RpcMessage
from claw_mcp.supervisor import ChildSupervisor
from claw_tools.servers.link import CLIENT, TIMING

_INHERITED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR")


class ChildLink(ChildLog):
    """A ``ServerLink`` to a command, and the observer of its child."""

    def __init__(
        self,
        section: McpServerSection,
        quotation: Quotation,
        report: Callable[..., None],
        on_stale: Callable[[], None],
    ) -> None:
        """Start nothing. ``on_stale`` is called when the tools are to be listed."""
        super().__init__(
            lambda kind, **members: report(kind.removeprefix("mcp_"), **members), quotation.cut
        )
        self._report = report
        self._on_stale = on_stale

        command = (section.command or "", *section.args)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment |= {name: secret.reveal() for name, secret in section.env.items()}
        self._supervisor = ChildSupervisor(command, environment, self, self._take_state, TIMING)
        self._session = ClientSession(_SupervisorChannel(self._supervisor, quotation), CLIENT)

    @property
    def is_ready(self) -> bool:
        return self._supervisor.is_ready

    async def run(self) -> None:
        await self._supervisor.run()

    async def list_tools(self) -> list[Any]:
        return await self._session.list_tools()

    async def call(self, params: Mapping[str, Any], _headers: Mapping[str, str]) -> bytes:
        return await self._supervisor.call("tools/call", params)

    def notice(self, message: RpcMessage) -> None:
        if message.method == TOOLS_CHANGED:
            self._on_stale()

    def _take_state(self, state: str, **members: Any) -> None:
        self._report(state, **self.short_reason(members))
        if state == "ready":
            self._on_stale()


class _SupervisorChannel(Channel):
    """The channel to whichever run of the child there is."""

    def __init__(self, supervisor: ChildSupervisor, quotation: Quotation) -> None:
        super().__init__(quotation)
        self._supervisor = supervisor

    async def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        return await self._supervisor.call(method, params)

    async def notify(self, method: str) -> None:
        self._supervisor.notify(method)
