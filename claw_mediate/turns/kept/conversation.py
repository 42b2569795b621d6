"""A conversation that the provider keeps, during one turn, and the tool results that it waits for.

A provider takes no request while a call of the conversation is unanswered. So the record of the
conversation always holds the *pending results*: those that were not sent yet. They go first in the
next request, whatever became of the turn (docs/spec/responses.md section 10).

    a response came         for each of its calls: the outcome is unknown
    calls ran               their results; for the other calls as before
    the turn was delivered  none, since native calls are the runner's; if a tool ended the turn, its
                            results
    the turn failed         the results; for each call that did not run: it was not run

If the provider's answer was lost, we do not know whether it stored our tool results. So if it
rejects them, the next request omits them; if it then reports them missing, the request after that
sends them again.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from http import HTTPStatus

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
from claw_mediate.dialects.kept import KeptForm
from claw_mediate.providers.routing import Route
from claw_state.ownership import KeptObject

# Of a conversation: the latest
MAX_HIDDEN = 2048
MAX_MARKS = 256

type Save = Callable[[Agent, KeptObject], Awaitable[None]]


class KeptConversation:
    """The record of a conversation, during the turn of ``route``."""

    def __init__(
        self, save: Save, route: Route, record: KeptObject, dialect: Dialect, form: KeptForm
    ) -> None:
        self._save_record = save
        self._route = route
        self._record = record
        self._dialect = dialect
        self._form = form
        self._marks = record.anchors
        self._hidden = dict.fromkeys(record.hidden_ids)

    async def note_progress(self, response: ModelResponse, results: Sequence[ToolResult]) -> None:
        """Record what the provider will wait for if the process ends now."""
        if all(call.owner == "native" for call in response.calls):
            pending = b""  # The runner answers its own calls.
        else:
            pending = self._write_results(response, results, tool_result.outcome_unknown)

        await self._save(response, pending)

    async def note_end(
        self, outcome: Outcome, last: Round | None, marks: Collection[str], joined: bytes = b""
    ) -> None:
        """Record what the provider waits for after the turn.

        ``last``: the turn's last response, as far as it is answered; None if that is not known.
        ``marks``: those of the turn's answer, whose hidden rounds the conversation has.
        ``joined``: the answer, or what a failed turn has shown, if it shows something of those
        rounds.
        """
        self._marks = (*self._record.anchors, *marks)[-MAX_MARKS:]

        # The runner is shown the response that a tool ended, without its calls.
        is_last_shown = isinstance(outcome, Deliver) and outcome.terminal
        hidden = outcome.rounds[:-1] if is_last_shown else outcome.rounds
        self._hide(hidden)
        if last is not None and not isinstance(outcome, Deliver):
            self._hide([last])
        if joined:
            for shown in self._form.ids_of_output(joined):
                self._hidden.pop(shown, None)

        if isinstance(outcome, Deliver):
            results = outcome.rounds[-1].results if outcome.terminal else ()
            await self._save(outcome.response, self._join(outcome.response, results))
        elif last is not None:
            is_spent = outcome.code == tool_result.TOOL_BUDGET_EXHAUSTED
            not_run = tool_result.tool_budget_exhausted if is_spent else tool_result.turn_ended
            pending = self._write_results(last.response, last.results, not_run)
            await self._save(last.response, pending)
        elif outcome.failure is not None and self._is_about_pending_results(outcome.failure):
            # Omit the results next time, or send them again (see the table above).
            record = msgspec.structs.replace(self._record, is_disputed=not self._record.is_disputed)
            await self._save_record(self._route.agent, record)

    def _is_about_pending_results(self, failure: ModelFailed) -> bool:
        """Return whether the provider refuses a request because of a pending result.

        Either it misses that result, or it has it already: from a request whose runner left before
        the reply.
        """
        if failure.status != HTTPStatus.BAD_REQUEST or failure.body is None:
            return False

        pending_ids = self._form.ids_in(self._record.pending_results)
        return any(call_id.encode() in failure.body for call_id in pending_ids)

    def _write_results(
        self,
        response: ModelResponse,
        results: Sequence[ToolResult],
        not_run: Callable[[ToolCall], ToolResult],
    ) -> bytes:
        """Return the items that answer all calls of a response.

        ``not_run`` answers a call without a result.
        """
        known = {result.call.id: result for result in results}
        answers = [known.get(call.id) or not_run(call) for call in response.calls]
        return self._join(response, answers)

    def _join(self, response: ModelResponse, results: Sequence[ToolResult]) -> bytes:
        if not results:
            return b""
        return b",".join(self._dialect.write_answers(Round(0, response, tuple(results))))

    def _hide(self, rounds: Sequence[Round]) -> None:
        """Note the items of rounds, which the runner must not read in the conversation."""
        items = self._dialect.write_hidden_rounds(rounds, replayed=False)
        self._hidden |= dict.fromkeys(sorted(self._form.ids_in(b",".join(items))))

    async def _save(self, response: ModelResponse, pending: bytes) -> None:
        """Save the record, if it changes.

        The runner never gets the calls of a response that the proxy has to answer.
        """
        if pending:
            self._hidden |= dict.fromkeys(call.id for call in response.calls)

        record = msgspec.structs.replace(
            self._record,
            provider=self._route.candidate.provider.name,
            key_label=self._route.key_label,
            anchors=self._marks,
            hidden_ids=tuple(self._hidden)[-MAX_HIDDEN:],
            pending_results=pending,
            is_disputed=False,
            turn=self._route.turn_id,
        )
        if record != self._record:
            await self._save_record(self._route.agent, record)
            self._record = record
