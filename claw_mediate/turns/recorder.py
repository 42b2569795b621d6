"""What is told of a turn, afterwards: one line of history, and the events of the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from claw_contract.base import JsonObject
from claw_contract.history import UsageRecord
from claw_contract.interventions import CALL_INTERVENTIONS, ROUND_INTERVENTIONS
from claw_contract.log.turns import ModelCallRecord
from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import GONE, Request
from claw_mediate.core.talk import ToolUse
from claw_mediate.core.tool_trace import tool_trace, usage_record
from claw_mediate.core.types import Round, ToolResult
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.routed import NO_DIALECT
from claw_mediate.telemetry.event_log import EventLog, now_rfc3339, rfc3339
from claw_mediate.telemetry.history import BODY_LIMIT, History, recorded_body
from claw_mediate.telemetry.timing import Timings
from claw_mediate.telemetry.unicode import encoded
from claw_mediate.turns.accounts import Accounts
from claw_mediate.turns.withheld import SIDE_REQUEST, from_request, from_turn

if TYPE_CHECKING:
    from claw_mediate.turns.checkpoint import ReplayStats
    from claw_mediate.turns.run import TurnContext, TurnResult

_ERROR = 400


@dataclass(frozen=True, slots=True)
class Passed:
    """A request that is forwarded. ``view`` is there where it asks a model."""

    turn_id: str
    agent: Agent
    request: Request
    view: RunnerRequest | None
    provider: str
    model: str
    redactor: Redactor
    aside: bool = False
    """Whether it is a side request of the runner's: no part of the conversation."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended for its runner."""

    ok: bool
    status: int
    latency_ms: int
    code: str | None = None
    """Of an error of ours, or of the provider's as we call it."""


type Retain = Callable[[Agent, JsonObject, Redactor], None]
"""What is given a turn to remember."""


class Recorder:
    """Writes turns down. A history that can't be written is an event, never a lost answer."""

    def __init__(self, history: History | None, log: EventLog, accounts: Accounts, retain: Retain) -> None:
        self._history = history
        self._log = log
        self._accounts = accounts
        self._retain = retain

    def request(self, job: TurnContext, tools_count: int) -> None:
        """A turn begins."""
        self._request(job, tools_count)

    def forwarded(self, passed: Passed) -> None:
        """A request is sent on as it is."""
        self._request(passed, 0)

    def passed(self, passed: Passed, ending: Ending, usage: JsonObject, body: bytes) -> None:
        """The response of a forwarded request went through; ``body`` is the beginning of it."""
        cost = self._accounts.cost(passed.provider, passed.model, usage)
        tokens = usage_record(usage, 1 if usage else 0, cost)
        appended: Mapping[str, Any] = {}
        if passed.view is not None:
            self._accounts.settle(passed.agent, passed.model, cost, free=_free(usage, ending.status))
            shape = {"format": "sse", "text": _stream(body, passed.redactor)} if passed.view.stream else None
            about, unchanged = _about(passed, passed.view), passed.view.body is passed.request.body
            entry = {
                **about,
                "status": "ok" if ending.ok else "error",
                "effective_provider": passed.provider,
                "effective_model": passed.model,
                "status_code": ending.status,
                "latency_ms": ending.latency_ms,
                "tools_offered": [],
                "tools_withheld": from_request(
                    passed.agent, SIDE_REQUEST if passed.aside else passed.view.bypass or ""
                ),
                "request_effective": about["request_original"]
                if unchanged
                else recorded_body(passed.view.body, passed.redactor),
                "response": shape or {"format": "json", "json": recorded_body(body, passed.redactor)},
                "usage": tokens.model_dump(),
                "tool_trace": [],
            }
            is_conversation = not passed.aside and passed.view.bypass != NO_DIALECT
            appended = self._append(passed, entry, retained=ending.ok and is_conversation)
        asked = ModelCallRecord(
            provider=passed.provider,
            model=passed.model,
            status_code=ending.status,
            started=rfc3339(time.time() - ending.latency_ms / 1000),
            latency_ms=ending.latency_ms,
        )
        self._response(passed, tokens, ending, Timings([asked]), appended)

    def used(self, job: TurnContext, usage: JsonObject, calls: int, status: int) -> UsageRecord:
        """What a turn used, and what that cost its agent."""
        cost = self._accounts.cost(job.provider, job.model, usage)
        self._accounts.settle(job.agent, job.model, cost, free=_free(usage, status))
        return usage_record(usage, calls, cost)

    def turn(
        self, job: TurnContext, ended: TurnResult, rounds: Sequence[Round], usage: UsageRecord, latency_ms: int
    ) -> None:
        """A turn is over: its calls, what was intervened, and its response; then its line of history."""
        for past in rounds:
            self._round(job, past)
        entry = {
            **_about(job, job.view),
            "status": "ok" if ended.ok else "error",
            "effective_provider": job.provider,
            "effective_model": job.model,
            "status_code": ended.status,
            "latency_ms": latency_ms,
            **({} if ended.code is None else {"error": ended.code}),
            "resumed": job.attempt == "resumed",
            "tools_offered": [offered.alias for offered in job.catalog.offered],
            "tools_withheld": from_turn(job.agent, job.catalog.managed),
            "request_effective": recorded_body(job.route.body(job.offered(ToolUse.AS_ASKED).body), job.redactor),
            "response": {
                "format": "sse" if job.view.stream else "json",
                "json": recorded_body(ended.body, job.redactor),
            },
            "usage": usage.model_dump(),
            "tool_trace": [record.model_dump(exclude_none=True) for record in tool_trace(rounds)],
        }
        appended = self._append(job, entry, retained=ended.ok)
        ending = Ending(ended.ok, ended.status, latency_ms, ended.code)
        self._response(job, usage, ending, job.route.stopwatch.times, appended)

    def tool_call(self, agent: Agent, turn_id: str, round_number: int, answer: ToolResult) -> None:
        """One managed call was run, or was answered without running."""
        tool = answer.call.tool
        self._log.event(
            "tool_call",
            agent,
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
            started=answer.started,
        )

    def intervened(self, job: TurnContext, name: str) -> None:
        """What the runner is handed is not all that the model said."""
        self._log.event("intervention", job.agent, turn_id=job.turn_id, model=job.model, intervention=name)

    def fault(self, job: TurnContext, error: Exception) -> None:
        """Something of ours broke; named by its type, since its text may hold anything."""
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        self._log.event("error", job.agent, turn_id=job.turn_id, model=job.model, error="internal", reason=name)

    def resumed(self, job: TurnContext, played: ReplayStats) -> None:
        """All that an earlier attempt at this turn did was played."""
        self._log.event("resume", job.agent, turn_id=job.turn_id, model=job.model, **asdict(played))

    def unwritten(self, job: TurnContext, reason: str) -> None:
        """The journal can't be kept: calls that may write are not made."""
        self._log.event(
            "error", job.agent, turn_id=job.turn_id, model=job.model, error="journal_not_written", reason=reason
        )

    def _round(self, job: TurnContext, past: Round) -> None:
        for answer in past.answers:
            if answer.call.owner != "native" and not answer.replayed:
                self.tool_call(job.agent, job.turn_id, past.number, answer)
        for name in _interventions(past):
            self._log.event(
                "intervention", job.agent, turn_id=job.turn_id, model=job.model, intervention=name, round=past.number
            )

    def _request(self, asked: TurnContext | Passed, tools_count: int) -> None:
        view, watch = asked.view, asked.request.watch
        if watch is not None:
            watch.turn(asked.turn_id, asked.agent.id)
        self._log.event(
            "request",
            asked.agent,
            turn_id=asked.turn_id,
            model=view.model if view else None,
            path=asked.request.bare_path,
            stream=bool(view and view.stream),
            manifest_present=bool(asked.agent.tools),
            tools_count=tools_count,
            mediated=not isinstance(asked, Passed),
        )

    def _response(
        self,
        asked: TurnContext | Passed,
        usage: UsageRecord,
        ending: Ending,
        times: Timings,
        history: Mapping[str, Any],
    ) -> None:
        self._log.event(
            "response" if ending.ok else "error",
            asked.agent,
            turn_id=asked.turn_id,
            model=asked.model,
            status_code=ending.status,
            latency_ms=ending.latency_ms,
            tokens_in=usage.prompt_tokens,
            tokens_out=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cost_usd=usage.reported_cost_usd,
            total_rounds=usage.total_rounds,
            mediated=not isinstance(asked, Passed),
            provider=asked.provider,
            model_calls=[call.model_dump() for call in times.model_calls],
            overhead_ms=times.own_ms,
            **history,
            **({} if ending.code is None else {"error": ending.code}),
        )

    def _append(self, told: TurnContext | Passed, entry: dict[str, Any], *, retained: bool) -> dict[str, Any]:
        """What the event that ends the turn says of its line: who has the log knows by it which lines there were."""
        agent, redactor, watch = told.agent, told.redactor, told.request.watch
        appended = None
        try:
            if self._history is not None:
                appended = self._history.append(agent.id, entry, redactor)
        except OSError as error:
            self._log.event(
                "error", agent, turn_id=entry["turn_id"], error="history_not_written", reason=error.strerror
            )
        if appended is not None and appended.cut:
            self._log.event("error", agent, turn_id=entry["turn_id"], error="history_cut")
        if watch is not None:
            watch.ended(appended.line if appended else redactor.document(encoded(entry)))
        if retained:
            self._retain(agent, entry, redactor)
        if appended is None:
            return {}
        return {"history_hash": appended.hash, **({"history_rotated": True} if appended.rotated else {})}


def _about(told: TurnContext | Passed, view: RunnerRequest) -> dict[str, Any]:
    """What every line of history begins with."""
    return {
        "version": 1,
        "turn_id": told.turn_id,
        "digest": told.agent.digest,
        "ts": now_rfc3339(),
        "claw_id": told.agent.id,
        "path": told.request.bare_path,
        "requested_model": view.model,
        "stream": view.stream,
        "request_original": recorded_body(told.request.body, told.redactor),
    }


def _stream(body: bytes, redactor: Redactor) -> str:
    """The text of a stream. Of one that is cut the last line is left out: half a secret is not found any more."""
    whole = body if len(body) < BODY_LIMIT else body[: body.rfind(b"\n") + 1]
    return redact_stream(whole, redactor).decode(errors="replace")


def _free(usage: JsonObject, status: int) -> bool:
    """Whether an answer without usage cost nothing: an error did not, as far as anybody tells. What was broken off, by the
    provider or by a runner that left, did cost something, and nobody knows what.
    """
    return not usage and status >= _ERROR and status != GONE


def _interventions(past: Round) -> list[str]:
    """The interventions of a round, once each."""
    codes = Counter(answer.code for answer in past.answers)
    names = [name for code, name in ROUND_INTERVENTIONS.items() if codes[code]]
    named = ((CALL_INTERVENTIONS.get(answer.code or ""), answer.call.canonical) for answer in past.answers)
    names += [f"{name}:{tool}" for name, tool in named if name is not None]
    if len(past.answers) < len(past.reply.calls):
        names.append("managed_prefix_native_suffix_serialized")
    return list(dict.fromkeys(names))
