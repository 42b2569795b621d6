"""Characters that nobody sees, as JSON's own escapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.unseen import escape_unseen


@pytest.mark.requirement("log:unseen")
@given(st.text())
def test_escaped_json_means_the_same(text: str) -> None:
    document = json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")
    assert json.loads(escape_unseen(document)) == json.loads(document.decode(errors="replace"))


@pytest.mark.requirement("log:unseen")
@pytest.mark.parametrize("char", ["\x7f", "\x85", "\u200b", "\u2028", "\u202e", "\ufeff"])
def test_a_character_that_nobody_sees_is_escaped(char: str) -> None:
    document = json.dumps({"model": f"a{char}b"}, ensure_ascii=False).encode()
    escaped = escape_unseen(document)
    assert escaped == b'{"model": "a\\u%04xb"}' % ord(char)


@pytest.mark.requirement("log:unseen")
def test_visible_text_stays_as_it_is() -> None:
    document = '{"model": "café → 模型"}'.encode()
    assert escape_unseen(document) == document
