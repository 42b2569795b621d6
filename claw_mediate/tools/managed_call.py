"""A managed call to a service: the parts that are the same for every transport.

A service's answer is data: bounded, and scrubbed of the credentials that the service received.
"""

from typing import Protocol

import httpx2
import msgspec

from claw_contract.manifest import Tool
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.observer import Subject, TurnObserver
from claw_mediate.core.tool_call import round_of_key, turn_of_key, write_arguments
from claw_mediate.core.types import Arguments, ToolCall, ToolResult
from claw_mediate.http.headers import Headers

# Reading stops at this size; the result is then ``response_too_large``
MAX_BODY_BYTES = 64 * 1024 * 1024

# Less than the 5 s after which common servers close an idle connection: the outcome of a request
# that is sent at that moment is unknown
IDLE_SECONDS = 4.0


class ManagedCall(msgspec.Struct, frozen=True):
    """A call of an agent's, with the credentials of its tool, which the redactor knows too."""

    agent: Agent
    observer: TurnObserver
    redactor: Redactor
    """Knows all secrets of the turn, too: a service may repeat what another one said."""
    call: ToolCall
    key: str  # Identifies the call within its turn; the same when the turn is repeated
    credentials: Headers
    until: float  # The loop's time at which the call is cut off

    @property
    def tool(self) -> Tool:
        assert self.call.tool is not None
        return self.call.tool

    @property
    def arguments(self) -> Arguments:
        assert isinstance(self.call.arguments, Arguments)
        return self.call.arguments

    @property
    def subject(self) -> Subject:
        return Subject("tool", round_of_key(self.key), self.call.canonical)

    @property
    def max_bytes(self) -> int:
        """The limit of what the model is shown of the answer."""
        return self.tool.annotations.max_result_bytes or self.agent.limits.result_bytes

    def own_headers(self, accept: str) -> Headers:
        """Return the headers that say who calls in which turn."""
        headers = [
            ("accept", accept),
            ("user-agent", "clawdapus"),
            ("x-claw-id", self.agent.id),
            ("x-claw-turn", turn_of_key(self.key)),
        ]
        if self.tool.effect != "read":
            headers.append(("idempotency-key", self.key))
        return headers

    def refuse(self, result: ToolResult) -> ToolResult:
        """Report to the observer that the call is not made; return its result."""
        return report_not_made(self.observer, self.key, result)

    def fail(self, error: httpx2.HTTPError | httpx2.InvalidURL | UnicodeError) -> ToolResult:
        """Return the result of a call that could not be made, or whose connection broke.

        It says whether the call may have been processed.
        """
        was_sent = False

        match error:
            case httpx2.InvalidURL() | httpx2.LocalProtocolError() | UnicodeError():
                message = "The service can't be called as it is configured."
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.UnsupportedProtocol():
                message = "The service can't be reached."
            case _:
                message = "The service broke off its answer."
                was_sent = True

        return tool_result.request_failed(self.call, message, sent=was_sent)


class Transport(Protocol):
    """One way to make calls."""

    async def run(self, managed: ManagedCall) -> ToolResult:
        """Make the call and return its result; raise nothing but cancellation."""

    async def close(self) -> None: ...


def report_not_made(observer: TurnObserver, key: str, result: ToolResult) -> ToolResult:
    """Report to the observer a call that is not made; return its result."""
    subject = Subject("tool", round_of_key(key), result.call.canonical)
    observer.report_not_made(subject, write_arguments(result.call), result.code or "")
    return result


def too_large(call: ToolCall) -> ToolResult:
    return tool_result.failure(
        call, tool_result.RESPONSE_TOO_LARGE, "The service's answer is too large.", ran=True
    )
