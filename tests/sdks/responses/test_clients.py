"""Real clients of the Responses protocol: each plays all scenarios in one conversation
(tests/sdks/responses/plays.py).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sdks.responses.plays import PLANTED, SCENARIOS, SECONDS, Performance, plays

PLAYS = [str(play) for play in plays()]
TOLD = [play for play in PLAYS if " plain " not in play and not play.startswith("ai-sdk")]
"""The clients whose users are told of a failure behind the headers.

Vercel's SDK repeats what failed before its first word.
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS)]


@pytest.mark.requirement("responses:clients")
@pytest.mark.parametrize("play", PLAYS)
def test_the_client_gets_every_answer_and_its_last_turn_remembers_what_was_hidden(
    performance: Performance, play: str
) -> None:
    played = performance.played[play]
    expected = {
        scenario: words.format(number=played.number) for scenario, words in SCENARIOS.items()
    }
    assert dict(zip(SCENARIOS, played.said, strict=False)) == expected, played.errors
    assert played.ran == 1


@pytest.mark.requirement("responses:clients")
@pytest.mark.parametrize("play", PLAYS)
def test_the_client_has_seen_nothing_of_what_was_hidden(
    performance: Performance, play: str
) -> None:
    assert [
        word for word in ("desk__", PLANTED, "of the desk") if word in performance.played[play].seen
    ] == []


@pytest.mark.requirement("responses:clients-fail")
@pytest.mark.parametrize("play", PLAYS)
def test_a_provider_that_fails_behind_a_write_is_an_error_of_streams_and_sdks_repeat_the_rest(
    performance: Performance, play: str
) -> None:
    errors = performance.played[play].errors
    assert len(errors) == (play in TOLD), errors


@pytest.mark.requirement("responses:clients-fail")
def test_no_write_ran_twice(performance: Performance) -> None:
    assert performance.traded == Counter(
        str(played.number) for played in performance.played.values()
    )


@pytest.mark.requirement("responses:clients")
def test_the_api_refused_nothing(performance: Performance) -> None:
    assert performance.refused == []


@pytest.mark.requirement("responses:clients")
@pytest.mark.parametrize("play", [play for play in TOLD if play.startswith("openai-")])
def test_a_slow_tools_stream_was_kept_alive_by_events(performance: Performance, play: str) -> None:
    seen = performance.played[play].seen.replace(" ", "")
    assert seen.count('"type":"response.in_progress"') > seen.count('"type":"response.created"')
