"""Redaction: a secret is found in every text and spelling, and nothing else is changed."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.redaction.redactor import MIN_REDACTED, START_LENGTH, Redactor
from claw_contract.redaction.window import TextWindow
from claw_contract.secret import DOTS
from tests.contract.test_secret import VALUE

ENCODERS = [
    base64.b64encode,
    base64.urlsafe_b64encode,
    lambda raw: quote(raw, safe="").encode(),
    lambda raw: re.sub("%..", lambda escape: escape[0].lower(), quote(raw, safe="")).encode(),
]
SECRETS = st.lists(st.text(min_size=MIN_REDACTED, max_size=20), min_size=1, max_size=4)


@pytest.mark.requirement("contract:redaction")
@given(SECRETS, st.data())
def test_no_secret_is_left_in_any_text(secrets: list[str], data: st.DataObject) -> None:
    parts = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(secrets)), max_size=8)
    text = "".join(data.draw(parts))
    dots = set(DOTS)
    clear = Redactor(secrets).text(text)
    assert [secret for secret in secrets if secret in clear and not dots & set(secret)] == []


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("length", [6, 14, 15, 22, 23, 31, 39, 47, 100])
@pytest.mark.parametrize("number", [1, 8])
def test_a_secret_is_found_wherever_it_begins(length: int, number: int) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    secrets = [f"{letter}{letters * 4}"[:length] for letter in letters[:number]]
    redactor = Redactor(secrets)
    for secret in secrets:
        for place in range(40):
            before, after = "." * place, "." * (80 - place)
            assert redactor.text(before + secret + after) == before + DOTS + after


@pytest.mark.requirement("contract:redaction")
def test_a_secret_within_another_is_no_reason_to_leave_an_end_of_that_one() -> None:
    redactor = Redactor(["analyst:s3cr3t-half", "s3cr3t-half"])
    token = b"analyst:s3cr3t-half"
    text = b"%b %b %b" % (token, b"s3cr3t-half", base64.b64encode(token))

    assert redactor.data(text).decode() == f"{DOTS} {DOTS} {DOTS}=="


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("encode", ENCODERS[:2])
@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("behind", range(4))
@pytest.mark.parametrize("secret", ["s3cr3t?>", "s3cr3t?>\u00ff", "s3cr3t-half"])
def test_no_character_of_base64_that_a_secret_decides_is_left(
    encode: Callable[[bytes], bytes], before: int, behind: int, secret: str
) -> None:
    text, zeros, ones = [
        encode(byte * before + secret.encode() + byte * behind).decode()
        for byte in (b"x", b"\0", b"\xff")
    ]
    unpadded = zeros.rstrip("=")
    decided = [place for place, each in enumerate(unpadded) if each == ones[place]]
    begin, end = decided[0], decided[-1] + 1
    assert len(decided) == end - begin

    redactor = Redactor([secret])
    assert redactor.text(text) == f"{text[:begin]}{DOTS}{text[end:]}"
    window = TextWindow(redactor)
    told = "".join([window.feed(character) for character in text]) + window.flush()
    assert window.early < START_LENGTH
    assert told == f"{text[: begin + window.early]}{DOTS}{text[end:]}"


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize(
    "secret", ['pass"word/1', "p\\ss/word", "pässwörd", "a\nsecret", "plain-word"]
)
@pytest.mark.parametrize("spell", [json.dumps, lambda text: json.dumps(text).replace("/", "\\/")])
@pytest.mark.parametrize("nested", range(6))
def test_a_secret_is_found_in_json_however_deep_that_is_nested(
    secret: str, spell: Callable[[Any], str], nested: int
) -> None:
    value: Any = {"a": f"of {secret}!"}
    for _ in range(nested):
        value = {"a": spell(value)}
    clear = json.loads(Redactor([secret]).document(spell(value).encode()))
    for _ in range(nested):
        clear = json.loads(clear["a"])
    assert clear == {"a": f"of {DOTS}!"}


@pytest.mark.requirement("contract:redaction")
@given(SECRETS, st.data())
def test_a_json_document_without_its_secrets_is_still_json(
    secrets: list[str], data: st.DataObject
) -> None:
    leaves = st.one_of(
        st.text(max_size=8), st.sampled_from(secrets), st.integers(), st.booleans(), st.none()
    )
    inside = st.recursive(
        leaves, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=4), part)
    )
    document = json.dumps(data.draw(inside), ensure_ascii=data.draw(st.booleans())).encode()
    punctuation = set('",:[]{} ')
    if any(punctuation & set(secret) for secret in secrets):
        return
    clear = Redactor(secrets).document(document)
    values = json.loads(clear)
    flat = json.dumps(values, ensure_ascii=False)
    assert [secret for secret in secrets if secret in flat and secret in _texts(values)] == []


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "\0".join([*value, *map(_texts, value.values())])
    if isinstance(value, list):
        return "\0".join(map(_texts, value))
    return value if isinstance(value, str) else ""


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize(
    ("secret", "document", "clear"),
    [
        ("123456", b'{"a":9123456,"b":"x123456"}', {"a": DOTS, "b": f"x{DOTS}"}),
        ('pass"word', b'{"a":"pass\\"word"}', {"a": DOTS}),
        ("p/a/s/s/w", b'{"a":"p\\/a\\/s\\/s\\/w"}', {"a": DOTS}),
        ("pässwörd", b'{"a":"p\\u00e4ssw\\u00f6rd"}', {"a": DOTS}),
        ("nsecret", b'{"a":"\\nsecret"}', {"a": "\nsecret"}),
        ("s3cr3t", b'{"s3cr3t":1}', {DOTS: 1}),
        ("false-", b'{"a":false}', {"a": False}),
        ("s3cr3t", b'{"a":"\\u0073\\u0033\\u0063r3t"}', {"a": DOTS}),
        ("a<b>&c", b'{"a":"a\\u003cb\\u003e\\u0026c"}', {"a": DOTS}),
        ('pass"word', b'{"a":"{\\"b\\":\\"pass\\\\\\"word\\"}"}', {"a": f'{{"b":"{DOTS}"}}'}),
        ("s3cr3t", b'{"a":"[\\"\\\\u0073\\\\u0033cr3t\\"]"}', {"a": f'["{DOTS}"]'}),
    ],
)
def test_a_secret_is_found_in_every_spelling_of_json(
    secret: str, document: bytes, clear: dict[str, Any]
) -> None:
    assert json.loads(Redactor([secret]).document(document)) == clear


@pytest.mark.requirement("contract:redaction")
@given(
    st.text(min_size=12, max_size=40),
    st.text(max_size=5),
    st.text(max_size=5),
    st.sampled_from(ENCODERS),
)
def test_a_secret_is_found_in_the_encodings_of_urls_and_headers(
    secret: str, before: str, after: str, encode: Callable[[bytes], bytes]
) -> None:
    raw = secret.encode()
    clear = Redactor([secret]).data(encode(before.encode() + raw + after.encode()))
    assert encode(raw) not in clear
    assert DOTS.encode() in clear


def test_overlapping_secrets_leave_no_tail() -> None:
    assert Redactor(["abcdef", "defghijk"]).text("abcdefghijk!") == f"{DOTS}!"


def test_short_values_are_not_blanked_out() -> None:
    assert Redactor(["ab", ""]).text("abab") == "abab"


@given(st.integers(0, 30))
def test_a_cut_never_goes_through_a_secret(limit: int) -> None:
    cut = Redactor([VALUE]).cut(b"before " + VALUE.encode() + b" after", limit)
    assert cut in (b"before ", b"before "[:limit]) or VALUE.encode() in cut
    assert len(cut) <= limit
