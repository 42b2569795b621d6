"""The interface of a dialect, and the neutral view of a runner's request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.session_id import NO_HINTS, SessionHints
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolUse
from claw_state.continuity import Anchor

MAX_MESSAGES = 50_000  # A request with more is no conversation
MAX_PARTS = 10_000  # Calls, or blocks, of one response. Reading a larger one would keep every other turn waiting.


class UnreadableRequestError(ValueError):
    """The runner's body is not a request of this dialect. The message is one sentence, for the runner."""


class UnreadableResponseError(ValueError):
    """The provider's body is not a response of this dialect."""


@dataclass(frozen=True, slots=True)
class RunnerRequest:
    """The view of a request that the rules need. ``body`` is what the runner sent."""

    body: bytes
    model: str
    stream: bool = False
    include_usage: bool = False
    declared_tools: tuple[str, ...] = ()  # Names of the runner's own tools, of any type
    bypass: str | None = None  # The intervention by which this request gets no tools, where its form rules them out
    tool_choice: JsonObject | str | None = None
    load_evidence: Callable[[], Evidence] = Evidence
    """Reads every word of the conversation: called once, and only where the evidence is needed."""
    session_hints: SessionHints = NO_HINTS
    user_texts: tuple[str, ...] = ()
    """The user's messages, oldest first; the parts of a message are separated by line breaks, since words end there."""
    system: str = ""  # The visible text of the system prompt
    max_tokens: int | None = None  # The limit of the response's length
    prefill_text: str | None = None  # The text of the last message where it is the assistant's, which the model is to continue
    uses_functions: bool = False
    """True if the runner declares ``functions`` (OpenAI, before tools), and expects a ``function_call`` back."""
    model_span: tuple[int, int] | None = None  # The place of the model's name in a form; None where the body is JSON
    history_body: bytes | None = None  # A form as history records it, as JSON: its fields, and the sizes of its files

    @property
    def evidence(self) -> Evidence:
        return self.load_evidence()


@dataclass(frozen=True, slots=True)
class Additions:
    """The proxy's additions to a request beside tools."""

    insertions: Mapping[int, bytes] = field(default_factory=dict)
    """Hidden messages (JSON, comma separated) by the index of the message that they stand before."""
    context: str = ""  # Text for the end of the system prompt


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request for the provider, split where this turn's hidden rounds go: a round costs no further parse."""

    head: bytes  # Up to the end of the last message
    tail: bytes  # From the bracket that closes ``messages``
    prefill: bytes = b""  # The assistant's message that the runner began: it is in neither part

    @property
    def body(self) -> bytes:
        return self.with_messages([self.prefill] if self.prefill else [])

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        comma = b"" if self.head.endswith(b"[") or not messages else b","
        return self.head + comma + b",".join(messages) + self.tail


@dataclass(frozen=True, slots=True)
class StreamOpening:
    """The head of a stream that begins before its response is there. Later chunks repeat it."""

    id: str
    model: str
    created: int


type RequestVariants = Callable[[ToolUse], ProviderRequest]  # The request with the managed tools, for each use of tools
type Keepalive = Literal["comment", "native"]


TERMINAL_TEXT = "Done."
"""The text of a turn that a tool ended without a word of the model: runners drop empty messages, providers refuse them."""


class Dialect(Protocol):
    """One provider protocol. Modules satisfy it."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def MAX_TOOLS(self) -> int: ...  # noqa: N802

    def read_request(self, body: bytes) -> RunnerRequest:
        """Return the view of a runner's request. Raises ``UnreadableRequestError``."""

    def build_request(self, request: RunnerRequest, catalog: ToolCatalog, additions: Additions) -> RequestVariants:
        """Return the request with the managed tools behind the runner's own. Raises ``JsonSpliceError``."""

    def add_context(self, request: RunnerRequest, context: str) -> bytes:
        """Return the body of an unmediated request, with text at the end of its system prompt. Raises ``JsonSpliceError``."""

    def write_request(self, request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
        """Return the body for the provider, with the hidden messages of this turn's rounds behind its own."""

    def read_response(self, body: bytes, catalog: ToolCatalog) -> ModelResponse:
        """Return the view of a provider's response. Raises ``UnreadableResponseError``."""

    def write_response(self, response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool) -> bytes:
        """Return the body for the runner: the provider's bytes, with the usage that the runner is shown."""

    def stream(self, body: bytes, request: RunnerRequest, opening: StreamOpening | None = None) -> Iterator[bytes]:
        """Yield a body of ``write_response`` as one well-formed stream of events. ``opening``: how it began."""

    def write_hidden_rounds(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
        """Return the messages of rounds; ``replayed`` leaves out what was advice for one turn only."""

    def summarize(self, messages: bytes) -> bytes:
        """Return hidden messages with their calls and how each went, and no more, for a request without room for all."""

    def response_anchor(self, response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
        """Return the anchor by which this response's hidden rounds are found again."""

    def keepalive(self, note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
        """Return an event that only says that the turn is alive."""

    def stream_error(self, error: bytes) -> bytes:
        """Return the events of an error that comes after the headers."""

    def error_body(self, body: bytes) -> bytes | None:
        """Return a provider's error body as one line of JSON; None when it is not of the dialect's shape."""
