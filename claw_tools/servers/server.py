"""An MCP server behind the host: a provider of its tools (docs/spec/tools-host.md "Servers").

Rules. A server that is down stops nobody: it is tried again, and its tools are offered once it
answers. They stay while it is started again, so that callers see no change where there is none. A
call that gets no answer fails at once, and says whether it may have taken effect.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_contract.toolhost_file import McpServerSection
from claw_mcp.channels import DiscoveryError, Quotation
from claw_mcp.protocol import RpcError, param_headers
from claw_mcp.stdio_child import NoAnswerError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import ToolDefinition
from claw_tools.servers.answers import read_answer, read_definitions, read_refusal, write_arguments
from claw_tools.servers.links import ChildLink, ServerLink, UrlLink

_LIST_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5  # Between two lists, however often the server says that they changed
_MAX_PAUSE_SECONDS: Final = 30.0  # After lists that failed
_MAX_DOUBLINGS: Final = 10

type State = Literal["starting", "ready", "down"]


class McpServer:
    """A ``ToolProvider``, whose namespace is the server's name."""

    def __init__(
        self,
        name: str,
        section: McpServerSection,
        on_change: Callable[[str], None],
        report: Callable[..., None],
    ) -> None:
        """Start nothing.

        ``on_change(name)`` is called when the tools have changed; ``report(state, **members)``
        writes a line of the log.
        """
        self.namespace = name
        self.is_internal = section.internal_only
        self._seconds = section.timeout_s
        self._on_change = on_change
        self._report = report
        self._redactor = Redactor(_find_secrets(section))
        self._tools: dict[str, ToolDefinition] = {}
        self._is_listed = False
        self._has_failed = False
        self._stale = asyncio.Event()

        make_link = ChildLink if section.command else UrlLink
        quotation = Quotation(self._redactor)
        self._link: ServerLink = make_link(section, quotation, self._take_state, self._stale.set)

    @property
    def state(self) -> State:
        if self._is_listed and self._link.is_ready:
            return "ready"
        return "down" if self._has_failed else "starting"

    async def run(self) -> None:
        """Keep the server, and the list of its tools, until cancelled.

        No process of it is left then.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._keep_listed())

    async def list_tools(self) -> Sequence[ToolDefinition]:
        return tuple(self._tools.values())

    async def call_tool(self, name: str, args: JsonObject) -> Any:
        tool = self._tools.get(name)
        headers = dict(param_headers(tool.parameters, args)) if tool is not None else {}
        params = {"name": name, "arguments": write_arguments(args)}

        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._link.call(params, headers)
        except TimeoutError:
            raise ToolError(
                ErrorCode.TIMEOUT,
                f"the server did not answer within {self._seconds:g} s, and was told to stop: it "
                "may have taken effect.",
            ) from None
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

            await asyncio.sleep(pause_after(failures))
            if failures and self._link.is_ready:
                self._stale.set()

    def _take_tools(self, entries: Sequence[Any]) -> None:
        tools = read_definitions(entries)
        if self._is_listed and tools == self._tools:
            return

        self._tools = tools
        self._is_listed = True
        members: dict[str, Any] = {"tools": len(tools)}
        left_out = len(entries) - len(tools)
        if left_out:
            members["reason"] = f"{left_out} entries of its list can't be used"
        self._take_state("changed", **members)
        self._on_change(self.namespace)

    def _take_state(self, state: str, **members: Any) -> None:
        self._has_failed = self._has_failed or state in {"failed", "ended"}
        redacted = {
            name: self._redactor.text(value) if isinstance(value, str) else value
            for name, value in members.items()
        }
        self._report(state, server=self.namespace, **redacted)


def pause_after(failures: int) -> float:
    """Return the seconds before the next list, after so many failures in a row.

    >>> pause_after(0), pause_after(1), pause_after(10_000)
    (0.5, 1.0, 30.0)
    """
    doublings = min(failures, _MAX_DOUBLINGS)  # A float holds 2**1023 at most
    return min(_PAUSE_SECONDS * (1 << doublings), _MAX_PAUSE_SECONDS)


def _unanswered(error: NoAnswerError) -> ToolError:
    """Return the error of a call without an answer.

    What the server said is in the log alone: it may hold an address.
    """
    if error.was_sent:
        message = (
            "the server ended, or broke off, before it answered: the call may have taken effect."
        )
    else:
        message = (
            "the server does not run now, or can't be reached, and so the call was not sent: try "
            "it again later."
        )
    return ToolError(ErrorCode.EXECUTION_FAILED, message)


def _find_secrets(section: McpServerSection) -> list[Secret]:
    """Return what no message may hold: declared variables and headers.

    Of a header, the credential after its scheme counts by itself, too.
    """
    values = [secret.reveal() for secret in (*section.env.values(), *section.headers.values())]
    parts = [value.rpartition(" ")[2] for value in values]
    return [Secret(value) for value in (*values, *parts) if value]
