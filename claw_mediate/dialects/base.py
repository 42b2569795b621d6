"""The interface of a dialect, and the neutral view of a runner's request."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.json_pieces import join_pieces
from claw_mediate.core.object_ids import AnswerShape
from claw_mediate.core.session_id import NO_HINTS, SessionHints
from claw_mediate.core.split import SplitRules
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolUse
from claw_mediate.core.weave import Weaves
from claw_mediate.dialects.kept import KeptReferences
from claw_state.continuity import Anchor

MAX_MESSAGES = 50_000  # A request with more is no conversation
# Calls, or blocks, of one response. Reading a larger one would keep every other turn waiting.
MAX_PARTS = 10_000


type BufferedReason = Literal["structured_output", "legacy_functions", "audio"]


class UnreadableRequestError(ValueError):
    """The runner's body is not a request of this dialect.

    The message is one sentence, for the runner.
    """


class UnreadableResponseError(ValueError):
    """The provider's body is not a response of this dialect."""


class FailedResponseError(Exception):
    """A response with status 200 that tells of a failure.

    It is treated as a response with this status and this error body.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the response tells of a failure with status {status}")
        self.status = status
        self.body = body


class ResentItems(NamedTuple):
    """Items at the end of a request that may be the beginning of an answer that was cut off."""

    body: bytes  # The request without these items
    leave_out: Callable[[bytes], bytes | None]
    """Given the answer to that body, returns it without these items.

    None if the answer does not begin with them.
    """


class RunnerRequest(msgspec.Struct, frozen=True):
    """The view of a request that the rules need. ``body`` is what the runner sent."""

    body: bytes
    model: str
    stream: bool = False
    is_live: bool = False
    """True if the provider is asked to stream, and its replies are told while they come."""
    buffered_reason: BufferedReason | None = None
    """The reason why a stream of this request can't be told while it comes; None if it can."""
    include_usage: bool = False
    declared_tools: tuple[str, ...] = ()  # Names of the runner's own tools, of any type
    # True if the runner may have tools that the request does not name
    declares_elsewhere: bool = False
    # The intervention by which this request gets no tools, if its form rules them out
    bypass: str | None = None
    tool_choice: JsonObject | str | None = None
    load_evidence: Callable[[], Evidence] = Evidence
    """Reads every word of the conversation. Called once, and only if the evidence is needed."""
    load_resent: Callable[[], Sequence[ResentItems]] = tuple
    """Finds what may be a part of an answer that was cut off, the shortest first."""
    session_hints: SessionHints = NO_HINTS
    user_texts: tuple[str, ...] = ()
    """The user's messages, oldest first.

    The parts of a message are separated by line breaks, since words end there.
    """
    system: str = ""  # The visible text of the system prompt
    max_tokens: int | None = None  # The limit of the response's length
    # The text of an assistant's message at the end, which the model is to continue
    prefill_text: str | None = None
    uses_functions: bool = False
    """True if the runner declares ``functions``, as OpenAI had them before tools.

    It expects a ``function_call`` back.
    """
    # The place of the model's name in a form; None if the body is JSON
    model_span: tuple[int, int] | None = None
    # The rule by which this is a side request, if the runner's program says so itself
    side_request: str | None = None
    kept: KeptReferences | None = None
    """The kept objects that the request names, and what its provider is to keep of it.

    None in protocols in which providers keep nothing.
    """
    # A form as history records it, as JSON: its fields, and the sizes of its files
    history_body: bytes | None = None

    @property
    def evidence(self) -> Evidence:
        return self.load_evidence()

    @property
    def conversation(self) -> str:
        """Return the id of the conversation that the provider puts the request into, or ""."""
        return self.kept.conversation if self.kept is not None else ""

    @property
    def keeps_rounds(self) -> bool:
        """True if the provider keeps every round of the turn.

        Then nothing can be left out, and only what is new is sent.
        """
        return bool(self.conversation)


class Additions(msgspec.Struct, frozen=True):
    """The proxy's additions to a request, besides tools."""

    insertions: Weaves = msgspec.field(default_factory=dict)
    """The hidden messages of earlier turns, by the index of the runner's message."""
    context: str = ""  # Text for the end of the system prompt


class ProviderRequest(msgspec.Struct, frozen=True):
    """A request for the provider, split at the place of this turn's hidden rounds.

    So a further round costs no further parse.
    """

    # Up to the end of the last message; without the runner's messages if the provider has them
    head: bytes
    tail: bytes  # From the bracket that closes ``messages``
    prefill: bytes = b""  # The assistant's message that the runner began, which is in neither part
    unextended: bytes = b""  # The body of a turn without rounds, if it has another form

    @property
    def body(self) -> bytes:
        return self.unextended or self.with_messages([self.prefill] if self.prefill else [])

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        comma = b"" if self.head.endswith(b"[") or not messages else b","
        return join_pieces([self.head, comma, b",".join(messages), self.tail])


class StreamOpening(msgspec.Struct, frozen=True):
    """The head of a stream that begins before its response is there."""

    id: str  # Of the response, in the whole stream
    model: str
    created: int
    beats: int = 0  # Keepalives of the native kind that were sent before


type RequestVariants = Callable[[ToolUse], ProviderRequest]
"""Returns the request with the managed tools, for a use of tools."""


type Keepalive = Literal["comment", "native"]

TERMINAL_TEXT = "Done."
"""The text of a turn that a tool ended, if the model said nothing.

Runners drop empty messages, and providers refuse them.
"""


class ReplayRules:
    """The rules of a protocol about the responses that can be sent back to a provider.

    By these defaults, all of them can.
    """

    def adapt(self, messages: bytes, maker: str) -> bytes:
        """Return stored hidden messages without what this provider and model would refuse.

        ``maker``: as in ``ModelResponse``. "" leaves out everything that any provider may refuse.
        """
        del maker
        return messages

    def find_losses(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[str, ...]:
        """Return the interventions for what ``write_hidden_rounds`` leaves out, besides advice.

        It is called with the same arguments.
        """
        del rounds, replayed
        return ()

    def ask_for_replayable(self, body: bytes) -> bytes:
        """Return a request that asks for responses that can be sent back whole."""
        return body

    def refuses_replayable(self, error: bytes) -> bool:
        """Return True if a provider's error of status 400 is about ``ask_for_replayable``."""
        del error
        return False

    def refuses_reasoning(self, error: bytes) -> bool:
        """Return True if a provider's error of status 400 is about reasoning that it was sent back.

        Then the request may succeed without what no memory explains
        (``core.split.leave_out_unexplained``).
        """
        del error
        return False


class Dialect(Protocol):
    """One provider protocol. Modules satisfy it."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def MAX_TOOLS(self) -> int: ...  # noqa: N802

    @property
    def ID_PREFIX(self) -> str:  # noqa: N802
        """The beginning of the ids of its responses."""

    @property
    def TRANSCRIPT(self) -> str:  # noqa: N802
        """The member of a request that holds its messages."""

    @property
    def ANSWER_SHAPE(self) -> AnswerShape | None:  # noqa: N802
        """The places in an answer at which the provider gives ids."""

    @property
    def REPLAY_RULES(self) -> ReplayRules: ...  # noqa: N802

    @property
    def SPLIT_RULES(self) -> SplitRules:  # noqa: N802
        """What splits the answer of a live turn again where its rounds ended."""

    def read_request(self, body: bytes) -> RunnerRequest:
        """Return the view of a runner's request. Raises ``UnreadableRequestError``."""

    def build_request(
        self, request: RunnerRequest, catalog: ToolCatalog, additions: Additions
    ) -> RequestVariants:
        """Return the request with the managed tools after the runner's own.

        Raises ``JsonSpliceError``.
        """

    def add_context(self, request: RunnerRequest, context: str) -> bytes:
        """Return the body of a request that is not mediated, with text after its system prompt.

        Raises ``JsonSpliceError``.
        """

    def write_request(self, request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
        """Return the body for the provider, with this turn's hidden messages after its own."""

    def read_response(self, body: bytes, catalog: ToolCatalog) -> ModelResponse:
        """Return the view of a provider's response. Raises ``UnreadableResponseError``."""

    def write_response(
        self, response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
    ) -> bytes:
        """Return the body for the runner: the provider's bytes, with ``usage``."""

    def stream(
        self, body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
    ) -> Iterator[bytes]:
        """Yield a body of ``write_response`` as one well-formed stream of events.

        ``opening``: the head of the stream, if it has begun already.
        """

    def write_hidden_rounds(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
        """Return the messages of rounds.

        ``replayed``: for a later turn, without the advice that was for one turn only.
        """

    def write_answers(self, answered: Round) -> tuple[bytes, ...]:
        """Return the messages that answer the calls of a round, without the response itself."""

    def summarize(self, messages: bytes) -> bytes:
        """Return shorter hidden messages, for a request without room for all.

        They say which calls were made, and how each ended.
        """

    def response_anchor(
        self, response: ModelResponse, request: RunnerRequest, *, terminal: bool
    ) -> Anchor:
        """Return the anchor by which this response's hidden rounds are found again."""

    def keepalive(self, note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
        """Return an event that only says that the turn is alive."""

    def stream_error(self, error: bytes, opening: StreamOpening) -> bytes:
        """Return the events of an error that comes after the headers."""

    def error_body(self, body: bytes) -> bytes | None:
        """Return a provider's error body as one line of JSON.

        None if it has not the dialect's shape.
        """
