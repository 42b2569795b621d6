"""What a dialect provides, and the neutral view of a runner's request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.session_id import NO_HINTS, SessionHints
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolUse
from claw_state.continuity import Anchor

MAX_MESSAGES = 50_000
"""More is no conversation."""
MAX_PARTS = 10_000
"""Calls, or blocks, of one response; more is no model's answer, and reading it would keep every other turn waiting."""


class UnreadableRequestError(ValueError):
    """The runner's body is not a request of this dialect. The message is for the runner, and is one sentence."""


class UnreadableResponseError(ValueError):
    """The provider's body is not a response of this dialect."""


@dataclass(frozen=True, slots=True)
class RunnerRequest:
    """The view of a request that the rules need. ``body`` is what the runner sent."""

    body: bytes
    model: str
    stream: bool
    include_usage: bool
    declared: tuple[str, ...]
    """Names of the runner's own tools, of any type."""
    bypass: str | None = None
    """Why no tools are offered in this request, where its form rules them out: an intervention's name."""
    choice: JsonObject | str | None = None
    """The runner's ``tool_choice``."""
    read_evidence: Callable[[], Evidence] = Evidence
    """Every word of the conversation goes into it: read once, and only where it is asked for."""
    session: SessionHints = NO_HINTS
    said: tuple[str, ...] = ()
    """What the user said, oldest first; each part of a message on a line of its own: it is a word's end."""
    system: str = ""
    """The visible text of the system prompt."""
    most_tokens: int | None = None
    """How long an answer the runner takes."""
    begun: str | None = None
    """The text of the assistant's message that stands last, which the model is to go on with; None where none does."""
    legacy: bool = False
    """Whether the runner speaks of ``functions`` (OpenAI, before tools), and expects a ``function_call`` back."""
    model_span: tuple[int, int] | None = None
    """Where a form names its model in ``body``; None: the body is JSON."""
    recorded: bytes | None = None
    """What history keeps of a form, as JSON: its fields, and the sizes of its files."""

    @property
    def evidence(self) -> Evidence:
        return self.read_evidence()


@dataclass(frozen=True, slots=True)
class Additions:
    """What the proxy adds to a request beside tools."""

    woven: Mapping[int, bytes] = field(default_factory=dict)
    """Hidden messages (JSON, comma separated) by the index of the message that they stand before."""
    context: str = ""
    """Text for the end of the system prompt."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request for the provider, split where this turn's hidden rounds go: a round costs no further parse."""

    head: bytes
    """Up to the end of the last message."""
    tail: bytes
    """From the bracket that closes ``messages``."""
    prefill: bytes = b""
    """The assistant's message that the runner began: it is in neither part."""

    @property
    def body(self) -> bytes:
        return self.followed_by([self.prefill] if self.prefill else [])

    def followed_by(self, messages: Sequence[bytes]) -> bytes:
        """The request with messages behind its own."""
        comma = b"" if self.head.endswith(b"[") or not messages else b","
        return self.head + comma + b",".join(messages) + self.tail


@dataclass(frozen=True, slots=True)
class StreamOpening:
    """What a stream says of itself when it must speak before its answer is there. What comes later says the same."""

    id: str
    model: str
    created: int


type RequestVariants = Callable[[ToolUse], ProviderRequest]
"""The request with the managed tools, for each use of tools."""
type Keepalive = Literal["comment", "native"]


TERMINAL_TEXT = "Done."
"""What a turn that a tool ended says where the model said nothing: runners drop empty messages, and providers refuse them."""


class Dialect(Protocol):
    """One provider protocol. Modules satisfy it."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def MAX_TOOLS(self) -> int: ...  # noqa: N802

    def read_request(self, body: bytes) -> RunnerRequest:
        """Raises ``UnreadableRequestError``."""

    def build_request(self, request: RunnerRequest, catalog: ToolCatalog, additions: Additions) -> RequestVariants:
        """The request with the managed tools behind the runner's own. Raises ``UnreadableRequestError``."""

    def add_context(self, request: RunnerRequest, context: str) -> bytes:
        """A request that is not mediated, with text at the end of its system prompt. Raises ``UnreadableRequestError``."""

    def write_request(self, offer: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
        """The offered request with hidden messages, of this turn's rounds, behind its own."""

    def read_response(self, body: bytes, catalog: ToolCatalog) -> ModelResponse:
        """Raises ``UnreadableResponseError``."""

    def write_response(
        self, reply: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
    ) -> bytes:
        """The response for the runner: upstream's bytes, with the usage that the runner is shown."""

    def stream(self, body: bytes, request: RunnerRequest, opening: StreamOpening | None = None) -> Iterator[bytes]:
        """A response, as ``write_reply`` made it, as one well-formed stream of events. ``opening``: how it began."""

    def write_hidden_rounds(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
        """The messages of rounds; ``replayed`` leaves out what was advice for one turn only."""

    def summarize(self, messages: bytes) -> bytes:
        """Hidden messages with their calls and how each went, and no more: for those that a request has no room for."""

    def response_anchor(self, reply: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
        """The anchor under which this reply's hidden rounds are found again."""

    def keepalive(self, note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
        """An event that says that the turn is alive, and nothing else."""

    def stream_error(self, error: bytes) -> bytes:
        """An error that comes after the headers."""

    def error_body(self, body: bytes) -> bytes | None:
        """A provider's error body as one line of JSON; None when it is not of the dialect's shape."""
