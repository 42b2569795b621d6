"""Secrets in large documents: what is found in pieces is what is found in one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from claw_contract.redaction import redactor
from claw_contract.redaction.redactor import LongTextError, Redactor
from claw_contract.secret import DOTS
from tests.search_size import scale_examples

LETTERS = "abcdefghu0016/<>&+\"\\'-_ "


def hide(chance: random.Random, text: str) -> str:
    """Return the JSON of a text, some of whose characters are escaped without need."""
    escaped = [
        f"\\u{ord(each):04x}" if chance.random() < 0.3 else json.dumps(each)[1:-1] for each in text
    ]
    return f'"{"".join(escaped)}"'


def hidden_document(chance: random.Random, secret: str) -> bytes:
    """Return a document that holds a secret, as it is or in a document of its own."""
    other = "".join(chance.choices("abc u0", k=200))
    document = f'{{"a": {hide(chance, other + secret + other)}}}'
    if chance.random() < 0.5:
        document = f'{{"b": {hide(chance, document)}}}'
    return document.encode()


@pytest.mark.requirement("bodies:escapes")
@pytest.mark.parametrize("seed", range(scale_examples(400)))
def test_a_secret_in_escapes_is_found_wherever_a_piece_ends(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    secret = "".join(chance.choices(LETTERS, k=12))
    document = hidden_document(chance, secret)
    whole = Redactor([secret]).document(document)
    assert whole != document
    monkeypatch.setattr(redactor, "_WINDOW", 64)
    monkeypatch.setattr(redactor, "_DECODED", chance.choice([16, 50, 200, 1000]))
    assert Redactor([secret]).document(document) == whole
    assert Redactor([secret]).document(document, 10_000) == whole
    many = [hidden_document(chance, chance.choice([secret, "nothing"])) for _ in range(3)]
    documents = b'[1, "", "x\\"y", %b]' % b", ".join(many)
    in_pieces = Redactor([secret]).document(documents, 10_000)
    monkeypatch.undo()
    assert in_pieces == Redactor([secret]).document(documents)


@pytest.mark.requirement("bodies:escapes")
def test_only_a_secret_in_a_text_that_is_too_long_to_decode_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redactor, "_WINDOW", 64)
    own = Redactor(["a-secret-of-the-agent"])
    long = "x" * 3000
    assert (
        own.document(json.dumps([long, "a-secret-of-the-agent", long]).encode(), 1000)
        == json.dumps([long, DOTS, long], ensure_ascii=False).encode()
    )
    with pytest.raises(LongTextError):
        own.document(json.dumps([long + "a-secret-of-the-agent" + long]).encode(), 1000)


@pytest.mark.requirement("bodies:escapes")
@pytest.mark.parametrize("place", range(30))
def test_a_secret_in_a_number_at_the_end_of_a_step_leaves_json(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(redactor, "_WINDOW", 64)
    monkeypatch.setattr(redactor, "_DECODED", 100)
    spaces = b" " * (100 - place)
    document = b'{"pad":"%b","n":[%b11118675309123222,1]}' % (b"x" * 500, spaces)
    clear = Redactor(["8675309123"]).document(document, 10_000)
    assert json.loads(clear) == {"pad": "x" * 500, "n": [DOTS, 1]}


@pytest.mark.requirement("bodies:escapes")
def test_a_large_document_with_escapes_and_without_a_secret_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: bytes) -> bool:
        raise AssertionError("it was decoded as a whole")

    monkeypatch.setattr(redactor, "_is_json", refuse)
    document = (
        json.dumps({"a": "\\u003cp\\u003e" * 10}).encode()
        + b'{"b":"'
        + rb"\u003cp\u003e" * 500_000
        + b'"}'
    )
    assert Redactor(["a-secret-of-the-agent"]).document(document) is document


@pytest.mark.requirement("bodies:escapes")
def test_a_secret_in_deeply_nested_json_of_a_large_document_is_found() -> None:
    secret = 'pass"word'
    value: Any = {"a": f"of {secret}!"}
    for _ in range(4):
        value = {"a": json.dumps(value)}
    document = json.dumps({"pad": "x" * (5 << 20)} | value).encode()
    clear = json.loads(Redactor([secret]).document(document, 10_000))
    for _ in range(4):
        clear = json.loads(clear["a"])
    assert clear == {"a": f"of {DOTS}!"}
