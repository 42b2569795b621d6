"""The lookup of retries: a runner that sends a request again finds its turn.

The rules are in docs/spec/mediation.md section 5.

    the same request, within 10 minutes     what happens
    ──────────────────────────────────────  ────────────────────────────────────────────────────
    its turn runs in this process           both get the answer of the one turn (``registry``)
    its turn runs in another process        this request waits (``late_answer``), then one of the
                                              rows below
    its runner left, a write is in flight   the same, also with words after the last ones
    its turn has an answer that was not     CompletedTurn: that answer, also while it waits in the
      delivered yet                           buffer of another connection; with words after the
                                              last ones, only once nobody is delivering it
    its turn is done, and the runner says   CompletedTurn: that answer
      that it retries
    it ends with items of an answer that    CompletedTurn: the rest of that answer
      was cut off
    its turn failed, or its process died    Resume: what it did is replayed, not done again
    anything else                           None: a new turn

In a conversation that the provider keeps, equal words are sent again and again. So a turn that a
later turn followed is found only by a runner that says it retries: it gets that turn's answer. A
turn that failed after a step is "overtaken" when a later turn was added to its conversation: it can
be neither resumed nor restarted, because it may have written.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core.continuity import is_resent
from claw_mediate.core.http import Request
from claw_mediate.core.session_id import read_session_id
from claw_mediate.core.user_words import own_words, without_reminders
from claw_mediate.dialects.base import RunnerRequest
from claw_state.journal import Journal, PreviousAttempt, RequestFingerprint, StoredResponse
from claw_state.url import StoreError

POLL_SECONDS = 0.2
_RETRY_HEADER = "x-stainless-retry-count"
_ABOVE_0 = re.compile("0*[1-9][0-9]*")  # int() refuses thousands of digits
_RESUMABLE = ("failed", "running", "abandoned")
"""States of a turn that did not end, and that no process is at any more."""


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """An earlier turn with an answer. ``awaited``: it ran in another process until just now."""

    turn_id: str
    response: StoredResponse
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """A turn that goes on where it was.

    Without steps the model had not answered, and there is nothing to replay.
    """

    turn_id: str
    has_steps: bool


def fingerprint(request: Request, view: RunnerRequest, redactor: Redactor) -> RequestFingerprint:
    """Return the digests by which a request is recognised when it comes again.

    The path is part of them, since another protocol could not read what was recorded in this one;
    and the session, where it is named, or what the provider keeps of it, since equal words in two
    conversations are two turns.
    """
    earlier = view.evidence.earlier
    scope = _scope(request, view)

    words = ""
    for text in reversed(view.user_texts):
        if is_resent(text):
            own = without_reminders(own_words(text))
            words = redactor.text(own)  # It is stored, and may hold anything.
            break

    keys = request.header("idempotency-key")
    key = keys[0] if keys else ""

    # Nothing but its words tells a lone request from others.
    _, session, kept_id = scope
    is_alone = not (earlier or session or kept_id)
    return RequestFingerprint(
        _digest(*scope, body=request.body),
        _digest(*scope, earlier),
        _encodable(words),
        _digest(key) if key else "",
        alone=is_alone,
    )


class CutAnswer(NamedTuple):
    """The answer of an earlier request, whose first items stand at the end of this one."""

    known_by: RequestFingerprint  # The earlier request
    leave_out: Callable[[bytes], bytes | None]


def cut_answers(request: Request, view: RunnerRequest) -> list[CutAnswer]:
    """Return the answers that may have been cut off on their way to this request."""
    found = view.load_resent()
    if not found:
        return []

    scope = _scope(request, view)
    answers: list[CutAnswer] = []
    for items in found:
        earlier_request = RequestFingerprint(_digest(*scope, body=items.body), "", "", "")
        answers.append(CutAnswer(earlier_request, items.leave_out))
    return answers


def _scope(request: Request, view: RunnerRequest) -> tuple[str, str, str]:
    """Return the path, the session, and the kept object that a request names."""
    session = read_session_id(request.headers, view.session_hints)
    kept = view.kept
    named = "" if kept is None else kept.previous_response or kept.conversation
    return request.normalized_path, session, named


def is_retry(request: Request) -> bool:
    """Return whether the runner's SDK says that it tries again."""
    return any(_ABOVE_0.fullmatch(count) for count in request.header(_RETRY_HEADER))


class RetryLookup:
    """Looks in the journal for earlier attempts at a request. Its methods raise ``StoreError``."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find(
        self,
        agent_id: str,
        turn_id: str,
        known_by: RequestFingerprint,
        cut: Sequence[CutAnswer] = (),
        *,
        says_retry: bool,
    ) -> CompletedTurn | Resume | Literal["overtaken"] | None:
        """Find the attempt to go on with.

        If there is none, enter a new turn, ``turn_id``, and return None.
        """
        rest = await self._find_rest(agent_id, cut)
        if rest is not None:
            return rest

        awaited = ""  # The turn in another process that this request has waited for
        in_delivery = ""  # The turn whose delivery it has waited for
        while True:
            past = await self._find_previous(agent_id, known_by, awaited, says_retry=says_retry)
            if past == "overtaken":
                return past

            if past is None:
                if await self._journal.begin(turn_id, agent_id, known_by):
                    return None
            elif past.is_alive:
                awaited = past.turn_id
            elif past.turn_id not in {awaited, in_delivery} and _may_be_just_delivered(
                past, known_by, says_retry=says_retry
            ):
                # Look once more: a delivery is recorded a moment after the kernel took the answer.
                # If that was it, this request is a new turn.
                in_delivery = past.turn_id
            else:
                found = await self._take(past, known_by, awaited, says_retry=says_retry)
                if found is not None:
                    return found

                # Another request may be quicker to resume the attempt, or to begin a turn. Then the
                # next look finds what that request did.
                is_over = past.state not in _RESUMABLE
                if is_over and await self._journal.begin(turn_id, agent_id, known_by):
                    return None

            await asyncio.sleep(POLL_SECONDS)

    async def _take(
        self, past: PreviousAttempt, known_by: RequestFingerprint, awaited: str, *, says_retry: bool
    ) -> CompletedTurn | Resume | None:
        """Return the answer of an attempt that is over, or resume the attempt.

        Return None if this request is to get neither.
        """
        was_awaited = past.turn_id == awaited
        is_wanted = past.state == "answered" or _is_retried(past, known_by, says_retry=says_retry)
        if past.response is not None and (was_awaited or is_wanted):
            return CompletedTurn(past.turn_id, past.response, was_awaited)

        if past.state in _RESUMABLE:
            return await self.resume(past, known_by)
        return None

    async def is_another_alive(
        self, agent_id: str, known_by: RequestFingerprint, turn_id: str
    ) -> bool:
        """Return whether a turn runs in another process.

        The turn of an equal request does not count: ``find`` waits for that one.
        """
        if not await self._journal.is_alive(turn_id):
            return False
        past = await self._journal.find(agent_id, known_by)
        return past is None or past.turn_id != turn_id

    async def _find_previous(
        self, agent_id: str, known_by: RequestFingerprint, awaited: str, *, says_retry: bool
    ) -> PreviousAttempt | Literal["overtaken"] | None:
        """Find an earlier attempt.

        An overtaken one is not found, unless it was waited for or the runner retries it.
        """
        past = await self._journal.find(agent_id, known_by)
        if past is None or past.turn_id == awaited or not _is_overtaken(past, known_by):
            return past

        if not _is_retried(past, known_by, says_retry=says_retry):
            await self._close(past, known_by)
            return None
        if past.response is None and await self._has_steps(past):
            return "overtaken"
        return past

    async def _close(self, past: PreviousAttempt, known_by: RequestFingerprint) -> None:
        """End a turn whose process died.

        Nothing goes on with it, and no other can begin as long as it seems to run.
        """
        if past.state in {"running", "abandoned"} and await self._journal.resume(past, known_by):
            await self._journal.end(past.turn_id, None)

    async def _find_rest(self, agent_id: str, cut: Sequence[CutAnswer]) -> CompletedTurn | None:
        """Return the rest of an answer that was cut off on its way; None if none was."""
        for answer in cut:
            past = await self._journal.find(agent_id, answer.known_by)
            if past is not None and past.state == "answered":
                # If it was delivered just now, and not cut off, that is recorded after a moment.
                await asyncio.sleep(POLL_SECONDS)
                past = await self._journal.find(agent_id, answer.known_by)
            if past is None or past.state != "answered" or past.response is None:
                continue

            rest = answer.leave_out(past.response.body)
            if rest is not None:
                response = msgspec.structs.replace(past.response, body=rest)
                return CompletedTurn(past.turn_id, response)

        return None

    async def resume(self, past: PreviousAttempt, known_by: RequestFingerprint) -> Resume | None:
        """Take over a turn; return None if it goes on elsewhere by now."""
        try:
            if not await self._journal.resume(past, known_by):
                return None
            return Resume(past.turn_id, await self._has_steps(past))
        except BaseException:
            # The runner has gone, or the journal: a turn that seems to run here would be found by
            # no other request.
            with suppress(StoreError):
                await self._journal.end(past.turn_id, None)
            raise

    async def _has_steps(self, past: PreviousAttempt) -> bool:
        return await self._journal.response(past.turn_id, 1) is not None


def _may_be_just_delivered(
    past: PreviousAttempt, known_by: RequestFingerprint, *, says_retry: bool
) -> bool:
    """Return whether an answer that counts as undelivered may have been delivered just now.

    For a runner that says that it retries that makes no difference: it gets the answer again.
    """
    return past.state == "answered" and not _is_retried(past, known_by, says_retry=says_retry)


def _is_overtaken(past: PreviousAttempt, known_by: RequestFingerprint) -> bool:
    """Return whether a later turn was added to the conversation that the provider keeps."""
    has_later_turn = bool(known_by.latest_turn) and past.turn_id != known_by.latest_turn
    return has_later_turn and not past.is_alive


def _is_retried(past: PreviousAttempt, known_by: RequestFingerprint, *, says_retry: bool) -> bool:
    """Return whether the runner says that it sends this attempt again.

    Without that, it may be the same words once more.
    """
    key = known_by.idempotency_key
    return says_retry or (bool(key) and key == past.idempotency_key)


def _digest(*parts: str, body: bytes = b"") -> str:
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass") + b"\0")
    digest.update(body)  # not joined: it may be large
    return digest.hexdigest()


def _encodable(text: str) -> str:
    """Return text that has a digest: what a runner sends may hold lone surrogates."""
    if text.isascii():
        return text
    return text.encode(errors="replace").decode()
