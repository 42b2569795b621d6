"""The lookup of failed live turns whose runner goes on with what it was shown.

docs/spec/live.md sections 6 and 9. The journal has what a turn showed before it failed. Of a turn
whose process died it has the replies that were whole: then one text begins with the other.

    the request of that turn, and behind it    what happens
    ─────────────────────────────────────────  ───────────────────────────────────────────────────
    a beginning of what it showed              it is resumed; that part is not shown again
    that, and new words of the user's          its rounds are remembered under that part, and a new
                                                 turn begins, whose request has them
    anything else                              nothing: the lookup of retries goes on
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from claw_mediate.core.held_text import (
    ShownRecord,
    compact,
    may_be_beginning,
    read_shown,
    visible_text,
)
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.live import until_first_call
from claw_mediate.core.session_id import read_session_id
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.partial_answers import PartialAnswer, find_partial_answers
from claw_mediate.http.large_bodies import compute
from claw_mediate.turns.checkpoint import SHOWN_STEP
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.idempotency import POLL_SECONDS, fingerprint
from claw_mediate.turns.registry import TurnRegistry
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


class HeldAnswers:
    """Finds the turn that a runner goes on with. Its methods raise ``StoreError``."""

    def __init__(self, turns: TurnRegistry, resolve: Resolve) -> None:
        self._turns = turns
        self._journal = turns.journal
        self._resolve = resolve

    async def find(self, incoming: DialectRequest) -> HeldAnswer | None:
        """Return the part of an answer at the end of a request, if a turn has shown it."""
        view, request = incoming.view, incoming.request
        is_live = view.stream and incoming.agent.stream == "live" and view.buffered_reason is None
        if not is_live or view.keeps_rounds:
            return None

        size = len(request.body)
        read = partial(find_partial_answers, request.body, incoming.dialect.transcript)
        try:
            partials = await compute(size, read)
        except JsonSpliceError:  # which is told when the request is read for its turn
            return None

        for each in partials:
            held = await self._find(incoming, each)
            if held is not None:
                return held
        return None

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
            shown = running.stream.shown.text() if running.stream is not None else ""
            is_same = compact(held.text) == compact(running.context.held)
            is_shown = may_be_beginning(held.text, ShownRecord(compact(shown), is_whole=True))
            return held if not held.has_followers and (is_same or is_shown) else None

        past = await self._journal.find(agent_id, held.known_by)
        while past is not None and past.is_alive and past.response is None:
            # Its process may not know yet that its runner has left.
            await asyncio.sleep(POLL_SECONDS)
            past = await self._journal.find(agent_id, held.known_by)

        if past is None or not await self._has_shown(past, held):
            return None
        return held._replace(past=past)

    async def _has_shown(self, past: PreviousAttempt, held: HeldAnswer) -> bool:
        """Return whether a turn that is over has shown what the runner holds."""
        if past.state == "done":
            return False
        if past.response is not None:
            text = self._text_of(past.response.body, held)
            return not held.has_followers and may_be_beginning(held.text, ShownRecord(text, True))

        step = await self._journal.call_record(past.turn_id, *SHOWN_STEP)
        if past.state == "failed":
            return step is not None and may_be_beginning(held.text, read_shown(step))

        request, hints = held.incoming.request, held.incoming.view.session_hints
        is_session_named = bool(read_session_id(request.headers, hints))
        recorded = ShownRecord(await self._recorded_text(past, held), is_whole=False)
        if may_be_beginning(held.text, recorded, is_session_named=is_session_named):
            return True
        return step is not None and may_be_beginning(held.text, read_shown(step))

    async def _recorded_text(self, past: PreviousAttempt, held: HeldAnswer) -> str:
        """Return what was shown of the replies that are recorded."""
        text = ""
        number = 1
        while (body := await self._journal.response(past.turn_id, number)) is not None:
            text += self._text_of(body, held)
            number += 1
        return text

    def _text_of(self, body: bytes, held: HeldAnswer) -> str:
        told = held.incoming.dialect.tell(body, held.incoming.view)
        return compact(visible_text(until_first_call(told)))
