"""The lookup of retries: a runner that sends a request again finds its turn (docs/spec/mediation.md section 5).

the same request, within 10 minutes               what happens
────────────────────────────────────────────────  ─────────────────────────────────────────────────────
its turn runs in this process                     both get the answer of the one turn (``registry``)
its turn runs in another process                  waits for it, then one of the rows below
its runner left, and a write is in flight         the same, also with words behind the last ones
its turn has an answer, not yet delivered         CompletedTurn: that answer; with words behind the last ones
                                                  only once nobody is delivering it
its turn is done, and the runner says it retries  CompletedTurn: that answer
its turn failed, or its process died              Resume: what it did is replayed, not done again
anything else                                     None: a new turn
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core.continuity import is_resent
from claw_mediate.core.http import Request
from claw_mediate.core.session_id import read_session_id
from claw_mediate.dialects.base import RunnerRequest
from claw_state.journal import Journal, PreviousAttempt, RequestFingerprint, StoredResponse
from claw_state.url import StoreError

_POLL_SECONDS = 0.2
_RETRY_HEADER = "x-stainless-retry-count"


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """An earlier turn with an answer. ``awaited``: it ran in another process until just now."""

    turn_id: str
    response: StoredResponse
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """A turn that goes on where it was. Without steps the model had not answered, and there is nothing to replay."""

    turn_id: str
    has_steps: bool


def fingerprint(request: Request, view: RunnerRequest, redactor: Redactor) -> RequestFingerprint:
    """Return the digests by which a request is recognised when it comes again.

    The path is part of them, since another protocol could not read what was recorded in this one; and the session, where it is
    named, since equal words in two conversations are two turns.
    """
    earlier, named = view.evidence.earlier, read_session_id(request.headers, view.session_hints)
    scope = request.normalized_path, named
    words = redactor.text(next(filter(is_resent, reversed(view.user_texts)), ""))  # it is stored, and may hold anything
    key = (request.header("idempotency-key") or [""])[0]
    return RequestFingerprint(
        _digest(*scope, body=request.body),
        _digest(*scope, earlier),
        _encodable(words),
        _digest(key) if key else "",
        alone=not (earlier or named),
    )


def is_retry(request: Request) -> bool:
    """Return whether the runner's SDK says that it tries again."""
    return any(count.isdecimal() and int(count) > 0 for count in request.header(_RETRY_HEADER))


class RetryLookup:
    """Looks in the journal for earlier attempts at a request. Its methods raise ``StoreError``."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find(
        self, agent_id: str, turn_id: str, known_by: RequestFingerprint, *, says_retry: bool
    ) -> CompletedTurn | Resume | None:
        """Find the attempt to go on with; if there is none, enter a new turn, ``turn_id``, and return None."""
        awaited = ""
        while True:
            past = await self._journal.find(agent_id, known_by)
            if past is not None and past.is_alive:
                awaited = past.turn_id
                await asyncio.sleep(_POLL_SECONDS)
            elif (past is not None and past.response is not None) and (
                past.turn_id == awaited or _is_wanted(past, known_by, says_retry=says_retry)
            ):
                return CompletedTurn(past.turn_id, past.response, past.turn_id == awaited)
            elif past is not None and past.state in ("failed", "running", "abandoned"):
                if (resume := await self._resume(past, known_by)) is not None:
                    return resume
                await asyncio.sleep(_POLL_SECONDS)
            elif await self._journal.begin(turn_id, agent_id, known_by):
                return None
            else:
                await asyncio.sleep(_POLL_SECONDS)

    async def _resume(self, past: PreviousAttempt, known_by: RequestFingerprint) -> Resume | None:
        """Take over a turn; return None if it goes on elsewhere by now."""
        try:
            if not await self._journal.resume(past, known_by):
                return None
            return Resume(past.turn_id, has_steps=await self._journal.response(past.turn_id, 1) is not None)
        except BaseException:
            # The runner has gone, or the journal: a turn that seems to run here would be found by no other request.
            with suppress(StoreError):
                await self._journal.end(past.turn_id, None)
            raise


def _is_wanted(past: PreviousAttempt, known_by: RequestFingerprint, *, says_retry: bool) -> bool:
    has_same_key = bool(known_by.idempotency_key) and known_by.idempotency_key == past.idempotency_key
    return past.state == "answered" or says_retry or has_same_key


def _digest(*parts: str, body: bytes = b"") -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass") + b"\0" + body).hexdigest()


def _encodable(text: str) -> str:
    """Return text that has a digest: what a runner sends may hold lone surrogates."""
    return text.encode(errors="replace").decode()
