"""Secrets print as dots, and are found in everything that leaves the process."""

from __future__ import annotations

import base64
import json
import pickle
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.manifest import BearerAuth
from claw_contract.metadata import Metadata
from claw_contract.redaction.redactor import MIN_REDACTED, Redactor
from claw_contract.secret import DOTS, REVEAL, Secret, SecretRef

VALUE = "s3cr3t-value"


@pytest.mark.requirement("contract:secret-dots")
def test_a_secret_shows_dots_everywhere_but_where_it_is_revealed() -> None:
    secret = Secret(VALUE)
    auth = BearerAuth(type="bearer", token=secret)
    shown = [
        str(secret),
        repr(secret),
        f"{secret:>30}",
        f"{[secret]}",
        f"{secret!r}",
        "%s" % secret,  # noqa: UP031
    ]
    shown += [repr(auth), str(auth), auth.model_dump_json(), repr(auth.model_dump())]
    assert [text for text in shown if VALUE in text] == []
    assert all(DOTS in text for text in shown)
    assert secret.reveal() == VALUE
    assert json.loads(auth.model_dump_json(context=REVEAL))["token"] == VALUE


@pytest.mark.requirement("contract:secret-dots")
@pytest.mark.parametrize(
    "document",
    [
        {"service": "a", "pod": "p", "token": VALUE, "token_sha256": "0" * 64},
        {"service": "a", "pod": 5, "token": VALUE},
        {"service": "a", "pod": "p", "token": [VALUE]},
        {"service": "a", "pod": "p", "token_sha256": VALUE},
    ],
)
def test_an_error_line_about_a_document_never_shows_its_values(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Metadata.model_validate_json(json.dumps(document))
    assert VALUE not in error_line(caught.value)


def test_secrets_are_equal_by_value_and_never_equal_to_text() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Secret("")


def test_a_secret_has_no_dictionary_to_look_into() -> None:
    assert not hasattr(Secret(VALUE), "__dict__")
    assert pickle.loads(pickle.dumps(Secret(VALUE))) == Secret(VALUE)


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "../x", ".hidden", "a/b", "a\n", "a" * 129]
)
def test_a_reference_names_one_file_of_the_secrets_directory(name: str) -> None:
    with pytest.raises(ValidationError):
        SecretRef(secret=name)


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
