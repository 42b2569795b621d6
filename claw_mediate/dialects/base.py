"""The interface of a dialect, and the neutral view of a runner's request."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core.continuity import Evidence
from claw_mediate.core.object_ids import AnswerShape
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.session_id import NO_HINTS, SessionHints
from claw_mediate.core.split import SplitRules
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.tool_choice import chosen_tools
from claw_mediate.core.types import ModelResponse, Round, ToolUse
from claw_mediate.core.weave import NO_WEAVES, Weaves

# Exported: callers catch it as this module's error.
from claw_mediate.dialects.errors import (
    FailedResponseError as FailedResponseError,  # noqa: PLC0414
)
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.dialects.streams import Assembler, OwnOpening, StreamWriter
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
    def reasoning_flows(self) -> bool:
        """True if reasoning may be shown before anything that it leads to.

        False if the provider keeps the response: it would refuse reasoning that comes back alone.
        """
        return self.kept is None or not self.kept.keeps_response

    @property
    def calls_flow(self) -> bool:
        """True if the runner's choice leaves the model no tool but the runner's own.

        Then its calls need not wait. In a conversation that the provider keeps they wait: a call
        that nobody answers would block it.
        """
        chosen = chosen_tools(self.tool_choice)
        return bool(chosen) and chosen.issubset(self.declared_tools) and not self.keeps_rounds

    @property
    def keeps_rounds(self) -> bool:
        """True if the provider keeps every round of the turn.

        Then nothing can be left out, and only what is new is sent.
        """
        return bool(self.conversation)


class WriteRequest(Protocol):
    def __call__(self, tool_use: ToolUse, hidden: Sequence[bytes] = (), /) -> list[bytes]:
        """Return the body for the provider with a use of tools, in pieces that are to be joined.

        ``hidden``: the messages of this turn's rounds, which go after all others. The runner's part
        of the request is parsed and edited once, so that a further round costs no further parse. It
        is in pieces, since not everybody who reads a large body needs all of it.
        """


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

    def unseal(self, closing: ReplyEvent) -> ReplyEvent:
        """Return the end of a piece of reasoning of which nothing that it led to is shown.

        It lacks what a runner would need to send the reasoning back, which the provider would
        refuse.
        """
        return closing

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


type KeepaliveSetting = Literal["openai", "responses", "anthropic"]
"""The end of the setting ``CLLAMA_KEEPALIVE_…`` that says which keepalives a stream has."""


class BuildRequest(Protocol):
    def __call__(
        self,
        request: RunnerRequest,
        catalog: ToolCatalog,
        weaves: Weaves = NO_WEAVES,
        context: str = "",
        /,
    ) -> WriteRequest:
        """Return the writer of the request with the managed tools after the runner's own.

        ``weaves``: the hidden messages of earlier turns, by the index of the runner's message.
        ``context``: text for the end of the system prompt. Raise ``JsonSpliceError``.
        """


class WriteResponse(Protocol):
    def __call__(
        self,
        response: ModelResponse,
        request: RunnerRequest,
        usage: JsonObject,
        /,
        *,
        terminal: bool,
    ) -> bytes:
        """Return the body for the runner: the provider's bytes, with ``usage``."""


class KeepCalls(Protocol):
    def __call__(
        self, response: ModelResponse, catalog: ToolCatalog, count: int, /
    ) -> ModelResponse:
        """Return a response with its first calls only; what stands behind them leaves, too."""


class WriteHiddenRounds(Protocol):
    def __call__(self, rounds: Sequence[Round], /, *, replayed: bool) -> tuple[bytes, ...]:
        """Return the messages of rounds.

        ``replayed``: for a later turn, without the advice that was for one turn only.
        """


class ResponseAnchor(Protocol):
    def __call__(
        self, response: ModelResponse, request: RunnerRequest, /, *, terminal: bool
    ) -> Anchor:
        """Return the anchor by which this response's hidden rounds are found again."""


def _leave_as_it_is(body: bytes) -> bytes:
    return body


def _is_never(_error: bytes) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One provider protocol: its limits, and pure functions over its wire."""

    name: str
    max_tools: int
    id_prefix: str  # The beginning of the ids of its responses
    transcript: str  # The member of a request that holds its messages
    answer_shape: AnswerShape | None
    """The places in an answer at which the provider gives ids."""
    replay_rules: ReplayRules
    split_rules: SplitRules
    """Splits the answer of a live turn again where its rounds ended."""
    keepalive_setting: KeepaliveSetting
    answers_in_items: bool = False
    """True if an answer has items that a runner keeps one by one, and not one message."""

    read_request: Callable[[bytes], RunnerRequest]
    """Returns the view of a runner's request. Raises ``UnreadableRequestError``."""
    build_request: BuildRequest
    add_context: Callable[[RunnerRequest, str], bytes]
    """Returns the body of a request that is not mediated, with text after its system prompt.

    Raises ``JsonSpliceError``.
    """

    read_response: Callable[[bytes, ToolCatalog], ModelResponse]
    """Returns the view of a provider's response. Raises ``UnreadableResponseError``."""
    keep_calls: KeepCalls
    write_response: WriteResponse
    write_hidden_rounds: WriteHiddenRounds
    write_answers: Callable[[Round], tuple[bytes, ...]]
    """Returns the messages that answer the calls of a round, without the response itself."""
    summarize: Callable[[bytes], bytes]
    """Returns shorter hidden messages, for a request without room for all.

    They say which calls were made, and how each ended.
    """
    response_anchor: ResponseAnchor
    error_body: Callable[[bytes], bytes | None]
    """Returns a provider's error body as one line of JSON; None if it has not the shape."""

    tell: Callable[[bytes, RunnerRequest], Iterator[ReplyEvent]]
    """Returns the events of a body of ``write_response``."""
    writer: Callable[[RunnerRequest, OwnOpening], StreamWriter]
    """Returns the writer of a new stream."""
    assembler: Callable[[], Assembler]
    """Returns what puts a provider's stream together."""

    without_stream_usage: Callable[[bytes], bytes] = _leave_as_it_is
    """Returns a request for a stream that does not ask for its usage."""
    refuses_stream_usage: Callable[[bytes], bool] = _is_never
    """Returns True if an error of status 400 or 422 is about the usage that was asked for."""
