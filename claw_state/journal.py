"""The turn journal: its port and its records (docs/spec/mediation.md section 5).

method           state after  what is recorded
begin            running      a process runs the turn
record_response  running      a good response of the model; it is never asked for again
record_intent    running      a call that may write is about to leave; its outcome is unknown
record_result    running      the outcome of that call; it is never run again
abandon          abandoned    the runner left while a write is in flight; every retry waits
end              answered     there is an answer, not yet delivered; its steps are deleted
end              failed       there is no answer
mark_delivered   done         the whole answer has left the process
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from claw_state.lease import LeaseOwner

RESUME_SECONDS = 600.0
"""Time in which an equal request resumes a turn that failed, was cut off or still runs."""
LEASE_LOST = "this turn is not in the journal, or goes on in another process"

type TurnState = Literal["running", "abandoned", "failed", "answered", "done"]
type AttemptKind = Literal["first", "resumed", "journal_unavailable"]
"""The kind of an attempt at a turn.

``resumed``: it goes on with an earlier attempt. ``journal_unavailable``: the journal could not be
read, so nobody knows.
"""

MAX_CANDIDATES = 256
"""The number of turns with equal earlier messages whose last message is compared: the latest."""
_MESSAGE_DIGEST = re.compile(r"[1-9][0-9]{0,11}:[0-9a-f]{64}")
_NEW_WORD = re.compile(r"\W|_")
_NOTE = re.compile(r"[^\S\r\n]*[\r\n\[<({]")
"""A new line or a bracket: OpenClaw begins its note with ``[Queued user message …]``."""


class StoredResponse(msgspec.Struct, frozen=True, array_like=True):
    """The answer that a turn ended with."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """The parts of a request by which its retries are recognized."""

    request: str
    """The digest of all of it."""
    earlier: str
    """The digest of all messages before the last one."""
    last_message: str
    """The text of the last message."""
    idempotency_key: str
    """The digest of the runner's ``Idempotency-Key``, which may be any text."""
    alone: bool = False
    """True if nothing but the last message identifies the conversation.

    There is no earlier message, and no named session.
    """
    latest_turn: str = ""
    """The last turn of the conversation at the provider; "" if the request names none."""
    message_digest: str = ""
    """The length and digest of the last message, as ``<length>:<sha256>``.

    The text itself is not stored: it may be 60 MB, and nobody should read it in the state.
    """

    def __post_init__(self) -> None:
        """Compute the digest here, once: long messages are fingerprinted outside the event loop."""
        if self.message_digest:
            return

        end = len(self.last_message.rstrip())
        if end:
            digest = hashlib.sha256(self.last_message[:end].encode()).hexdigest()
            object.__setattr__(self, "message_digest", f"{end}:{digest}")

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """The values to store."""
        return self.request, self.earlier, self.message_digest, self.idempotency_key

    def openclaw_retry_of(self, attempts: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the earlier attempts that this request may repeat with a note appended.

        An attempt is a pair of ``message_digest`` and state.

        OpenClaw appends a note to the last message when it tries again. So this message must equal
        the earlier one, or begin with it and go on with a new word. If the request is ``alone``, or
        would get a finished answer, it must go on with a new line or a bracket: "Buy me a car" does
        not repeat "Buy".
        """
        lengths: dict[str, int] = {}
        for digest, _ in attempts:
            if _MESSAGE_DIGEST.fullmatch(digest):
                lengths[digest] = int(digest.partition(":")[0])

        # The shortest first, so that one pass over this message gives the digests of all prefixes.
        prefixes: set[str] = set()
        running = hashlib.sha256()
        hashed = 0
        for digest, length in sorted(lengths.items(), key=lambda item: item[1]):
            if length > len(self.last_message):
                break

            running.update(self.last_message[hashed:length].encode())
            hashed = length
            if digest == f"{length}:{running.hexdigest()}":
                prefixes.add(digest)

        return {
            (digest, state)
            for digest, state in attempts
            if digest in prefixes and self._is_note(lengths[digest], state)
        }

    def _is_note(self, end: int, state: str) -> bool:
        """Return whether the text from ``end`` on may be OpenClaw's note."""
        appended = self.last_message[end:]
        pattern = _NOTE if self.alone or state == "answered" else _NEW_WORD
        return not appended.strip() or pattern.match(appended) is not None


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """An earlier attempt at the same turn."""

    turn_id: str
    state: TurnState
    is_alive: bool  # True if a retry must wait for the mediator that holds it
    idempotency_key: str
    response: StoredResponse | None
    owner: str  # ``LeaseOwner.name`` of that mediator
    seen: float  # The last sign of life of that mediator


def holds_lease(
    me: LeaseOwner, state: str, owner: str, silent: float, *, altered: bool = False
) -> bool:
    """Return True if a retry must wait for the turn's owner.

    ``silent``: the seconds since the owner was last heard of. ``altered``: the request is not equal
    to that of the turn.
    """
    match state:
        case "running":
            # A retry joins a turn that runs in this process, and waits for no lease.
            return me.may_be_held_elsewhere(owner, silent)
        case "abandoned":
            return me.may_be_held(owner, silent)
        case "answered":
            # The answer may still be on its way to the client that asked for it, even from here. An
            # equal request gets it all the same; one with a note appended waits.
            return altered and me.may_be_held(owner, silent)
        case _:
            return False


class Journal(Protocol):
    """The turns of all agents.

    Every method raises ``StoreError`` if the journal can't be read or written.
    """

    async def find(self, agent_id: str, fingerprint: RequestFingerprint) -> PreviousAttempt | None:
        """Return the latest attempt at an equal request.

        Else return one without a delivered answer that this request repeats with a note appended.
        """

    async def is_alive(self, turn_id: str) -> bool:
        """Return True if another mediator holds the turn now."""

    async def begin(self, turn_id: str, agent_id: str, fingerprint: RequestFingerprint) -> bool:
        """Begin a new turn; return False if another process just began one for this request."""

    async def resume(self, past: PreviousAttempt, fingerprint: RequestFingerprint) -> bool:
        """Take over a turn that failed, or whose process died.

        Return False if another process was faster.
        """

    async def renew_leases(self, turn_ids: Collection[str]) -> None:
        """Record that these turns still run here."""

    async def record_response(self, turn_id: str, round_number: int, body: bytes) -> None:
        """Record the model's good response of this round."""

    async def response(self, turn_id: str, round_number: int) -> bytes | None:
        """Return the model's recorded response of this round."""

    async def record_intent(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        """Record that a call is about to leave.

        If this raises, as it does when the lease is lost, the call must not leave.
        """

    async def record_result(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        """Record the result of a call."""

    async def call_record(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        """Return the latest record of a call."""

    async def abandon(self, turn_id: str) -> None:
        """Record that the runner left while a write is in flight.

        Every retry waits until the turn ends.
        """

    async def end(self, turn_id: str, response: StoredResponse | None) -> None:
        """Record the turn's answer, and delete its steps; or, without one, that it failed."""

    async def mark_delivered(self, turn_id: str) -> None:
        """Record that the whole answer has left the process."""

    async def close(self) -> None: ...
