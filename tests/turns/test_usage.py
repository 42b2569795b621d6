"""The usage of a turn: in the runner's response, in history, and of each round
(docs/spec/mediation.md section 4).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk

pytestmark = pytest.mark.both_forms


@pytest.mark.requirement("loop:usage-summed", "loop:usage-for-runner")
async def test_anthropic_runner_gets_last_input_and_all_output_and_history_the_sum(
    claude: Desk,
) -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 7},
        "server_tool_use": {"web_search_requests": 1},
        "service_tier": "standard",
    }
    claude.model_says(("desk.balance", {}), usage=usage)
    claude.model_says("Done.", usage=usage)
    await claude.asks("Go")
    assert json.loads(claude.body)["usage"] == {
        "input_tokens": 10,
        "output_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 7},
        "server_tool_use": {"web_search_requests": 2},
        "service_tier": "standard",
    }
    assert claude.history()[-1]["usage"] == snapshot(
        {
            "prompt_tokens": 20,
            "completion_tokens": 10,
            "cached_tokens": 200,
            "reported_cost_usd": None,
            "total_rounds": 2,
        }
    )


@pytest.mark.requirement("loop:usage-summed", "loop:usage-for-runner")
async def test_openai_runner_gets_last_input_and_all_output_and_history_the_sum(gpt: Desk) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
        "cost": 0.25,
    }
    gpt.model_says(("desk.balance", {}), usage=usage)
    gpt.model_says("Done.", usage=usage)
    await gpt.asks("Go")
    assert json.loads(gpt.body)["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 10,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 6},
        "cost": 0.5,
    }
    assert gpt.history()[-1]["usage"] == snapshot(
        {
            "prompt_tokens": 20,
            "completion_tokens": 10,
            "cached_tokens": 8,
            "reported_cost_usd": 0.5,
            "total_rounds": 2,
        }
    )


@pytest.mark.requirement("loop:usage-for-runner")
async def test_the_input_of_the_last_call_is_not_mixed_with_the_cache_of_an_earlier_one(
    claude: Desk,
) -> None:
    claude.model_says(
        ("desk.balance", {}),
        usage={"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 70},
    )
    claude.model_says("Done.", usage={"input_tokens": 90, "output_tokens": 2})
    await claude.asks("Go")
    assert json.loads(claude.body)["usage"] == {"input_tokens": 90, "output_tokens": 3}


@pytest.mark.requirement("loop:usage-for-runner")
async def test_total_keeps_what_a_provider_counts_beside_input_and_output(gpt: Desk) -> None:
    gpt.model_says(
        ("desk.balance", {}),
        usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40},
    )
    gpt.model_says("Done.", usage={"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 60})
    await gpt.asks("Go")
    assert json.loads(gpt.body)["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 12,
        "total_tokens": 65,
    }


@pytest.mark.requirement("history:round-usage")
async def test_round_usage_has_the_names_of_history_in_openai(gpt: Desk) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    gpt.model_says(("desk.balance", {}), usage=usage)
    assert await round_usage(gpt) == [
        {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}
    ]


@pytest.mark.requirement("history:round-usage")
async def test_round_usage_has_the_names_of_history_in_anthropic(claude: Desk) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 4}
    claude.model_says(("desk.balance", {}), usage=usage)
    assert await round_usage(claude) == [
        {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}
    ]


async def round_usage(desk: Desk) -> list[Any]:
    desk.model_says("Done.")
    await desk.asks("Go")
    return [past["round_usage"] for past in desk.history()[-1]["tool_trace"]]
