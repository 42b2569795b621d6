"""What a turn cost: the sum over its model calls, in the protocol's own words (spec/mediation.md section 4)."""

from __future__ import annotations

import json

import pytest
from inline_snapshot import snapshot

from tests.mediate.desk import Desk


@pytest.mark.requirement("loop:usage-summed")
async def test_what_anthropic_counts_apart_is_summed_too(claude: Desk) -> None:
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
        "input_tokens": 20,
        "output_tokens": 10,
        "cache_read_input_tokens": 200,
        "cache_creation": {"ephemeral_5m_input_tokens": 14},
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


@pytest.mark.requirement("loop:usage-summed")
async def test_what_openai_counts_apart_is_summed_too(gpt: Desk) -> None:
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
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 6},
        "cost": 0.5,
    }
    assert gpt.history()[-1]["usage"] == snapshot(
        {"prompt_tokens": 20, "completion_tokens": 10, "cached_tokens": 8, "reported_cost_usd": 0.5, "total_rounds": 2}
    )
