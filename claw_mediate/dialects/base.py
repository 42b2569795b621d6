"""The interface of a dialect, and the neutral view of a runner's request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.json_pieces import join_pieces
from claw_mediate.core.object_ids import AnswerShape
from claw_mediate.core.session_id import NO_HINTS, SessionHints
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolUse
from claw_mediate.dialects.kept import KeptReferences
from claw_state.continuity import Anchor

MAX_MESSAGES = 50_000  # A request with more is no conversation
# Calls, or blocks, of one response. Reading a larger one would keep every other turn waiting.
MAX_PARTS = 10_000


class UnreadableRequestError(ValueError):
    """The runner's body is not a request of this dialect.

    The message is one sentence, for the runner.
    """


class UnreadableResponseError(ValueError):
    """The provider's body is not a response of this dialect."""


class FailedResponseError(Exception):
    """A response with status 200 that tells of a failure: it counts as one with
    this status and error body.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the response tells of a failure with status {status}")
        self.status, self.body = status, body


class ResentItems(NamedTuple):
    """The end of a request that a runner may have from an answer which was cut off on its way."""

    body: bytes  # The request without it
    leave_out: Callable[[bytes], bytes | None]
    """Returns the answer of that body without what the runner has; None if that is
    not its beginning.
    """


class RunnerRequest(msgspec.Struct, frozen=True):
    """The view of a request that the rules need. ``body`` is what the runner sent."""

    body: bytes
    model: str
    stream: bool = False
    include_usage: bool = False
    declared_tools: tuple[str, ...] = ()  # Names of the runner's own tools, of any type
    declares_elsewhere: bool = False
    """True if the runner may have tools that the request does not name."""
    bypass: str | None = None
    """The intervention by which this request gets no tools, because its form rules them out."""
    tool_choice: JsonObject | str | None = None
    load_evidence: Callable[[], Evidence] = Evidence
    """Reads every word of the conversation: called once, and only where the evidence is needed."""
    load_resent: Callable[[], Sequence[ResentItems]] = tuple
    """Finds what may be a part of an answer that was cut off, the shortest first."""
    session_hints: SessionHints = NO_HINTS
    user_texts: tuple[str, ...] = ()
    """The user's messages, oldest first; the parts of a message are separated by line breaks,
    since words end there.
    """
    system: str = ""  # The visible text of the system prompt
    max_tokens: int | None = None  # The limit of the response's length
    prefill_text: str | None = None
    """The text of the last message if it is the assistant's, which the model is to continue."""
    uses_functions: bool = False
    """True if the runner declares ``functions`` (OpenAI, before tools), and expects a
    ``function_call`` back.
    """
    model_span: tuple[int, int] | None = None
    """The place of the model's name in a form; None where the body is JSON."""
    side_request: str | None = None
    """The rule by which this is a side request, if the runner's program says so itself."""
    kept: KeptReferences | None = None
    """What the request says about what its provider keeps; None in protocols in which providers
    keep nothing.
    """
    history_body: bytes | None = None
    """A form as history records it, as JSON: its fields, and the sizes of its files."""

    @property
    def evidence(self) -> Evidence:
        return self.load_evidence()

    @property
    def conversation(self) -> str:
        """Return the id of the conversation that the provider puts the request into, or ""."""
        return self.kept.conversation if self.kept is not None else ""

    @property
    def keeps_rounds(self) -> bool:
        """Return whether the provider keeps every round of the turn: nothing is left out, and only
        what is new is sent.
        """
        return bool(self.conversation)


class Additions(msgspec.Struct, frozen=True):
    """The proxy's additions to a request beside tools."""

    insertions: Mapping[int, bytes] = msgspec.field(default_factory=dict)
    """Hidden messages (JSON, comma separated) by the index of the message that they
    stand before.
    """
    context: str = ""  # Text for the end of the system prompt


class ProviderRequest(msgspec.Struct, frozen=True):
    """A request for the provider, split where this turn's hidden rounds go: a round
    costs no further parse.
    """

    # Up to the end of the last message; without any of the runner's where the provider has them
    head: bytes
    tail: bytes  # From the bracket that closes ``messages``
    prefill: bytes = b""  # The assistant's message that the runner began: it is in neither part
    unextended: bytes = b""  # The body without a round, where it has another form

    @property
    def body(self) -> bytes:
        return self.unextended or self.with_messages([self.prefill] if self.prefill else [])

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        comma = b"" if self.head.endswith(b"[") or not messages else b","
        return join_pieces([self.head, comma, b",".join(messages), self.tail])


class StreamOpening(msgspec.Struct, frozen=True):
    """The head of a stream that begins before its response is there.

    ``id`` is the response's, for the whole stream.
    """

    id: str
    model: str
    created: int
    beats: int = 0  # How many keepalives of the native kind went out before


type RequestVariants = Callable[
    [ToolUse], ProviderRequest
]  # The request with the managed tools, for each use of tools


type Keepalive = Literal["comment", "native"]


TERMINAL_TEXT = "Done."
"""The text of a turn that a tool ended without a word of the model: runners drop empty messages,
providers refuse them.
"""


class ReplayRules:
    """The rules of a protocol about the responses that a provider takes back: by
    these, it takes back everything.
    """

    def adapt(self, messages: bytes, maker: str) -> bytes:
        """Return stored hidden messages for that provider and model, without what
        only another one takes back.

        ``maker``: as in ``ModelResponse``; "" leaves out all that any provider may refuse.
        """
        del maker
        return messages

    def find_losses(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[str, ...]:
        """Return the interventions for what ``write_hidden_rounds``, with the same
        arguments, leaves out beside advice.
        """
        del rounds, replayed
        return ()

    def ask_for_replayable(self, body: bytes) -> bytes:
        """Return a request that asks for responses that can be sent back whole."""
        return body

    def refuses_replayable(self, error: bytes) -> bool:
        """Return whether a provider's error, of status 400, refuses what
        ``ask_for_replayable`` added.
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
    def ID_PREFIX(self) -> str: ...  # noqa: N802 - how the ids of its responses begin

    @property
    def TRANSCRIPT(self) -> str: ...  # noqa: N802 - the member of a request that holds its messages

    @property
    def ANSWER_SHAPE(self) -> AnswerShape | None: ...  # noqa: N802 - the places of an answer at which the provider gives ids

    @property
    def REPLAY_RULES(self) -> ReplayRules: ...  # noqa: N802

    def read_request(self, body: bytes) -> RunnerRequest:
        """Return the view of a runner's request. Raises ``UnreadableRequestError``."""

    def build_request(
        self, request: RunnerRequest, catalog: ToolCatalog, additions: Additions
    ) -> RequestVariants:
        """Return the request with the managed tools behind the runner's own.

        Raises ``JsonSpliceError``.
        """

    def add_context(self, request: RunnerRequest, context: str) -> bytes:
        """Return the body of an unmediated request, with text at the end of its system prompt.

        Raises ``JsonSpliceError``.
        """

    def write_request(self, request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
        """Return the body for the provider, with the hidden messages of this turn's
        rounds behind its own.
        """

    def read_response(self, body: bytes, catalog: ToolCatalog) -> ModelResponse:
        """Return the view of a provider's response. Raises ``UnreadableResponseError``."""

    def write_response(
        self, response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
    ) -> bytes:
        """Return the body for the runner: the provider's bytes, with the usage that
        the runner is shown.
        """

    def stream(
        self, body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
    ) -> Iterator[bytes]:
        """Yield a body of ``write_response`` as one well-formed stream of events.

        ``opening``: how it began.
        """

    def write_hidden_rounds(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
        """Return the messages of rounds; ``replayed`` leaves out what was advice
        for one turn only.
        """

    def write_answers(self, answered: Round) -> tuple[bytes, ...]:
        """Return the messages that answer the calls of a round, without the
        response that made them.
        """

    def summarize(self, messages: bytes) -> bytes:
        """Return hidden messages with their calls and how each went, and no more,
        for a request without room for all.
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
        """Return a provider's error body as one line of JSON; None when it is not
        of the dialect's shape.
        """
