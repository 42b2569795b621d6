"""What a dialect provides, and the neutral view of a runner's request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from claw_contract.base import JsonObject
from claw_mediate.catalog import Catalog
from claw_mediate.model import Reply, Round
from claw_mediate.talk import ToolUse


class UnreadableRequestError(ValueError):
    """The runner's body is not a request of this dialect. The message is for the runner, and is one sentence."""


class UnreadableReplyError(ValueError):
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
    anchors: Mapping[int, str] = field(default_factory=dict)
    """Index in ``messages`` → the anchor of the assistant message there (spec section 7)."""


class Dialect(Protocol):
    """One provider protocol. Modules satisfy it."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def MOST_TOOLS(self) -> int: ...  # noqa: N802

    def read_request(self, body: bytes) -> RunnerRequest:
        """Raises ``UnreadableRequestError``."""

    def offer(self, request: RunnerRequest, catalog: Catalog, woven: Mapping[int, bytes]) -> Mapping[ToolUse, bytes]:
        """The request with the managed tools, once for each use of tools; ``woven``: hidden messages by index."""

    def write_request(self, offered: bytes, rounds: Sequence[Round]) -> bytes:
        """The offered request with the hidden rounds behind its messages."""

    def read_reply(self, body: bytes, catalog: Catalog) -> Reply:
        """Raises ``UnreadableReplyError``."""

    def write_reply(self, reply: Reply, usage: JsonObject, *, terminal: bool) -> bytes:
        """The response for the runner: upstream's bytes, with the usage of the whole turn."""

    def stream(self, body: bytes, *, include_usage: bool) -> Iterator[bytes]:
        """A response as one well-formed stream of events."""

    def hidden_messages(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
        """The messages of rounds; ``replayed`` leaves out what was advice for one turn only."""

    def reply_anchor(self, reply: Reply, request: RunnerRequest) -> str:
        """The anchor under which this reply's hidden rounds are found again."""

    def keepalive(self, note: str) -> bytes:
        """An event that says that the turn is alive, and nothing else."""

    def stream_error(self, error: bytes) -> bytes:
        """An error that comes after the headers."""

    def error_body(self, body: bytes) -> bytes | None:
        """A provider's error body as one line of JSON; None when it is not of the dialect's shape."""
