"""One request on its way through the proxy: as it was read, as it is answered, and how it ended."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from claw_contract.manifest import StreamMode
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Request
from claw_mediate.core.shown import LiveRecord
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Outcome, Round, ToolResult
from claw_mediate.dialects.base import Dialect, RunnerRequest, WriteRequest
from claw_mediate.providers.routing import Route
from claw_mediate.turns.budgets import Admission
from claw_state.continuity import Anchor
from claw_state.journal import AttemptKind
from claw_state.ownership import KeptObject, ProviderObject


class DialectRequest(msgspec.Struct, frozen=True):
    """A request of a dialect, with the agent that sent it."""

    admitted: Identity
    request: Request
    view: RunnerRequest
    dialect: Dialect
    redactor: Redactor
    only_counts: bool = False  # True if the tokens are to be counted, and no model is asked
    predecessor: KeptObject | None = None
    """The kept object that the request goes on from, if the agent is known to own it."""
    named_object: ProviderObject | None = None
    """The first file or the like that the request names, if the agent owns it."""
    covered: frozenset[str] = frozenset()
    """Marks of answers that the provider has already, and that the request repeats."""
    woven: bytes = b""  # Hidden items (comma separated) that were put into the view's body

    @property
    def agent(self) -> Agent:
        return self.admitted.agent

    @property
    def place(self) -> KeptObject | ProviderObject | None:
        """Return the named object that decides about provider and key; None if there is none."""
        return self.predecessor or self.named_object


class BrokenAnswer(NamedTuple):
    """An answer that broke off, and the hidden rounds that led to it."""

    anchor: Anchor
    record: LiveRecord


class PreparedRequest(NamedTuple):
    """A runner's request as providers are sent it.

    It has the managed tools, the hidden rounds of earlier turns and the context.
    """

    catalog: ToolCatalog
    build: Callable[[str], WriteRequest]
    """Returns the writer for a provider and model (``ModelResponse.maker``). Cached."""
    first_maker: str = ""  # The provider and model that is asked first
    size: int = 0
    """Bytes of the runner's request: if it is large, requests are written in a thread."""
    woven: bytes = b""  # Hidden items (comma separated) of earlier turns in the request
    build_explained: Callable[[str], WriteRequest] | None = None
    """Returns the same without reasoning of the runner's that no stored turn explains.

    None if there is no such reasoning.
    """
    broken: BrokenAnswer | None = None
    """The last answer in it of which hidden rounds are known, if it broke off."""


class ConversationRecord(Protocol):
    """The record of a conversation that the provider keeps, during one turn."""

    async def note_progress(self, response: ModelResponse, results: Sequence[ToolResult]) -> None:
        """Record what the provider will wait for if the process ends now."""

    async def note_end(
        self, outcome: Outcome, last: Round | None, marks: Collection[str], joined: bytes = b""
    ) -> None:
        """Record what the provider waits for after the turn, and the marks of its answer.

        ``joined``: the answer, if it shows something of hidden rounds.
        """


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything fixed about a request before it is sent on: what history and the log say of it."""

    turn_id: str
    agent: Agent
    request: Request
    view: RunnerRequest | None  # None where the request asks no model
    redactor: Redactor
    route: Route | None = None
    """None where no provider is asked: a call that the runner makes itself (``broker``)."""
    admission: Admission | None = None  # None for an agent without a limit in dollars
    is_side_request: bool = False
    """True for the runner's own housekeeping, which is no part of the conversation."""

    @property
    def provider(self) -> str:
        """Return the provider that answers; of several candidates the one that was asked last."""
        return self.route.candidate.provider.name if self.route is not None else ""

    @property
    def model(self) -> str:
        return self.route.candidate.model if self.route is not None else ""


class SettledAnswer(msgspec.Struct, frozen=True):
    """The part of a failed turn's answer that stands before the last words of a request."""

    text: str
    before: tuple[str, ...]  # Digests of the last messages before it
    record: LiveRecord  # The failed turn's hidden rounds


class TurnContext(RequestContext, frozen=True, kw_only=True):
    """Everything fixed about a mediated turn before it starts."""

    view: RunnerRequest
    route: Route
    dialect: Dialect
    prepared: PreparedRequest
    session: str = ""  # The conversation, where the runner names it
    fingerprint: str = ""  # The digest by which the request is recognised when it comes again
    attempt: AttemptKind = "first"
    held: str = ""
    """The text that the runner has of an earlier attempt's answer, and sent with its request."""
    before_rest: tuple[str, ...] = ()
    """Digests of the last messages before the rest of that answer: what is held is among them."""
    settled: SettledAnswer | None = None
    """The part of an earlier turn's answer that was sent, with the runner's words behind it."""
    conversation: ConversationRecord | None = None
    """The conversation that the provider puts the turn into."""

    @property
    def catalog(self) -> ToolCatalog:
        return self.prepared.catalog


class ShownCharacters(NamedTuple):
    """The characters that one reply has shown."""

    text: int = 0  # What a person reads
    reasoning: int = 0


class StreamFigures(msgspec.Struct, frozen=True):
    """The figures of a turn's stream, in milliseconds and characters.

    None: there was no such thing. The members are defined in ``claw_contract.log``.
    """

    mode: StreamMode = "buffered"
    ttft_ms: int | None = None
    upstream_ttft_ms: int | None = None
    held_ms: int | None = None
    shown: Mapping[int, ShownCharacters] = MappingProxyType({})
    """The characters of each reply that has shown something, by its round."""

    @property
    def shown_rounds(self) -> int:
        """Return how many replies showed something."""
        return len(self.shown)


class TurnResult(msgspec.Struct, frozen=True):
    """The end of a request, as its runner saw it."""

    status: int
    ok: bool
    body: bytes = b""
    content_type: str = "application/json"
    code: str | None = None
    """The error's code: Anthropic's shape has no place for it, the log has."""
    retry_after: str = ""
    kept: KeptObject | None = None  # The record of the response, where a provider keeps it
    latency_ms: int = 0
    headers: tuple[tuple[str, str], ...] = ()  # Of the provider's last response
    is_cut: bool = False  # True if the runner's stream must end without an end of its own
    stream: StreamFigures | None = None  # None: the runner asked for no stream, or was left alone
    shown: str | None = None
    """The text that a live turn without an answer has shown. None: it has shown nothing."""
