"""The turn journal: its port and its records (docs/spec/mediation.md section 5).

begin            running    a process runs the turn
record_response             a good response of the model; it is never asked for again
record_intent               a call that may write is about to leave; from here on its outcome is
unknown until record_result               its result is known; it is never run again abandon
abandoned  the runner left while a write is in flight; every retry waits for it end
answered   there is an answer, not yet delivered; the steps that led to it are deleted failed
there is none mark_delivered   done       the whole answer has left the process
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from claw_state.lease import Owner

RESUME_SECONDS = (
    600.0  # Time in which an equal request resumes a turn that failed, was cut off or still runs
)
LEASE_LOST = "this turn is not in the journal, or goes on in another process"
type TurnState = Literal["running", "abandoned", "failed", "answered", "done"]
type AttemptKind = Literal["first", "resumed", "journal_unavailable"]
"""The attempt at a turn: the first; one that resumes an earlier one; unknown,
because the journal could not be read.
"""
MAX_CANDIDATES = (
    256  # Turns with equal earlier messages whose last messages are compared: the latest
)
_MESSAGE_DIGEST = re.compile(r"[1-9][0-9]{0,11}:[0-9a-f]{64}")
_NEW_WORD = re.compile(r"\W|_")
_NOTE = re.compile(
    r"[^\S\r\n]*[\r\n\[<({]"
)  # A new line or a bracket, as OpenClaw begins ``[Queued user message …]``


class StoredResponse(msgspec.Struct, frozen=True, array_like=True):
    """The answer that a turn ended with."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """The parts of a request by which its retries are recognized.

    ``request``: the digest of all of it. ``earlier``: the digest of all messages but the last.
    ``last_message``: the text of the last one. ``idempotency_key``: the digest of the runner's
    ``Idempotency-Key``, which may hold anything. ``alone``: there is no earlier message and no
    named session, so nothing else identifies the conversation. ``latest_turn``: the last turn of
    the conversation that the provider keeps; "" where there is none.
    """

    request: str
    earlier: str
    last_message: str
    idempotency_key: str
    alone: bool = False
    latest_turn: str = ""
    message_digest: str = ""
    """The length and digest of the last message: it may be 60 MB, and nobody should
    read it in the state.
    """

    def __post_init__(self) -> None:
        """Make the digest here, where a long message is read beside the event loop, and once."""
        end = 0 if self.message_digest else len(self.last_message.rstrip())
        if end:
            digest = hashlib.sha256(self.last_message[:end].encode()).hexdigest()
            object.__setattr__(self, "message_digest", f"{end}:{digest}")

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """The values to store."""
        return self.request, self.earlier, self.message_digest, self.idempotency_key

    def openclaw_retry_of(self, attempts: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of earlier attempts (``message_digest``, state) that this
        request may repeat with a note appended.

        OpenClaw appends a note to the last message when it tries again. So the message must be
        equal, or begin with the earlier one and not continue within a word. If the request is
        ``alone``, or would get a finished answer, it must not continue within a line either ("Buy",
        "Buy me a car"), except for a note in brackets.
        """
        ends = {
            digest: int(digest.partition(":")[0])
            for digest, _ in attempts
            if _MESSAGE_DIGEST.fullmatch(digest)
        }
        prefixes, running, at = set(), hashlib.sha256(), 0
        for digest, length in sorted(ends.items(), key=lambda item: item[1]):
            if length > len(self.last_message):
                break
            running.update(self.last_message[at:length].encode())
            at = length
            if digest == f"{length}:{running.hexdigest()}":
                prefixes.add(digest)
        return {
            (digest, state)
            for digest, state in attempts
            if digest in prefixes and self._is_note(ends[digest], state)
        }

    def _is_note(self, end: int, state: str) -> bool:
        appended = self.last_message[end:]
        pattern = _NOTE if self.alone or state == "answered" else _NEW_WORD
        return not appended.strip() or pattern.match(appended) is not None


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """An earlier attempt at the same turn. ``is_alive``: another mediator holds it now."""

    turn_id: str
    state: TurnState
    is_alive: bool
    idempotency_key: str
    response: StoredResponse | None
    owner: str
    seen: float


def holds_lease(me: Owner, state: str, owner: str, silent: float, *, altered: bool = False) -> bool:
    """Return True if a retry must wait for the turn's owner, given the seconds
    since it was last heard of.

    Of a running turn: another mediator. Of an abandoned one, and for an ``altered`` request also of
    an answered one: any mediator, this one too, since its answer may be on its way to another
    client.
    """
    match state:
        case "running":
            return me.may_be_held_elsewhere(owner, silent)
        case "abandoned":
            return me.may_be_held(owner, silent)
        case "answered":
            return altered and me.may_be_held(owner, silent)
        case _:
            return False


class Journal(Protocol):
    """The turns of all agents.

    Every method raises ``StoreError`` when the journal can't be read or written.
    """

    async def find(self, agent_id: str, fingerprint: RequestFingerprint) -> PreviousAttempt | None:
        """Return the latest attempt at this request, else one that failed or lost
        its answer and that this one repeats.
        """

    async def is_alive(self, turn_id: str) -> bool:
        """Return True if another mediator holds the turn now."""

    async def begin(self, turn_id: str, agent_id: str, fingerprint: RequestFingerprint) -> bool:
        """Begin a new turn; return False if another process just began one for this request."""

    async def resume(self, past: PreviousAttempt, fingerprint: RequestFingerprint) -> bool:
        """Take over a turn that failed or whose process died; return False if
        another process was faster.
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

        It must not leave if this raises, as it does when the lease is lost.
        """

    async def record_result(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        """Record the result of a call."""

    async def call_record(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        """Return the latest record of a call."""

    async def abandon(self, turn_id: str) -> None:
        """Record that the runner left while a write is in flight: until the turn
        ends, every retry waits for it.
        """

    async def end(self, turn_id: str, response: StoredResponse | None) -> None:
        """Record the turn's answer, and delete its steps; or, without one, that it failed."""

    async def mark_delivered(self, turn_id: str) -> None:
        """Record that the whole answer has left the process."""

    async def close(self) -> None: ...
