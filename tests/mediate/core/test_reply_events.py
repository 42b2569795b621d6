"""Events of replies whose members are changed."""

from __future__ import annotations

import msgspec
import pytest

from claw_mediate.core.reply_events import ReplyEvent, with_data


@pytest.mark.requirement("live:secrets-members")
def test_changed_members_are_read_as_deep_as_before() -> None:
    raw = msgspec.Raw(b'{"deep": "a secret"}')
    delta = {"type": "signature_delta", "signature": "a secret", "more": raw, "index": 3}
    event = ReplyEvent("content", 2, {"type": "x", "delta": delta, "raw": raw}, "signature")
    data = msgspec.json.encode(event.data).replace(b"a secret", b"dots")

    changed = with_data(event, data)
    assert (changed.kind, changed.piece, changed.channel) == ("content", 2, "signature")
    assert changed.data["delta"]["signature"] == "dots"
    assert changed.data["delta"]["index"] == 3
    for spelled in (changed.data["raw"], changed.data["delta"]["more"]):
        assert isinstance(spelled, msgspec.Raw)
        assert bytes(spelled) == b'{"deep": "dots"}'


@pytest.mark.requirement("live:secrets-members")
def test_a_member_whose_name_is_changed_is_passed_on_as_it_came() -> None:
    changed = with_data(ReplyEvent("content", 0, {"a secret": "x"}), b'{"dots":"x"}')
    assert msgspec.json.encode(changed.data) == b'{"dots":"x"}'
