"""A runner that tries again finds its turn (spec/mediation.md section 5).

the same request, within 10 minutes               what happens
────────────────────────────────────────────────  ─────────────────────────────────────────────────────
its turn runs in this process                     Joined: both get the answer of the one turn
its turn runs in another process                  waits for it, then one of the rows below
its runner left, and a write is on its way        the same, also with words behind the last ones
its turn has an answer, not yet handed over       Known: that answer; with words behind the last ones only once
                                                  nobody is handing it over
its turn is done, and the runner says it retries  Known: that answer
its turn failed, or its process died              Resumed: what it did is played, not done again
anything else                                     None: a new turn
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core.continuity import is_kept
from claw_mediate.core.http import Request
from claw_mediate.core.session_id import session
from claw_mediate.dialects.base import RunnerRequest
from claw_state.journal import Journal, PreviousAttempt, RequestFingerprint, StoredResponse
from claw_state.url import StoreError

_LOOK_AGAIN_SECONDS = 0.2
_RETRIED = "x-stainless-retry-count"


@dataclass(frozen=True, slots=True)
class Completed:
    """There is an answer. ``awaited``: the turn ran in another process, until just now."""

    turn_id: str
    given: StoredResponse
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """The turn goes on where it was. ``acted``: the model had answered; what did less has nothing to play."""

    turn_id: str
    acted: bool


def fingerprint(request: Request, view: RunnerRequest, redactor: Redactor) -> RequestFingerprint:
    """What a request is known by. By its path too: another protocol could not read what was recorded in this one; and by its
    session, where that is named: equal words in two conversations are two turns.
    """
    earlier, named = view.evidence.earlier, session(request.headers, view.session)
    where = request.meant_path, named
    said = redactor.text(next(filter(is_kept, reversed(view.said)), ""))  # it is kept, and a runner may say anything
    key = (request.header("idempotency-key") or [""])[0]
    return RequestFingerprint(
        _digest(*where, body=request.body),
        _digest(*where, earlier),
        _sound(said),
        _digest(key) if key else "",
        alone=not (earlier or named),
    )


def _digest(*parts: str, body: bytes = b"") -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass") + b"\0" + body).hexdigest()


class RetryLookup:
    """What the journal knows of a request. Raises ``StoreError``."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find(
        self, agent_id: str, turn_id: str, what: RequestFingerprint, *, retries: bool
    ) -> Completed | Resume | None:
        """``turn_id``: of a new turn, which is begun where there is none to go on with."""
        awaited = ""
        while True:
            past = await self._journal.find(agent_id, what)
            if past is not None and past.is_alive:
                awaited = past.turn_id
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            elif (past is not None and past.response is not None) and (
                past.turn_id == awaited or _is_meant(past, what, retries=retries)
            ):
                return Completed(past.turn_id, past.response, past.turn_id == awaited)
            elif past is not None and past.state in ("failed", "running", "abandoned"):
                if (resumed := await self._resumed(past, what)) is not None:
                    return resumed
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            elif await self._journal.begin(turn_id, agent_id, what):
                return None
            else:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _resumed(self, past: PreviousAttempt, what: RequestFingerprint) -> Resume | None:
        """None: it goes on elsewhere by now."""
        try:
            if not await self._journal.resume(past, what):
                return None
            return Resume(past.turn_id, acted=await self._journal.response(past.turn_id, 1) is not None)
        except BaseException:
            # The runner has gone, or the journal: a turn that seems to run here would be found by no other words.
            with suppress(StoreError):
                await self._journal.end(past.turn_id, None)
            raise


def is_retry(request: Request) -> bool:
    """Whether the runner's SDK says that it tries again."""
    return any(count.isdecimal() and int(count) > 0 for count in request.header(_RETRIED))


def _sound(text: str) -> str:
    """Text that has a digest: what a runner sends may hold halves of characters."""
    return text.encode(errors="replace").decode()


def _is_meant(past: PreviousAttempt, what: RequestFingerprint, *, retries: bool) -> bool:
    return (
        past.state == "answered"
        or retries
        or bool(what.idempotency_key and what.idempotency_key == past.idempotency_key)
    )
