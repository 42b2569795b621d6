"""The user's words in messages of OpenClaw."""

from __future__ import annotations

import pytest

from claw_mediate.core.user_words import own_words

TIME = "[Sat 2026-11-28 19:20 UTC] "
QUEUED = "[Queued user message from a previous active turn; preserved as context only.]\n"
GO_ON = "\n\nContinue the current task from the existing transcript."
RUNTIME = "\n\nRuntime: agent=main | host=vm"


@pytest.mark.requirement("journal:openclaw")
@pytest.mark.parametrize("words", ["Buy", "", "Buy\n\nSell", f"Say {GO_ON}{RUNTIME}, please"])
def test_the_wrapping_of_openclaw_is_not_what_the_user_said(words: str) -> None:
    assert own_words(f"{TIME}{words}{RUNTIME}") == words
    assert own_words(f"{TIME}{QUEUED}{words}{GO_ON}{RUNTIME}") == words


@pytest.mark.requirement("journal:openclaw")
@pytest.mark.parametrize(
    "text", ["Buy", f"Buy{RUNTIME}", f"{QUEUED}Buy", "[Sat] Buy", "[2026-11-28 19:20] Buy", ""]
)
def test_words_of_others_stay_as_they_are(text: str) -> None:
    assert own_words(text) == text
