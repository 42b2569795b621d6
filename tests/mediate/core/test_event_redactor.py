"""Events of a reply without secrets, whatever the parts in which its texts come."""

from __future__ import annotations

import msgspec
import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS, Secret
from claw_mediate.core.event_redactor import EventRedactor
from claw_mediate.core.reply_events import ReplyEvent


@pytest.fixture
def redactor() -> EventRedactor:
    return EventRedactor(Redactor([Secret("open sesame please")]))


def words(text: str, piece: int = 0) -> ReplyEvent:
    return ReplyEvent("content", piece, {}, channel="text", text=text)


def texts(redactor: EventRedactor, *parts: str) -> list[str]:
    """Return what is shown of a text that comes in these parts, event by event."""
    shown = [redactor.redact_text(words(part)) for part in parts]
    return [event.text for event in (*shown, *redactor.flush()) if event is not None]


@pytest.mark.requirement("live:secrets")
def test_a_secret_in_two_parts_of_a_text_is_shown_in_none(redactor: EventRedactor) -> None:
    shown = "".join(texts(redactor, "The word is open ses", "ame please, and no other."))
    assert "sesame" not in shown
    assert shown.startswith("The word is ")
    assert shown.endswith(", and no other.")


@pytest.mark.requirement("live:secrets")
def test_what_may_begin_a_secret_waits_until_its_text_is_complete(redactor: EventRedactor) -> None:
    assert redactor.redact_text(words("open ses", piece=1)) is None
    assert [*redactor.flush(0)] == []
    assert [(event.piece, event.text) for event in redactor.flush(1)] == [(1, "open ses")]
    assert [*redactor.flush()] == []


@pytest.mark.requirement("live:secrets-members")
def test_the_beginning_of_a_secret_that_was_shown_is_counted_once(redactor: EventRedactor) -> None:
    assert texts(redactor, "It is ope", "n sesame please") == ["It is ope", DOTS]
    assert (redactor.take_early(), redactor.take_early()) == (3, 0)
    assert texts(redactor, "open sesame please")[-1].endswith(DOTS)
    assert redactor.take_early() == 0


@pytest.mark.requirement("live:secrets")
def test_what_waits_of_a_failed_attempt_is_no_part_of_the_next(redactor: EventRedactor) -> None:
    assert redactor.redact_text(words("open ses")) is None
    redactor.clear()
    assert texts(redactor, "Hello.") == ["Hello."]


@pytest.mark.requirement("live:secrets")
def test_a_member_of_an_event_has_no_secret_and_one_without_is_left_alone(
    redactor: EventRedactor,
) -> None:
    plain = ReplyEvent("object", 0, data={"a": msgspec.Raw(b'"b"')})
    assert redactor.redact_members(plain) is plain
    told = ReplyEvent("object", 0, data={"a": msgspec.Raw(b'"open sesame please"')})
    assert b"sesame" not in msgspec.json.encode(redactor.redact_members(told).data)
