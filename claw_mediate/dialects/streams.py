"""The interfaces of streams: how a provider's is put together, and how a runner's is written.

Both speak ``ReplyEvent``. Buffered answers are told as events of their body, so that each protocol
has one writer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, Protocol

import msgspec

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.errors import FailedResponseError

type Keepalive = Literal["comment", "native"]


class OwnOpening(msgspec.Struct, frozen=True):
    """The head of a stream as the proxy writes it before any reply has given one.

    A keepalive that must be an event needs it, and an error that comes first.
    """

    id: str
    model: str
    created: int  # Seconds since 1970


NO_MINTED_IDS: Final[Mapping[str, str]] = MappingProxyType({})
"""``StreamWriter.minted`` of a protocol whose content has no ids."""
NO_OPENING: Final = OwnOpening("", "", 0)
"""The opening of a stream that never needs one of ours."""


class StreamWriter(Protocol):
    """Writes one stream for a runner, with one lifecycle, though it may tell of several replies.

    It owns everything that counts over the whole stream: the id, indexes, sequence numbers.
    """

    @property
    def id(self) -> str:
        """Return the id that the stream has shown; "" before it has shown one."""

    @property
    def minted(self) -> Mapping[str, str]:
        """Return the ids of items that the stream made up, each with the provider's; "" for none.

        Protocols whose content has no ids have none.
        """

    def begin_reply(self) -> None:
        """Note that the next events are those of another reply.

        Its pieces come after all that were shown before, and its opening is not written again.
        """

    def write(self, event: ReplyEvent) -> bytes:
        """Return what an event of the reply adds to the stream; b"" if nothing."""

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that only says that the turn is alive.

        A native one that comes before the reply's own id is known shows an id of ours, which stays.
        """

    def error(self, error: bytes) -> bytes:
        """Return the events of an error that comes after the headers. ``error`` is a body."""

    def answer(self, body: bytes) -> bytes:
        """Return the body of the last reply with all that the stream has shown, over all replies.

        It is what ``stream: false`` would have brought if one reply had said everything, under the
        id of the stream. Told as a stream, it has the same pieces.
        """


class Assembler(Protocol):
    """Puts one streamed reply together, while its events are passed on."""

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        """Return what an event of the provider's stream tells.

        Keepalives tell nothing. Raise ``UnreadableResponseError`` for an event that no strict
        client would read, and for a reply with more parts than a body may have.
        """

    @property
    def is_whole(self) -> bool:
        """True if the reply has come to its own end, so that a clean end of stream is no failure.

        More content may follow nevertheless; the reply ends with its stream.
        """

    @property
    def is_over(self) -> bool:
        """True if the reply is whole, and a strict client reads no further.

        It does not wait for the end of the stream then, and how the stream ends is no matter.
        """

    @property
    def error(self) -> FailedResponseError | None:
        """Return the failure that the stream told of; None if there was none.

        Its body has the form of an error body of this protocol.
        """

    def body(self) -> bytes:
        """Return the body that ``stream: false`` would have brought.

        Texts and arguments are byte for byte those of the stream. Raise
        ``UnreadableResponseError`` for a reply that is not whole.
        """

    def usage(self) -> bytes | None:
        """Return the usage that the stream has told of so far, as JSON; None if there was none."""


class ReplySink(Protocol):
    """Takes the replies of a turn while they come, and shows the runner what it may see."""

    def begin(self) -> Assembler:
        """Return what puts the next reply together, of which nothing is shown yet.

        Called for each attempt at a reply. None is made after one that has shown something.
        """

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Show what may be shown of these events of the reply."""

    @property
    def is_far_ahead(self) -> bool:
        """True if every runner is so far behind that the provider is to be read no further."""

    async def wait_for_runner(self) -> None:
        """Wait until a runner is not far behind."""

    @property
    def has_shown(self) -> bool:
        """True if the runner has something of this reply, so that it can't be asked for again."""


class StreamedDialect[R](Protocol):
    """A dialect (``base.Dialect``), as far as its streams go; ``R`` is a runner's request."""

    @property
    def tell(self) -> Callable[[bytes, R], Iterator[ReplyEvent]]: ...

    @property
    def writer(self) -> Callable[[R, OwnOpening], StreamWriter]: ...


def write_stream[R](
    dialect: StreamedDialect[R], body: bytes, request: R, own: OwnOpening = NO_OPENING
) -> Iterator[bytes]:
    """Yield a body of ``write_response`` as one well-formed stream of events.

    ``own`` is not needed for it: a body tells how its stream begins.
    """
    writer = dialect.writer(request, own)
    return filter(None, map(writer.write, dialect.tell(body, request)))
