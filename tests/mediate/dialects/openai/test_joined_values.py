"""Values of a delta that come in several chunks, joined as a whole body has them."""

from __future__ import annotations

import pytest

from claw_mediate.dialects.base import UnreadableResponseError
from tests.mediate.dialects.openai.cut_reply import END, assembled, chunk, message_of


@pytest.mark.requirement("live:chat-objects")
def test_lists_objects_and_numbers_wait_and_are_joined() -> None:
    details = [
        {"type": "reasoning.text", "index": 0, "text": "a", "format": "f"},
        {"type": "reasoning.text", "index": 0, "text": "b", "format": "f", "signature": "S1"},
        {"type": "reasoning.encrypted", "index": 0, "data": "E1"},
        {"type": "reasoning.encrypted", "index": 0, "data": "E2"},
        {"type": "reasoning.text", "index": 1, "text": "c"},
    ]
    google = [{"google": {"thought_signature": "S"}}, {"google": {"grounding": [1]}}]
    events = [
        *(chunk({"content": "x", "reasoning_details": [each]}) for each in details),
        *(chunk({"extra_content": each}) for each in google),
        chunk({"annotations": [{"url": "u"}], "tokens_left": 7}),
        chunk({"annotations": [{"url": "v"}], "tokens_left": 6}),
        END,
    ]
    _, told = assembled(events)
    objects = {each.channel for each in told if each.kind == "object"}
    assert objects == {"reasoning_details", "extra_content", "annotations", "tokens_left"}

    message = message_of(*events)
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "format": "f", "signature": "S1"},
        *details[2:],
    ]
    assert message["extra_content"] == {"google": {"thought_signature": "S", "grounding": [1]}}
    assert message["annotations"] == [{"url": "u"}, {"url": "v"}]
    assert message["tokens_left"] == 6


@pytest.mark.requirement("live:chat-objects")
def test_a_content_of_parts_waits_with_the_text_behind_it() -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    events = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": [part]}),
        chunk({"content": "It is 5."}),
        END,
    ]
    assert "content" not in {each.kind for each in assembled(events)[1]}
    assert message_of(*events)["content"] == [part, {"type": "text", "text": "It is 5."}]

    with pytest.raises(UnreadableResponseError, match="text and more"):
        assembled([chunk({"content": "Hi"}), chunk({"content": [part]})])
