"""What can be asked of a journal of turns, and what it knows (spec/mediation.md section 5). ``journal`` keeps one in SQLite,
``valkey_journal`` one on a server that several proxies share.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from claw_state.lease import Owner

RESUME_SECONDS = 600.0
"""Seconds in which the same request resumes a turn that failed, was cut off or still runs."""
LEASE_LOST = "this turn is not in the journal, or goes on in another process"
type TurnState = Literal["running", "abandoned", "failed", "answered", "done"]
type Attempt = Literal["first", "resumed", "unknown"]
"""At a turn: the first one; one that goes on where another was; one of which the journal, unread, could not tell."""
MAX_CANDIDATES = 256
"""Of turns whose earlier messages are equal, those whose last words are looked at: the latest."""
_WORDS = re.compile(r"[1-9][0-9]{0,11}:[0-9a-f]{64}")
_NEW_WORD = re.compile(r"\W|_")
_NOTE = re.compile(r"[^\S\r\n]*[\r\n\[<({]")
"""A new line, or a bracket: as OpenClaw puts ``[Queued user message …]`` there."""


class StoredResponse(msgspec.Struct, frozen=True, array_like=True):
    """The answer that a turn ended with."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """What a request is known by: all of it (``request``); and, for runners that alter it when they try again, all but the last
    words (``earlier``) and those words (``said``). ``attempt``: the digest of the runner's ``Idempotency-Key``, which may hold
    anything. ``alone``: nothing came before those words and no session is named, so that nothing else tells which
    conversation it is.
    """

    request: str
    earlier: str
    said: str
    attempt: str
    alone: bool = False

    @property
    def words(self) -> str:
        """What is kept of ``said``: its length and digest. It may be 30 MB, and is nobody's to read."""
        end = len(self.said.rstrip())
        return f"{end}:{hashlib.sha256(self.said[:end].encode()).hexdigest()}" if end else ""

    def goes_on_from(self, attempts: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Of earlier attempts (their ``words`` and state) those whose words are these, or these with something behind them that
        is no part of them: it does not go on within a word, and where the request is ``alone``, or would be given an answer as
        it is, not within a line ("Buy", "Buy me a car"), but for a note in brackets.
        """
        ends = {words: int(words.partition(":")[0]) for words, _ in attempts if _WORDS.fullmatch(words)}
        begins, digest, at = set(), hashlib.sha256(), 0
        for words, length in sorted(ends.items(), key=lambda one: one[1]):
            if length > len(self.said):
                break
            digest.update(self.said[at:length].encode())
            at = length
            if words == f"{length}:{digest.hexdigest()}":
                begins.add(words)
        return {(words, state) for words, state in attempts if words in begins and self._follows(ends[words], state)}

    def _follows(self, end: int, state: str) -> bool:
        more = self.said[end:]
        return not more.strip() or (_NOTE if self.alone or state == "answered" else _NEW_WORD).match(more) is not None


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """An earlier attempt at the same turn. ``alive``: another process is at it now."""

    turn_id: str
    state: TurnState
    alive: bool
    attempt: str
    given: StoredResponse | None
    owner: str
    seen: float


def holds_lease(me: Owner, state: str, owner: str, silent: float, *, altered: bool = False) -> bool:
    """Whether somebody else is at a turn; or anybody, this mediator too, at the last write of one that its runner left, or, for
    an ``altered`` request, at handing over its answer: to whom that one went, it would be somebody else's.
    """
    match state:
        case "running":
            return me.may_be_at(owner, silent)
        case "abandoned":
            return me.believes(owner, silent)
        case "answered":
            return altered and me.believes(owner, silent)
        case _:
            return False


class Journal(Protocol):
    """The turns of all agents. Every method raises ``StoreError`` when the journal can't be read or written."""

    async def find(self, agent_id: str, asked: RequestFingerprint) -> PreviousAttempt | None:
        """The latest attempt at this request; else one that failed, or lost its answer, that this one goes on with."""

    async def begin(self, turn_id: str, agent_id: str, asked: RequestFingerprint) -> bool:
        """A new turn; False: another process just began it."""

    async def resume(self, past: PreviousAttempt, asked: RequestFingerprint) -> bool:
        """A turn that failed, or whose process died, goes on here; False: it goes on elsewhere by now."""

    async def alive(self, turn_ids: Collection[str]) -> None:
        """These turns still run here."""

    async def replied(self, turn_id: str, round_number: int, body: bytes) -> None:
        """A model's good answer of this round."""

    async def reply(self, turn_id: str, round_number: int) -> bytes | None:
        """What the model said in this round."""

    async def intends(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        """A call is about to leave; it must not, when this fails: as it does where the turn went on elsewhere meanwhile."""

    async def answered(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        """What came of a call."""

    async def answer(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        """The latest record of a call; None where there is none."""

    async def abandoned(self, turn_id: str) -> None:
        """The runner has left while a write is on its way: until the turn ends it is waited for, whatever is asked again."""

    async def ended(self, turn_id: str, given: StoredResponse | None) -> None:
        """The turn has its answer, which is all that is kept of it from then on; or failed."""

    async def handed(self, turn_id: str) -> None:
        """The whole answer went to the runner's connection."""

    async def close(self) -> None: ...
