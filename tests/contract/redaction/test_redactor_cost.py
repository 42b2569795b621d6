"""The cost of the search for secrets, and the memory that it keeps, for any input:
counted, not timed.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.redaction import redactor as module
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS, Secret

KNOWN = ("s3cr3t-value", "123456", "a,b:[c", "aaaaaa", 'pass"word')
HIDDEN = "\\u0041"


class CountingRedactor(Redactor):
    """A redactor that counts its searches, and the tokens that it looks at one by one."""

    def __init__(self, *secrets: str) -> None:
        super().__init__(map(Secret, secrets))
        self.tokens = self.searches = self.found = 0

    def _token(self, token: bytes) -> bytes:
        self.tokens += 1
        return super()._token(token)

    def _spans(self, data: bytes) -> module.Spans:
        self.searches += 1
        return super()._spans(data)


@pytest.mark.requirement("redactor:cost")
def test_only_tokens_in_which_a_secret_is_or_may_hide_are_looked_at() -> None:
    redactor = CountingRedactor(*KNOWN)
    document = json.dumps({"n": [1] * 5000, "s": ['"a\n'] * 5000}).encode()
    assert (
        redactor.document(document[:-1] + f', "a": "{HIDDEN}"}}'.encode())[-13:]
        == b', "a": "\\u0041"}'[-13:]
    )
    assert redactor.tokens == 1
    assert redactor.document(document[:-1] + b', "a": 91234567, "s3cr3t-value": [1, 2]}').endswith(
        f', "a": "{json.loads(json.dumps(DOTS))}", "{DOTS}": [1, 2]}}'.encode()
    )
    assert redactor.tokens == 3


TEXTS = st.lists(
    st.sampled_from([*KNOWN[:4], "", "aaaa", "a", '"', "\\", "\n", "ä", "{", "x"]), max_size=4
).map("".join)


def spelled(value: Any) -> bytes:
    """Return JSON with escaped letters in some of its strings."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r'(?<=")[a-z]', lambda letter: f"\\u{ord(letter[0]):04x}", text, count=2).encode()


@given(
    st.recursive(
        TEXTS | st.integers(),
        lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part),
    )
)
def test_what_is_found_is_what_looking_at_every_token_would_find(value: Any) -> None:
    redactor = Redactor(KNOWN[:4])
    for document in (spelled(value), spelled([value, json.dumps(value)])):
        if not redactor._spans(document) and not module._HIDING.search(document):
            continue
        every = module._TOKEN.sub(lambda token: redactor._token(token[0]), document)
        assert redactor.document(document) == every


@pytest.mark.requirement("redactor:cost")
def test_lines_are_searched_at_once_however_many_there_are() -> None:
    redactor = CountingRedactor("s3cr3t-value", "two\nlines")
    lines = [b"a s3cr3t-value b", b"", b"two", b"lines", b"s3cr3t-value"] * 1000
    dots = DOTS.encode()
    assert redactor.lines(lines)[:5] == [b"a " + dots + b" b", b"", dots, dots, dots]
    assert redactor.searches == 1
    assert redactor.lines(clear := [b"a", b"b"]) is clear


@pytest.mark.requirement("redactor:cost")
def test_a_secret_that_overlaps_itself_is_one_place_and_not_one_for_each_byte() -> None:
    redactor = Redactor(["a" * length for length in range(6, 30)])
    with_others = b"b" + b"a" * 100_000 + b"b"
    tracemalloc.start()
    assert redactor.data(with_others) == b"b" + DOTS.encode() + b"b"
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4_000_000


MANY = tuple(
    f"agent-{number}:" + f"{number:x}/z~\u00e4"[: 1 + number % 5] * (1 + number % 7)
    for number in range(40)
)


class Text(bytes):
    """A text that counts how often it is searched."""

    searches = 0

    def find(self, *of: Any) -> int:
        self.searches += 1
        return super().find(*of)


@pytest.mark.requirement("redactor:cost")
def test_a_short_text_is_not_searched_for_each_of_many_secrets() -> None:
    long = Redactor([Secret(f"agent-{number}:of the pod's many agents") for number in range(40)])
    text = Text(b'{"claw_id":"agent-17","type":"request","path":"/v1/chat/completions"}')
    assert long.data(text) is text
    assert text.searches == 0


@given(
    st.sampled_from(MANY),
    st.integers(0, 9),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.data(),
)
def test_among_many_secrets_each_is_found_in_every_form_and_place(
    secret: str, shift: int, before: bytes, behind: bytes, data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from(sorted(module.encoded_forms(secret))))
    text = before + b"-" * shift + form + behind
    redacted = Redactor(map(Secret, MANY)).data(text)
    assert form not in redacted
    assert DOTS.encode() in redacted


@pytest.mark.requirement("redactor:kept")
def test_nothing_is_kept_of_what_a_stranger_shows() -> None:
    base = Redactor([Secret("s3cr3t-value")])
    shown = [f"{number:06}" + "x" * 100_000 for number in range(20)]
    tracemalloc.start()
    assert all(
        base.with_secrets([each]).text(f"a {each} s3cr3t-value") == f"a {DOTS} {DOTS}"
        for each in shown
    )
    assert all(Redactor([each]).text(each) == DOTS for each in shown)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000


@pytest.mark.requirement("redactor:kept")
def test_what_is_known_of_many_is_not_made_anew_for_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = Redactor([Secret(f"s3cr3t-of-{number}") for number in range(1000)])
    encoded_forms = module.encoded_forms
    made: list[str] = []
    monkeypatch.setattr(
        module, "encoded_forms", lambda value: made.append(value) or encoded_forms(value)
    )
    more = base.with_secrets(["another-token", "s3cr3t-of-5"])
    assert more.text("another-token s3cr3t-of-5 s3cr3t-of-999") == f"{DOTS} {DOTS} {DOTS}"
    assert base.with_secrets(["s3cr3t-of-5", "short"]) is base
    assert made == ["another-token"]
