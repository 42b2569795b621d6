"""What is told of a turn, afterwards: one line of history, and the events of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from claw_contract.history import UsageRecord
from claw_mediate import result
from claw_mediate.io.history import History, recorded_body
from claw_mediate.io.log import EventLog, now_rfc3339
from claw_mediate.model import Answer, Round
from claw_mediate.trace import tool_trace

if TYPE_CHECKING:
    from claw_mediate.io.mediated import Ended, Job

_INTERVENTIONS = {
    result.MANAGED_TOOLS_FIRST: "mixed_tool_order_internal_retry",
    result.TERMINAL_ORDER: "managed_tool_terminal_order_rejected",
    result.TOOL_BUDGET_EXHAUSTED: "managed_tool_budget_finalization",
}
"""By the code that every call of a round was answered with; the original's names."""
_PER_TOOL = {
    result.DUPLICATE_TOOL_CALL: "duplicate_managed_tool_call",
    result.SCHEMA_VALIDATION: "managed_tool_schema_rejected",
    result.UNKNOWN_TOOL: "unknown_tool_rejected",
}


class Recorder:
    """Writes turns down. A history that can't be written is an event, never a lost answer."""

    def __init__(self, history: History | None, log: EventLog) -> None:
        self._history = history
        self._log = log

    def request(self, job: Job, tools_count: int) -> None:
        """A turn begins."""
        self._log.event(
            "request",
            job.agent.id,
            turn_id=job.turn_id,
            model=job.view.model,
            path=job.request.bare_path,
            stream=job.view.stream,
            manifest_present=bool(job.agent.tools),
            tools_count=tools_count,
            digest=job.agent.digest,
        )

    def turn(self, job: Job, ended: Ended, rounds: Sequence[Round], usage: UsageRecord, latency_ms: int) -> None:
        """A turn is over: its calls, what was intervened, and its response; then its line of history."""
        about = {"turn_id": job.turn_id, "model": job.model}
        for past in rounds:
            self._round(job, past)
        self._log.event(
            "response" if ended.ok else "error",
            job.agent.id,
            **about,
            status_code=ended.status,
            latency_ms=latency_ms,
            tokens_in=usage.prompt_tokens,
            tokens_out=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cost_usd=usage.reported_cost_usd,
            rounds=len(rounds),
            digest=job.agent.digest,
        )
        self._append(job, ended, rounds, usage)

    def tool_call(self, agent_id: str, turn_id: str, round_number: int, answer: Answer) -> None:
        """One managed call was run, or was answered without running."""
        tool = answer.call.tool
        self._log.event(
            "tool_call",
            agent_id,
            turn_id=turn_id,
            name=answer.call.canonical,
            service=answer.call.service,
            round=round_number,
            status="ok" if answer.ok else "error",
            code=answer.code,
            status_code=answer.status_code,
            latency_ms=answer.latency_ms,
            effect=tool.effect if tool else None,
            ran=answer.ran,
        )

    def fault(self, job: Job, error: Exception) -> None:
        """Something of ours broke; named by its type, since its text may hold anything."""
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        self._log.event("error", job.agent.id, turn_id=job.turn_id, model=job.model, error="internal", reason=name)

    def _round(self, job: Job, past: Round) -> None:
        for answer in past.answers:
            if answer.call.owner != "native":
                self.tool_call(job.agent.id, job.turn_id, past.number, answer)
        for name in _interventions(past):
            self._log.event(
                "intervention", job.agent.id, turn_id=job.turn_id, model=job.model, intervention=name, round=past.number
            )

    def _append(self, job: Job, ended: Ended, rounds: Sequence[Round], usage: UsageRecord) -> None:
        if self._history is None:
            return
        shape = "sse" if job.view.stream else "json"
        entry: dict[str, Any] = {
            "version": 1,
            "turn_id": job.turn_id,
            "digest": job.agent.digest,
            "status": "ok" if ended.ok else "error",
            "ts": now_rfc3339(),
            "claw_id": job.agent.id,
            "path": job.request.bare_path,
            "requested_model": job.view.model,
            "effective_provider": job.provider.name,
            "effective_model": job.model,
            "status_code": ended.status,
            "stream": job.view.stream,
            "tools_offered": [offered.alias for offered in job.catalog.offered],
            "request_original": recorded_body(job.request.body),
            "request_effective": recorded_body(job.effective),
            "response": {"format": shape, "json": recorded_body(ended.body)},
            "usage": usage.model_dump(),
            "tool_trace": [record.model_dump(exclude_none=True) for record in tool_trace(rounds)],
        }
        try:
            self._history.append(job.agent.id, entry, job.redactor)
        except OSError as error:
            self._log.event(
                "error", job.agent.id, turn_id=job.turn_id, error="history_not_written", reason=error.strerror
            )


def _interventions(past: Round) -> list[str]:
    """The interventions of a round, once each."""
    codes = Counter(answer.code for answer in past.answers)
    names = [name for code, name in _INTERVENTIONS.items() if codes[code]]
    names += [
        f"{_PER_TOOL[answer.code]}:{answer.call.canonical}" for answer in past.answers if answer.code in _PER_TOOL
    ]
    if len(past.answers) < len(past.reply.calls):
        names.append("managed_prefix_native_suffix_serialized")
    return list(dict.fromkeys(names))
