"""The interfaces of streams: how a provider's is put together, and how a runner's is written.

Both speak ``ReplyEvent``. Buffered answers are told as events of their body, so that each protocol
has one writer.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.base import FailedResponseError

type Keepalive = Literal["comment", "native"]


class StreamWriter(Protocol):
    """Writes one stream for a runner, with one lifecycle.

    It owns everything that counts over the whole stream: the id, indexes, sequence numbers.
    """

    @property
    def id(self) -> str:
        """Return the id that the stream has shown; "" before it has shown one."""

    def write(self, event: ReplyEvent) -> bytes:
        """Return what an event of the reply adds to the stream; b"" if nothing."""

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that only says that the turn is alive.

        A native one that comes before the reply's own id is known shows an id of ours, which stays.
        """

    def error(self, error: bytes) -> bytes:
        """Return the events of an error that comes after the headers. ``error`` is a body."""


class Assembler(Protocol):
    """Puts one streamed reply together, while its events are passed on."""

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        """Return what an event of the provider's stream tells.

        Keepalives and comments tell nothing. Raise ``UnreadableResponseError`` for an event that no
        strict client would read, and for a reply with more than a body may have.
        """

    @property
    def is_whole(self) -> bool:
        """True if the reply has come to its own end, so that nothing more is waited for."""

    @property
    def error(self) -> FailedResponseError | None:
        """Return the failure that the stream told of; None if there was none."""

    def body(self) -> bytes:
        """Return the body that ``stream: false`` would have brought.

        Texts and arguments are byte for byte those of the stream. Raise
        ``UnreadableResponseError`` for a reply that is not whole.
        """

    def usage(self) -> bytes | None:
        """Return the usage that the stream has told of so far, as JSON; None if there was none."""
