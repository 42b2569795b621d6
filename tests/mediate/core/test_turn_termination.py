"""Every turn ends within its budgets and repeats no side effect, whatever a model says and however
long anything takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core import tool_result
from claw_mediate.core.turn import turn
from claw_mediate.core.types import (
    AskModel,
    Deliver,
    ModelFailed,
    ModelReplied,
    ModelResponse,
    Outcome,
    Refuse,
    RunTools,
    ToolCall,
    ToolResult,
    ToolsAnswered,
    ToolUse,
    TurnInput,
    TurnLimits,
)
from tests.mediate.made import called, granted, limits

TOOLS = [
    granted("desk.get", annotations={"readOnly": True}),
    granted("desk.quote", annotations={"readOnly": True, "parallel_safe": True}),
    granted("desk.set", method="POST"),
    granted("desk.drop", method="DELETE", annotations={"idempotent": True}),
    granted("desk.poll", method="POST", annotations={"x-claw.repeatable": True}),
    granted("desk.end", method="POST", annotations={"x-claw.terminalOnSuccess": True}),
    granted("other.put", method="PUT", schema={"required": ["a"]}),
]
TEXT = st.sampled_from(["{}", '{"a":1}', '{"a":1.0}', '{"a":2}', '{"a":', "[]"])
MANAGED = st.builds(called, st.sampled_from(TOOLS), TEXT)
CALL = MANAGED | st.just(called(None, owner="native")) | st.just(called(None))
REPLY = st.lists(CALL, max_size=4) | st.lists(MANAGED, min_size=1, max_size=4)
LIMITS = st.builds(
    limits,
    max_rounds=st.integers(1, 5),
    total_seconds=st.just(100.0),
    soft_seconds=st.sampled_from([10.0, 90.0]),
    tool_seconds=st.sampled_from([1.0, 30.0]),
    max_parallel=st.integers(1, 4),
    on_budget=st.sampled_from(["finalize", "error"]),
)


@dataclass
class World:
    """Peers that answer at random and note their requests. The clock never runs backwards."""

    data: st.DataObject
    limits: TurnLimits
    keeps_rounds: bool = False
    clock: float = 0.0
    asked: list[AskModel] = field(default_factory=list)
    ran: list[tuple[ToolCall, ToolResult, bool]] = field(default_factory=list)
    """Call, result, and True if the call was allowed to repeat an equal one."""

    def play(self) -> Outcome:
        playing = turn(self.limits, self.clock, keeps_rounds=self.keeps_rounds)
        heard: TurnInput | None = None
        while True:
            try:
                command = next(playing) if heard is None else playing.send(heard)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            self.clock += self.data.draw(st.sampled_from([0.0, 0.0, 1.0, 20.0, 95.0, 1000.0]))
            heard = self.model(command) if isinstance(command, AskModel) else self.tools(command)

    def model(self, command: AskModel) -> TurnInput:
        self.asked.append(command)
        assert len(self.asked) <= self.limits.max_rounds + 2
        if self.data.draw(st.integers(0, 9)) == 0:
            return ModelFailed(503, "provider_http_503", "busy", self.clock)
        calls = tuple(self.data.draw(REPLY))
        return ModelReplied(ModelResponse(b"{}", b"{}", calls, {"total_tokens": 1}), self.clock)

    def tools(self, command: RunTools) -> TurnInput:
        assert 0 < command.seconds <= self.limits.tool_seconds
        assert 1 <= len(command.calls) <= self.limits.max_parallel
        allowed = [self.may_repeat(call) for call in command.calls]
        answers = tuple(self.answer(call) for call in command.calls)
        self.ran += zip(command.calls, answers, allowed, strict=True)
        return ToolsAnswered(answers, self.clock)

    def answer(self, call: ToolCall) -> ToolResult:
        status = self.data.draw(st.sampled_from([200, 200, 404, 503, 0]))
        return (
            tool_result.read_http_response(call, status, b"{}", 2, 100)
            if status
            else tool_result.timeout(call, 1)
        )

    def may_repeat(self, call: ToolCall) -> bool:
        """Return True under the exceptions of docs/spec/mediation.md section 4,
        "Repeats", judging by the calls that ran.
        """
        assert call.tool is not None
        equal = [
            index for index, (one, _, _) in enumerate(self.ran) if one.signature == call.signature
        ]
        if not equal or call.tool.annotations.repeatable:
            return True
        first = equal[0]
        wrote = any(
            one.tool is not None and one.service == call.service and one.tool.effect != "read"
            for one, _, _ in self.ran[first + 1 :]
        )
        return call.tool.effect == "read" and (not self.ran[first][1].ok or wrote)


@pytest.mark.requirement("loop:terminates")
@settings(max_examples=300)
@given(st.data(), LIMITS, st.booleans())
def test_any_turn_ends_within_its_budgets_and_repeats_nothing_that_it_may_not(
    data: st.DataObject, limits: TurnLimits, keeps_rounds: bool
) -> None:
    world = World(data, limits, keeps_rounds)
    outcome = world.play()
    assert [call.signature for call, _, allowed in world.ran if not allowed] == []
    assert all(call.owner == "managed" and call.tool is not None for call, _, _ in world.ran)
    assert [round_.number for round_ in outcome.rounds] == list(range(1, len(outcome.rounds) + 1))
    assert len(outcome.rounds) <= limits.max_rounds + 1


@pytest.mark.requirement("loop:terminates")
@settings(max_examples=200)
@given(st.data(), LIMITS, st.booleans())
def test_what_ran_is_told_and_what_is_told_ran(
    data: st.DataObject, limits: TurnLimits, keeps_rounds: bool
) -> None:
    world = World(data, limits, keeps_rounds)
    outcome = world.play()
    told = [answer for round_ in outcome.rounds for answer in round_.results if answer.ran]
    assert told == [answer for _, answer, _ in world.ran]
    for round_ in outcome.rounds:
        calls = round_.response.calls
        ours = [call for call in calls if call.owner != "native"]
        assert len(round_.results) in ({len(calls)} if keeps_rounds else {len(ours), len(calls)})


@pytest.mark.requirement("budget:rounds")
@settings(max_examples=200)
@given(st.data(), LIMITS)
def test_nothing_runs_once_tools_are_forbidden_and_the_answer_is_the_models(
    data: st.DataObject, limits: TurnLimits
) -> None:
    world = World(data, limits)
    outcome = world.play()
    uses = [command.tool_use for command in world.asked]
    if ToolUse.FORBIDDEN in uses:
        assert uses.index(ToolUse.FORBIDDEN) == len(uses) - 1
    if isinstance(outcome, Deliver) and not outcome.terminal:
        assert {call.owner for call in outcome.response.calls} <= {"native"}
    if isinstance(outcome, Refuse):
        assert outcome.status in (502, 503)
    assert len(outcome.usage) in (len(world.asked), len(world.asked) - 1)


@pytest.mark.requirement("loop:terminates")
@given(st.integers(1, 12))
def test_a_model_that_never_stops_calling_is_asked_two_times_more_than_it_has_rounds(
    rounds: int,
) -> None:
    playing, asked, clock = turn(limits(max_rounds=rounds), 0.0), 0, 0.0
    command = next(playing)
    while True:
        if isinstance(command, AskModel):
            asked += 1
            assert asked <= rounds + 2
            call = called(TOOLS[0], f'{{"a":{asked}}}')
            heard: TurnInput = ModelReplied(ModelResponse(b"{}", b"{}", (call,), {}), clock)
        else:
            heard = ToolsAnswered(
                tuple(
                    tool_result.read_http_response(call, 200, b"", 0, 9) for call in command.calls
                ),
                clock,
            )
        try:
            command = playing.send(heard)
        except StopIteration as end:
            outcome = end.value
            break
    assert isinstance(outcome, Refuse)
    assert (outcome.code, asked) == ("tool_budget_exhausted", rounds + 2)
