"""The strict reader of the JSON objects that a model writes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from claw_contract.strict_json import NoObjectError, RepeatedKeyError, read_strict_object


@pytest.mark.requirement("calls:exact-numbers")
def test_numbers_keep_their_exact_value() -> None:
    read = read_strict_object('{"a": 19.99, "b": 12345678901234567890, "c": [1e-7]}')
    assert read == {"a": Decimal("19.99"), "b": 12345678901234567890, "c": [Decimal("1E-7")]}
    assert type(read["b"]) is int


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "a": 2}', "'a'"),
        ('{"a": 1, "b": 1, "b": 2, "a": 2}', "'a'"),
        ('{"x": [{"b": 1, "\\u0062": 1}]}', "'b'"),
        (f'{{"{"k" * 99}": 1, "{"k" * 99}": 1}}', f"'{'k' * 64}'"),
    ],
)
def test_a_repeated_key_is_refused_by_its_name(text: str, key: str) -> None:
    with pytest.raises(RepeatedKeyError, match=f"the key {key} stands twice"):
        read_strict_object(text)


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.parametrize("text", ["[]", "1", "null", '"{}"'])
def test_json_that_is_no_object_is_refused_as_such(text: str) -> None:
    with pytest.raises(NoObjectError):
        read_strict_object(text)


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', '{"a": -Infinity}', "[" * 200_000])
def test_other_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_strict_object(text)
