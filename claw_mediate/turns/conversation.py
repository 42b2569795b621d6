"""A conversation that the provider keeps, during one turn: its row tells at any
time what the conversation is owed.

A provider takes no request while a call of the conversation is unanswered. So the answers that were
not sent yet stand first in the next request, whatever became of the turn (docs/spec/responses.md
section 10).

    a response came         each of its calls is owed that its outcome is unknown
    calls ran               their results; the others as before
    the turn was delivered  nothing, since native calls are the runner's; of a turn that a tool ended, its results
    the turn failed         the results; for each call that did not run, that it was not run

Whether the provider has what it was sent is not known where nobody heard its answer. If it refuses
what is owed, the next request goes without it, and if it misses it then, the one after that goes
with it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.types import (
    Deliver,
    ModelFailed,
    ModelResponse,
    Outcome,
    Round,
    ToolCall,
    ToolResult,
)
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.responses.stored import ids_in
from claw_mediate.providers.routing import Route
from claw_state.ownership import OwnedObject

BAD_REQUEST = 400
MAX_HIDDEN, MAX_MARKS = 2048, 256  # Of a conversation: the latest
type Save = Callable[[Agent, OwnedObject], Awaitable[None]]


class KeptConversation:
    """The row of a conversation, during the turn of ``route``."""

    def __init__(self, save: Save, route: Route, row: OwnedObject, dialect: Dialect) -> None:
        self._save_row = save
        self._route = route
        self._row = row
        self._dialect = dialect
        self._marks = row.anchors
        self._hidden = dict.fromkeys(row.hidden_ids)

    async def note_progress(self, response: ModelResponse, results: Sequence[ToolResult]) -> None:
        """Record what is owed if the process ends now."""
        is_runners = all(call.owner == "native" for call in response.calls)
        await self._save(
            response,
            b"" if is_runners else self._write(response, results, tool_result.outcome_unknown),
        )

    async def note_end(self, outcome: Outcome, last: Round | None, marks: Collection[str]) -> None:
        """Record what is owed behind the turn, and the marks of its answer, whose
        hidden rounds the conversation has.

        ``last``: its last response, as far as it is answered; None if that is not known.
        """
        self._marks = (*self._row.anchors, *marks)[-MAX_MARKS:]
        is_shown = isinstance(outcome, Deliver) and outcome.terminal  # but for its calls
        self._hide(outcome.rounds[:-1] if is_shown else outcome.rounds)
        if isinstance(outcome, Deliver):
            results = outcome.rounds[-1].results if outcome.terminal else ()
            await self._save(outcome.response, self._join(outcome.response, results))
        elif last is not None:
            self._hide([last])
            is_spent = outcome.code == tool_result.TOOL_BUDGET_EXHAUSTED
            unrun = tool_result.tool_budget_exhausted if is_spent else tool_result.turn_ended
            await self._save(last.response, self._write(last.response, last.results, unrun))
        elif outcome.failure is not None and self._is_about_owed(outcome.failure):
            row = msgspec.structs.replace(self._row, is_disputed=not self._row.is_disputed)
            await self._save_row(self._route.requester.agent, row)

    def _is_about_owed(self, failure: ModelFailed) -> bool:
        """Return whether the provider refuses a request for a call that is owed an
        answer, or for having it twice.

        It may have taken the answer along with a request whose runner left: then nobody knows that
        it has it.
        """
        named = failure.body if failure.status == BAD_REQUEST and failure.body is not None else b""
        return any(call_id.encode() in named for call_id in ids_in(self._row.owed))

    def _write(
        self,
        response: ModelResponse,
        results: Sequence[ToolResult],
        unrun: Callable[[ToolCall], ToolResult],
    ) -> bytes:
        known = {result.call.id: result for result in results}
        return self._join(response, [known.get(call.id) or unrun(call) for call in response.calls])

    def _join(self, response: ModelResponse, results: Sequence[ToolResult]) -> bytes:
        return (
            b",".join(self._dialect.write_answers(Round(0, response, tuple(results))))
            if results
            else b""
        )

    def _hide(self, rounds: Sequence[Round]) -> None:
        """Note the items of rounds, which the runner must not read in the conversation."""
        items = self._dialect.write_hidden_rounds(rounds, replayed=False)
        self._hidden |= dict.fromkeys(sorted(ids_in(b",".join(items))))

    async def _save(self, response: ModelResponse, owed: bytes) -> None:
        """Save the row, if it changes.

        The runner never gets the calls of a response that the proxy has to answer.
        """
        self._hidden |= dict.fromkeys(call.id for call in response.calls if owed)
        asker = self._route.requester
        row = msgspec.structs.replace(
            self._row,
            provider=self._route.candidate.provider.name,
            key_label=self._route.key_label,
            anchors=self._marks,
            hidden_ids=tuple(self._hidden)[-MAX_HIDDEN:],
            owed=owed,
            is_disputed=False,
            turn=asker.turn_id,
        )
        if row != self._row:
            await self._save_row(asker.agent, row)
            self._row = row
