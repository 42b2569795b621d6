"""The replies that a stream has shown before the present one."""

from __future__ import annotations

import json

import pytest

from claw_mediate.dialects.openai.earlier_replies import ShownLogprobs, ShownTexts


@pytest.mark.requirement("live:chat-lifecycle")
@pytest.mark.parametrize(
    ("earlier", "text", "shown"),
    [
        ("a", "b", "\n\nb"),
        ("a ", "b", "b"),
        ("a", "\nb", "\nb"),
        ("a\u3000", "b", "b"),
        ("", "b", "b"),
    ],
)
def test_texts_that_would_touch_get_an_empty_line_between(
    earlier: str, text: str, shown: str
) -> None:
    """Edge 22."""
    texts = ShownTexts()
    assert not texts.has_any
    for name in ("content", "reasoning"):
        if earlier:
            texts.add(name, earlier)
    texts.begin_reply()
    texts.begin_reply()  # A reply that showed nothing
    if earlier:
        unshown = {"content": b'"Done."'}  # Of a turn that a tool ended
        assert json.loads(texts.with_earlier(unshown)["content"] or b"") == earlier
    assert texts.add("content", text) == shown
    assert texts.add("content", text) == text
    assert texts.add("reasoning", text) == text

    message = {"content": json.dumps(text * 2).encode(), "reasoning": json.dumps(text).encode()}
    joined = texts.with_earlier(message)
    assert texts.has_any
    if not earlier:
        assert joined == {}
    else:
        assert json.loads(joined["content"] or b"") == earlier + shown + text
        assert json.loads(joined["reasoning"] or b"") == earlier + text


@pytest.mark.requirement("live:secrets-next-turn")
def test_a_text_that_was_shown_with_more_than_its_body_has_is_told_so() -> None:
    texts = ShownTexts()
    texts.add("content", "sk-")
    texts.add("content", "dots")
    assert texts.with_earlier({"content": b'"dots"'}) == {"content": b'"sk-dots"'}
    assert texts.with_earlier({"content": b'"sk-dots"'}) == {}
    assert texts.with_earlier({"content": b"null"}) == {}


@pytest.mark.requirement("live:chat-lifecycle")
def test_logprobs_that_were_shown_are_left_out_of_the_end() -> None:
    shown = ShownLogprobs()
    whole = b'{"content":[1.0,2],"refusal":null}'
    assert shown.without_shown(whole) == whole

    shown.add(b'{"content":[1.0],"refusal":null}')
    shown.add(b"null")
    assert json.loads(shown.without_shown(whole) or b"") == {"content": [2]}
    shown.add(b'{"content":[2]}')
    assert shown.without_shown(whole) is None

    assert not shown.has_earlier
    shown.begin_reply()
    assert shown.has_earlier
    assert shown.with_earlier(b"null") == b'{"content":[1.0,2]}'
    assert (
        shown.with_earlier(b'{"content":[3],"refusal":[4]}')
        == b'{"content":[1.0,2,3],"refusal":[4]}'
    )
