"""Schemas: the usual keywords, no reference fetched, and an answer for every
hostile schema and value.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.json_schema import check_instance, find_schema_problem
from claw_contract.json_schema_keywords import MAX_MESSAGE, parse_exact


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    assert find_schema_problem(schema) is None
    return [
        f"{found['path']}: {found['message']}"
        for found in check_instance(schema, exactly(value), 8)
    ]


def exactly(value: Any) -> Any:
    """Return the value as parsed from a model's text, with exact numbers."""
    return json.loads(json.dumps(value), parse_float=parse_exact)


def one(rule: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": rule}}


@pytest.mark.requirement("calls:schema-keywords")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (one({"type": "integer"}), {"a": 1}, {"a": 1.5}),
        (one({"type": "integer"}), {"a": 1.0}, {"a": "1"}),
        (one({"type": "number"}), {"a": 1.5}, {"a": True}),
        (one({"type": ["string", "null"]}), {"a": None}, {"a": 1}),
        (one({"enum": ["x", 1]}), {"a": "x"}, {"a": "y"}),
        (one({"const": 5}), {"a": 5}, {"a": 6}),
        (one({"minimum": 1, "exclusiveMaximum": 5}), {"a": 1}, {"a": 5}),
        (one({"multipleOf": 0.5}), {"a": 1.5}, {"a": 1.4}),
        (one({"minLength": 2, "maxLength": 3}), {"a": "éé"}, {"a": "é"}),
        (one({"pattern": "^[a-z]+$"}), {"a": "x"}, {"a": "X"}),
        (one({"items": {"type": "string"}, "minItems": 1}), {"a": ["x"]}, {"a": [1]}),
        (one({"prefixItems": [{"type": "string"}], "items": False}), {"a": ["x"]}, {"a": ["x", 1]}),
        (one({"contains": {"const": 1}}), {"a": [0, 1]}, {"a": [0]}),
        (
            one({"uniqueItems": True}),
            {"a": [1, True, "1", [1], {"x": 1}]},
            {"a": [{"x": 1}, {"x": 1.0}]},
        ),
        ({"required": ["a"]}, {"a": 1}, {}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({"patternProperties": {"^x": {"type": "string"}}}, {"xa": ""}, {"xa": 1}),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
        ({"minProperties": 1, "maxProperties": 1}, {"a": 1}, {}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"anyOf": [one({"const": 1}), one({"const": 2})]}, {"a": 2}, {"a": 3}),
        ({"oneOf": [one({"minimum": 0}), one({"minimum": 5})]}, {"a": 1}, {"a": 9}),
        ({"allOf": [one({"minimum": 0}), one({"maximum": 5})]}, {"a": 1}, {"a": 9}),
        ({"not": {"required": ["a"]}}, {}, {"a": 1}),
        ({"if": one({"const": 1}), "then": {"required": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        (
            {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}},
            {"a": 1},
            {"a": "x"},
        ),
        ({"$ref": "#/$defs/n", "$defs": {"n": one({"type": "integer"})}}, {"a": 1}, {"a": "x"}),
        (
            one({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            {"a": {"a": {}}},
            {"a": {"a": 1}},
        ),
    ],
)
def test_the_usual_keywords_hold(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert problems(schema, good) == []
    assert problems(schema, bad) != []


def test_older_drafts_keep_their_own_meaning() -> None:
    four = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **one({"minimum": 1, "exclusiveMinimum": True}),
    }
    assert problems(four, {"a": 1}) != []
    seven = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **one({"items": [{"type": "string"}]}),
    }
    assert problems(seven, {"a": [1]}) != []


@pytest.mark.requirement("calls:schema-no-fetch")
@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1:9/s.json",
        "https://evil.test/s",
        "file:///etc/passwd",
        "other.json",
        "#/nowhere",
        "http://[::1",
    ],
)
def test_a_reference_that_leads_outside_is_never_fetched(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    monkeypatch.setattr("pathlib.Path.open", forbidden)
    schema = one({"$ref": reference})
    assert "references are never fetched" in (find_schema_problem(schema) or "")
    assert len(check_instance(schema, {"a": 1}, 8)) == 1
    find_schema_problem({"$schema": reference, "type": "object"})


@pytest.mark.requirement("calls:schema-eight")
def test_at_most_eight_violations_are_reported_in_a_stable_order() -> None:
    schema = {"additionalProperties": {"type": "string"}, "required": ["z"]}
    value = {f"k{n:02}": n for n in range(20)}
    told = check_instance(schema, value, 8)
    assert [found["path"] for found in told] == ["", *(f"k{n:02}" for n in range(7))]
    assert told == check_instance(schema, dict(reversed(value.items())), 8)


def test_a_violation_has_a_path_and_a_bounded_message() -> None:
    schema = one({"items": {"properties": {"b": {"type": "integer"}}}})
    assert check_instance(schema, {"a": [{}, {"b": "x" * 5000}]}, 8)[0]["path"] == "a[1].b"
    assert len(check_instance(schema, {"a": [{"b": "x" * 5000}]}, 8)[0]["message"]) == MAX_MESSAGE


@pytest.mark.requirement("contract:quarantine")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"properties": []},
        {"required": "a"},
        {"minimum": "1"},
        {"$schema": 5},
        {"$id": 5},
        {"$id": "http://[::1", "$ref": "x"},
        one({"pattern": "("}),
        {"patternProperties": {"(": {}}},
        one({"$ref": 5}),
        json.loads('{"properties":{"a":' * 500 + "{}" + "}}" * 500),
    ],
)
def test_an_invalid_schema_is_a_reason_and_never_a_fault(schema: dict[str, Any]) -> None:
    problem = find_schema_problem(schema)
    assert problem is not None
    assert "\n" not in problem[:40]


@pytest.mark.requirement("calls:schema-hostile")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#"}, {}),
        (one({"$ref": "#"}), json.loads('{"a":' * 900 + "{}" + "}" * 900)),
        (one({"multipleOf": 0.01}), {"a": float("inf")}),
        (one({"minimum": 5}), {"a": parse_exact("1e99999999999999999999")}),
        (one({"const": 5}), {"a": parse_exact("1e99999999999999999999")}),
        (
            {
                "$id": "http://a/",
                "properties": {"a": {"$id": "http://b/", "$ref": "#/$defs/y"}},
                "$defs": {"y": {}},
            },
            {"a": 1},
        ),
    ],
    ids=["loop", "deep", "infinity", "huge", "huge-const", "scoped-reference"],
)
def test_a_value_that_can_not_be_checked_is_invalid_and_raises_nothing(
    schema: dict[str, Any], value: Any
) -> None:
    assert [found["message"] for found in check_instance(schema, value, 8)] == [
        "these arguments can't be checked against the schema"
    ]


@pytest.mark.requirement("calls:schema-hostile")
@pytest.mark.long
def test_many_items_are_compared_in_linear_time() -> None:
    items: list[Any] = [{"x": n} for n in range(100_000)]
    assert problems(one({"uniqueItems": True}), {"a": items}) == []
    assert problems(one({"uniqueItems": True}), {"a": [*items, {"x": 5.0}]}) != []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=2), part, max_size=3)
    ),
    max_leaves=5,
)


@given(st.lists(JSON, max_size=4))
def test_unique_items_agrees_with_the_library(items: list[Any]) -> None:
    from jsonschema._utils import uniq  # the library's function, which takes quadratic time

    assert (problems(one({"uniqueItems": True}), {"a": items}) == []) == uniq(items)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "$ref", "$id", "properties", "items", "enum", "pattern", "$schema"]
        ),
        JSON,
    )
)
def test_any_schema_is_checked_or_has_a_problem_and_raises_nothing(schema: dict[str, Any]) -> None:
    if find_schema_problem(schema) is None:
        check_instance(schema, {"a": 1}, 8)
