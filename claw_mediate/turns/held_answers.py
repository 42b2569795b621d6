"""The lookup of turns whose runner goes on with a part of what it was shown.

docs/spec/live.md sections 6 and 9. The journal has the answer of a turn that is over, and what a
turn showed before it failed. Of a turn whose process died it has the replies that were whole: then
one text begins with the other.

    the request of that turn, and behind it    what happens
    ─────────────────────────────────────────  ───────────────────────────────────────────────────
    a beginning of what it showed              it is resumed; that part is not shown again
    a beginning of an undelivered answer       the rest of the answer is given
    one of these, and new words of the user's  its rounds are remembered under that part, and a new
                                                 turn begins, whose request has them
    a beginning of a delivered answer          the same
    anything else                              nothing: the lookup of retries goes on

A buffered answer is shown when its turn is over. Such a turn is looked for only if nobody knows the
last answer of the request.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from claw_mediate.core.continuity import text_key
from claw_mediate.core.held_text import (
    ShownRecord,
    compact,
    may_be_beginning,
    read_shown,
    visible_text,
)
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.live import until_first_call
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.session_id import read_session_id
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.partial_answers import PartialAnswer, find_partial_answers
from claw_mediate.http.large_bodies import compute
from claw_mediate.turns.answer_stream import streams_live
from claw_mediate.turns.checkpoint import SHOWN_STEP
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.idempotency import POLL_SECONDS, fingerprint
from claw_mediate.turns.registry import TurnRegistry
from claw_mediate.turns.run import RunningTurn
from claw_state.journal import PreviousAttempt, RequestFingerprint

type Resolve = Callable[[DialectRequest], Awaitable[object]]
"""Returns a request with what it names of what providers keep; anything else if that is refused."""


class HeldAnswer(NamedTuple):
    """A part of an answer in the runner's hands, and the request that it answers."""

    incoming: DialectRequest
    known_by: RequestFingerprint
    text: str
    has_followers: bool  # True if words of the user's stand behind it
    past: PreviousAttempt | None  # The turn; None if it runs in this process
    before_rest: tuple[str, ...]  # Digests of the last messages, with what the runner holds

    @property
    def begins_turn(self) -> bool:
        """True if the turn is over for its runner, whose request begins another one."""
        is_delivered = self.past is not None and self.past.state == "done"
        return self.has_followers or is_delivered


class HeldAnswers:
    """Finds the turn that a runner goes on with. Its methods raise ``StoreError``."""

    def __init__(self, turns: TurnRegistry, continuity: Continuity, resolve: Resolve) -> None:
        self._turns = turns
        self._journal = turns.journal
        self._continuity = continuity
        self._resolve = resolve

    async def find(self, incoming: DialectRequest) -> HeldAnswer | None:
        """Return the part of an answer at the end of a request, if a turn has shown it."""
        view = incoming.view
        if not view.stream or view.keeps_rounds:
            return None
        is_live = streams_live(incoming.agent, view)
        if not is_live and await self._continuity.knows_last_answer(incoming):
            return None

        for each in await self._find_partials(incoming):
            held = await self._find(incoming, each)
            if held is not None:
                return held
        return None

    async def find_text(self, incoming: DialectRequest, key: str) -> str:
        """Return the text of the answer before the user's last words; "" if it has another key."""
        for each in await self._find_partials(incoming):
            if each.has_followers and key.endswith(f":{text_key(each.text)}"):
                return each.text
        return ""

    async def _find_partials(self, incoming: DialectRequest) -> list[PartialAnswer]:
        body = incoming.request.body
        try:
            find = partial(find_partial_answers, body, incoming.dialect.transcript)
            return await compute(len(body), find)
        except JsonSpliceError:  # which is told when the request is read for its turn
            return []

    async def _find(self, incoming: DialectRequest, part: PartialAnswer) -> HeldAnswer | None:
        size = len(part.body)
        try:
            view = await compute(size, partial(incoming.dialect.read_request, part.body))
        except UnreadableRequestError:
            return None

        request = dataclasses.replace(incoming.request, body=part.body)
        stripped = await self._resolve(
            replace(incoming, request=request, view=view, predecessor=None, named_object=None)
        )
        if not isinstance(stripped, DialectRequest):
            return None

        identify = partial(fingerprint, request, stripped.view, stripped.redactor)
        known_by = await compute(size, identify)
        before_rest = incoming.view.evidence.before
        held = HeldAnswer(stripped, known_by, part.text, part.has_followers, None, before_rest)
        return await self._find_turn(held)

    async def _find_turn(self, held: HeldAnswer) -> HeldAnswer | None:
        agent_id = held.incoming.agent.id
        running = self._turns.find(agent_id, held.known_by.request)
        if running is not None and running.task.cancelling():
            await asyncio.wait([running.task])
            running = None
        if running is not None:
            if not _is_showing(running, held):
                return None
            if not held.has_followers:
                return held
            if not compact(held.text):
                return None  # Nothing says that its runner has left.
            # Its runner has left, which is not known yet, or another one waits for it.
            await asyncio.wait([running.task])

        past = await self._journal.find(agent_id, held.known_by)
        while past is not None and past.is_alive and past.response is None:
            if held.has_followers and not compact(held.text):
                return None
            # Its process may not know yet that its runner has left.
            await asyncio.sleep(POLL_SECONDS)
            past = await self._journal.find(agent_id, held.known_by)

        if past is None or not await self._has_shown(past, held):
            return None
        return held._replace(past=past)

    async def _has_shown(self, past: PreviousAttempt, held: HeldAnswer) -> bool:
        """Return whether a turn that is over has shown what the runner holds."""
        has_words = bool(compact(held.text))
        if past.response is not None:
            return not has_words or _is_part_of_answer(past.response.body, past, held)
        if past.state == "done" or not streams_live(held.incoming.agent, held.incoming.view):
            return False

        if has_words:
            return await self._is_beginning(past, held)
        # Of a turn that failed, continuity knows what ran; not so if its process died.
        return not (held.has_followers and past.state == "failed")

    async def _is_beginning(self, past: PreviousAttempt, held: HeldAnswer) -> bool:
        """Return whether the runner holds a beginning of what an unanswered turn has shown."""
        step = await self._journal.call_record(past.turn_id, *SHOWN_STEP)
        if step is not None and may_be_beginning(held.text, read_shown(step)):
            return True
        if past.state == "failed":
            return False

        # Its process died, and has recorded its whole replies only.
        request, hints = held.incoming.request, held.incoming.view.session_hints
        is_session_named = bool(read_session_id(request.headers, hints))
        recorded = ShownRecord(await self._recorded_text(past, held), is_whole=False)
        return may_be_beginning(held.text, recorded, is_session_named=is_session_named)

    async def _recorded_text(self, past: PreviousAttempt, held: HeldAnswer) -> str:
        """Return what was shown of the replies that are recorded."""
        text = ""
        number = 1
        while (body := await self._journal.response(past.turn_id, number)) is not None:
            text += _shown_text(held.incoming.dialect.tell(body, held.incoming.view))
            number += 1
        return text


def _is_part_of_answer(body: bytes, past: PreviousAttempt, held: HeldAnswer) -> bool:
    """Return whether the runner holds a part of an answer with which it does not go on as ever."""
    told = [*held.incoming.dialect.tell(body, held.incoming.view)]
    text = _shown_text(told)
    if not may_be_beginning(held.text, ShownRecord(text, is_whole=True)):
        return False

    has_call = any(event.kind == "call" for event in told)
    is_all = compact(held.text) == text and not has_call
    return not (is_all and held._replace(past=past).begins_turn)


def _shown_text(told: Iterable[ReplyEvent]) -> str:
    """Return the text, without white space, that may be shown of a reply in any case."""
    return compact(visible_text(until_first_call(told)))


def _is_showing(running: RunningTurn, held: HeldAnswer) -> bool:
    """Return whether a turn that runs has shown what the runner holds, or was begun with it."""
    if compact(held.text) == compact(running.context.held):
        return True
    shown = running.stream.shown.text() if running.stream is not None else ""
    return may_be_beginning(held.text, ShownRecord(compact(shown), is_whole=True))
