"""The user's words in messages of OpenClaw, Claude Code and qwen-code."""

from __future__ import annotations

import pytest

from claw_mediate.core.user_words import own_words, without_reminders

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


NOTE = "<system-reminder>\nIt is Monday.\n</system-reminder>"


@pytest.mark.requirement("journal:reminders")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{NOTE}\n{NOTE}\nBuy", "Buy"),
        (f"Buy\n{NOTE}\nGo on.", "Buy\nGo on."),
        (f"Buy\n{NOTE}", "Buy"),
        (f"{NOTE}Buy{NOTE}", "Buy"),
    ],
)
def test_notes_beside_the_users_words_are_none_of_them(text: str, words: str) -> None:
    assert without_reminders(text) == words


@pytest.mark.requirement("journal:reminders")
@pytest.mark.parametrize(
    "text", ["Buy", "", " Buy\n", NOTE, f"{NOTE}\n{NOTE}", f"Buy {NOTE[:30]}", "</system-reminder>"]
)
def test_a_text_without_notes_and_a_note_without_words_stay_as_they_are(text: str) -> None:
    assert without_reminders(text) is text
