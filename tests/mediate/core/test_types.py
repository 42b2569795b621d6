"""The sums of what providers say that they used, and the signatures of calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_contract.manifest import Policy
from claw_mediate.core.types import TurnLimits, UnreadableArguments, add_usage, runner_usage
from tests.mediate.made import called, granted


@pytest.mark.requirement("loop:usage-summed")
def test_numbers_add_up_also_in_nested_objects_and_other_values_are_the_last_ones() -> None:
    parts: tuple[dict[str, Any], ...] = (
        {"prompt_tokens": 10, "details": {"cached": 4}, "tier": "a", "flag": True, "cost": 0.5},
        {"prompt_tokens": 20, "details": {"cached": 1, "new": 2}, "tier": "b", "flag": False},
        {"prompt_tokens": None, "details": 7, "tier": None, "cost": 1},
    )
    assert add_usage(parts[:2]) == {
        "prompt_tokens": 30,
        "details": {"cached": 5, "new": 2},
        "tier": "b",
        "flag": False,
        "cost": 0.5,
    }
    assert add_usage(parts)["prompt_tokens"] == 30, "null counts nothing"
    assert add_usage(parts)["cost"] == 1.5
    assert add_usage(()) == {}


@pytest.mark.requirement("loop:usage-summed")
def test_a_sum_that_no_json_can_spell_is_not_made() -> None:
    summed = add_usage(({"cost": 1e308}, {"cost": 1e308}))
    assert json.loads(json.dumps(summed, allow_nan=False)) == {"cost": 1e308}


@pytest.mark.requirement("loop:usage-for-runner")
def test_the_runner_is_told_the_last_input_and_the_sum_of_all_output() -> None:
    calls: tuple[dict[str, Any], ...] = (
        {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        {"prompt_tokens": 150, "completion_tokens": 20, "total_tokens": 170},
        {},
    )
    assert runner_usage(calls) == {
        "prompt_tokens": 150,
        "completion_tokens": 30,
        "total_tokens": 180,
    }


@pytest.mark.requirement("loop:usage-for-runner")
def test_a_member_that_the_last_call_did_not_have_is_not_told_of_an_earlier_one() -> None:
    calls: tuple[dict[str, Any], ...] = (
        {"input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 1},
        {"input_tokens": 3, "output_tokens": 2},
    )
    assert runner_usage(calls) == {"input_tokens": 3, "output_tokens": 3}


@pytest.mark.requirement("calls:duplicate-advice")
def test_equal_calls_have_one_signature_however_they_are_spelled_and_a_broken_one_has_none() -> (
    None
):
    tool = granted("desk.get")
    calls = [
        called(tool, text) for text in ('{"a":1,"b":2}', '{ "b": 2.0, "a": 10e-1 }', '{"a":1}')
    ]
    assert calls[0].signature == calls[1].signature != calls[2].signature
    broken = called(tool, '{"a"')
    assert isinstance(broken.arguments, UnreadableArguments)
    assert broken.signature is None


@pytest.mark.requirement("budget:rounds")
def test_the_limits_of_a_policy_are_seconds_and_no_tool_starts_behind_its_soft_deadline() -> None:
    policy = Policy(total_timeout_ms=60_000, timeout_per_tool_ms=1500, soft_deadline_ratio=0.5)
    made = TurnLimits.from_policy(policy)
    assert (made.total_seconds, made.tool_seconds, made.soft_seconds) == (60.0, 1.5, 30.0)
