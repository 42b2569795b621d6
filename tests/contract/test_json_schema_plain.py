"""Plain schemas are checked without the library, and never accept what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.json_schema_plain import read_plain_schema
from tests.contract.test_json_schema import exactly, one, problems

_BOUND = st.integers(-1, 3) | st.sampled_from([1.0, 1.5])
_LENGTH = st.integers(0, 3)
_RULE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["string", "integer", "number", "boolean", "null", ["string", "null"]]
        ),
        "minimum": _BOUND,
        "maximum": _BOUND,
        "minLength": _LENGTH,
        "maxLength": _LENGTH,
        "enum": st.lists(st.sampled_from(["", "x", "yes", 1]), min_size=1, unique=True),
        "description": st.just("Said to the model."),
        "not": st.just({}),
    },
)
_NAME = st.sampled_from(["a", "b", "$ref"])
_SCHEMA: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(_NAME, _RULE, max_size=3)},
    optional={
        "required": st.lists(_NAME, max_size=2, unique=True),
        "additionalProperties": st.booleans() | st.just({"type": "string"}),
        "minProperties": st.integers(0, 1),
    },
)
_VALUE = st.sampled_from(
    ["", "x", "yes", "éé", -1, 0, 1, 3, 2**70, 0.0, 1.0, 1.5, True, False, None, [], {}]
)


@pytest.mark.requirement("calls:schema-keywords")
@given(_SCHEMA, st.dictionaries(_NAME, _VALUE, max_size=3))
def test_what_a_plain_schema_accepts_the_library_accepts(
    schema: dict[str, Any], value: dict[str, Any]
) -> None:
    plain = read_plain_schema(schema)
    if plain is not None and plain.accepts(exactly(value)):
        by_the_library = {**schema, "$comment": "not plain"}
        assert read_plain_schema(by_the_library) is None
        assert problems(by_the_library, value) == []


@pytest.mark.requirement("calls:schema-keywords")
@pytest.mark.parametrize(
    ("rule", "good", "unsure"),
    [
        ({"type": "string", "minLength": 2}, "éé", "é"),
        ({"type": "string", "enum": ["x"]}, "x", "y"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, 3, 4),
        ({"type": "integer"}, 2**70, True),
        ({"type": "number", "description": "A price."}, 1, 1.5),
        ({"type": "boolean"}, False, 0),
    ],
)
def test_an_ordinary_call_is_checked_without_the_library(
    rule: dict[str, Any], good: Any, unsure: Any
) -> None:
    plain = read_plain_schema({**one(rule), "required": ["a"], "additionalProperties": False})
    assert plain is not None
    assert plain.accepts({"a": good})
    assert not any(map(plain.accepts, ({"a": unsure}, {}, {"a": good, "b": good}, [good], None)))
