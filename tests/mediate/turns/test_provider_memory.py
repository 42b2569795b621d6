"""Which providers are asked in another way: learned with each response, and bounded."""

from __future__ import annotations

import pytest

from claw_mediate.turns.provider_memory import ReplayableReasoning, StreamUsageRefusals


@pytest.mark.requirement("responses:reasoning-include")
def test_a_provider_is_asked_once_its_reasoning_could_not_be_sent_back() -> None:
    reasoning = ReplayableReasoning()
    assert not reasoning.is_asked_for("openai/m")
    reasoning.note_missing("openai/m")
    assert reasoning.is_asked_for("openai/m")
    assert not reasoning.is_asked_for("other/m")


@pytest.mark.requirement("responses:reasoning-include")
def test_a_provider_that_refused_is_never_asked_again() -> None:
    reasoning = ReplayableReasoning()
    reasoning.note_refusal("openai/m")
    reasoning.note_missing("openai/m")
    assert not reasoning.is_asked_for("openai/m")


@pytest.mark.requirement("responses:reasoning-include")
def test_a_response_of_an_unknown_maker_teaches_nothing() -> None:
    reasoning = ReplayableReasoning()
    reasoning.note_missing("")
    assert not reasoning.is_asked_for("")


@pytest.mark.requirement("responses:reasoning-include")
def test_the_makers_that_are_remembered_have_a_bound_and_the_last_one_is_among_them() -> None:
    reasoning = ReplayableReasoning()
    makers = [f"openai/model-{number}" for number in range(5000)]
    for maker in makers:
        reasoning.note_missing(maker)
    known = [maker for maker in makers if reasoning.is_asked_for(maker)]
    assert 0 < len(known) <= 1024
    assert known[-1] == makers[-1]


@pytest.mark.requirement("live:stream-usage-refused")
def test_a_provider_that_refuses_the_usage_of_streams_is_known_by_its_model() -> None:
    refusals = StreamUsageRefusals()
    assert "own/m" not in refusals
    refusals.note("own/m")
    assert "own/m" in refusals
    assert "own/other" not in refusals


@pytest.mark.requirement("live:stream-usage-refused")
def test_the_refusals_that_are_remembered_have_a_bound_and_the_last_one_is_among_them() -> None:
    refusals = StreamUsageRefusals()
    makers = [f"own/model-{number}" for number in range(5000)]
    for maker in makers:
        refusals.note(maker)
    known = [maker for maker in makers if maker in refusals]
    assert 0 < len(known) <= 1024
    assert known[-1] == makers[-1]
