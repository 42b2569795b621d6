"""An MCP server behind the host: a provider of its tools (docs/spec/tools-host.md "Servers").

Rules. A server that is down stops nobody: it is tried again, and its tools are there once it
answers. They stay while it is started again, so that callers see no change where there is none. A
call that gets no answer fails at once, and says whether it may have taken effect.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp.channels import DiscoveryError, Quotation
from claw_mcp.protocol import RpcError, param_headers
from claw_mcp.stdio_child import NoAnswerError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import ToolDefinition
from claw_tools.servers.calls import read_answer, read_refusal, write_arguments
from claw_tools.servers.child import ChildLink
from claw_tools.servers.definitions import read_definitions
from claw_tools.servers.link import Link
from claw_tools.servers.url import UrlLink
from claw_tools.settings import McpServerSettings

_LIST_SECONDS = 60.0
_PAUSE_SECONDS = 0.5  # Between two lists, however often the server says that they have changed
_MAX_PAUSE = 30.0  # After lists that failed

type State = Literal["starting", "ready", "down"]


class McpServer:
    """A ``ToolProvider``, whose namespace is the server's name."""

    def __init__(
        self,
        settings: McpServerSettings,
        on_change: Callable[[str], None],
        report: Callable[..., None],
    ) -> None:
        """``on_change(name)`` is called when its tools have changed;
        ``report(state, **members)`` writes a line of the log.
        """
        self.namespace, self.is_internal = settings.name, settings.internal_only
        self._seconds, self._on_change, self._report = settings.call_seconds, on_change, report
        self._redactor = Redactor(_find_secrets(settings))
        self._tools: dict[str, ToolDefinition] | None = None
        self._has_failed = False
        self._stale = asyncio.Event()
        kind = ChildLink if settings.command else UrlLink
        self._link: Link = kind(
            settings, Quotation(self._redactor), self._take_state, self._stale.set
        )

    @property
    def state(self) -> State:
        if self._tools is not None and self._link.is_ready:
            return "ready"
        return "down" if self._has_failed else "starting"

    async def run(self) -> None:
        """Keep the server, and the list of its tools, until cancelled; no process
        of it is left then.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._keep_listed())

    async def list_tools(self) -> Sequence[ToolDefinition]:
        return tuple((self._tools or {}).values())

    async def call_tool(self, name: str, args: JsonObject) -> Any:
        tool = (self._tools or {}).get(name)
        headers = dict(param_headers(tool.parameters, args)) if tool is not None else {}
        params = {"name": name, "arguments": write_arguments(args)}
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._link.call(params, headers)
        except TimeoutError:
            message = (
                f"the server did not answer within {self._seconds:g} s, and was told to stop: "
                "it may have taken effect."
            )
            raise ToolError(ErrorCode.TIMEOUT, message) from None
        except NoAnswerError as error:
            raise _unanswered(error) from None
        except RpcError as error:
            raise read_refusal(error, self._redactor) from None
        return read_answer(answer, self._redactor)

    async def _keep_listed(self) -> None:
        failures = 0
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                async with asyncio.timeout(_LIST_SECONDS):
                    entries = await self._link.list_tools()
                failures = 0
                self._take_tools(entries)
            except (RpcError, DiscoveryError, TimeoutError) as error:
                failures += 1
                self._take_state("failed", reason=f"tools/list: {str(error) or 'it took too long'}")
            await asyncio.sleep(
                min(_PAUSE_SECONDS * 2**failures, _MAX_PAUSE) if failures else _PAUSE_SECONDS
            )
            if failures and self._link.is_ready:
                self._stale.set()

    def _take_tools(self, entries: Sequence[Any]) -> None:
        tools, before = read_definitions(entries), self._tools
        self._tools = tools
        if tools != before:
            left_out = len(entries) - len(tools)
            reason = {"reason": f"{left_out} entries of its list can't be used"} if left_out else {}
            self._take_state("changed", tools=len(tools), **reason)
            self._on_change(self.namespace)

    def _take_state(self, state: str, **members: Any) -> None:
        self._has_failed = self._has_failed or state in {"failed", "ended"}
        clear = {
            name: self._redactor.text(each) if isinstance(each, str) else each
            for name, each in members.items()
        }
        self._report(state, server=self.namespace, **clear)


def _unanswered(error: NoAnswerError) -> ToolError:
    """Return the error of a call without an answer.

    What the server said is in the log: it may hold an address.
    """
    message = (
        "the server does not run now, or can't be reached, and so the call was not sent: try "
        "it again later."
    )
    if error.was_sent:
        message = (
            "the server ended, or broke off, before it answered: the call may have taken effect."
        )
    return ToolError(ErrorCode.EXECUTION_FAILED, message)


def _find_secrets(settings: McpServerSettings) -> list[Secret]:
    """Return what no message may hold: declared variables and headers, and a
    header's credential behind its scheme.
    """
    values = [
        secret.reveal() for secret in (*settings.environment.values(), *settings.headers.values())
    ]
    parts = [value.rpartition(" ")[2] for value in values]
    return [Secret(value) for value in (*values, *parts) if value]
