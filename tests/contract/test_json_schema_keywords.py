"""Bounds of checks: every check ends, whatever the schema and the arguments are.

And numbers are compared as written.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract import json_schema
from claw_contract.json_schema import check_instance, find_schema_problem
from claw_contract.json_schema_keywords import MAX_WORK, is_multiple, parse_exact
from claw_mediate.core.tool_call import MAX_VIOLATIONS, read_arguments
from claw_mediate.core.types import Arguments
from tests.search_size import SEARCH_SIZE

DRAFTS = {
    "3": "http://json-schema.org/draft-03/schema#",
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def one(rule: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": rule}}


def nested(value: Any, times: int, *, name: str | None = None) -> Any:
    for _ in range(times):
        value = [value] if name is None else {name: value}
    return value


def doubling(keyword: str) -> dict[str, Any]:
    """Return a schema that needs 2^40 checks, in forty lines."""
    steps = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return one({"$ref": "#/$defs/d0"}) | {"$defs": {**steps, "d40": {"type": "string"}}}


def unevaluated_within(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(times):
        schema = {"type": "object", "allOf": [schema], "unevaluatedProperties": True}
    return schema


SCALE = min(1, 2 * SEARCH_SIZE)
"""The part of the budget of steps, and of the sizes beside it: a fifth in ``make
test``, the whole in ``make soak``.
"""
BUDGET = round(MAX_WORK * SCALE)
A = "a" * round(900_000 * SCALE)
MANY = list(range(100_000))
ITSELF = {
    "$defs": {"n": {"uniqueItems": True, "items": {"$ref": "#/$defs/n"}}},
    **one({"$ref": "#/$defs/n"}),
}

HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "pattern": (one({"pattern": "^(a+)+$"}), {"a": A + "!"}),
    "backreference": (one({"pattern": r"^(a|a)*\1$"}), {"a": "a" * 40 + "!"}),
    "look-ahead at each place": (
        one({"pattern": "(?:(?=.*z)a)*!"}),
        {"a": "a" * round(40_000 * SCALE) + "z"},
    ),
    "large pattern": (one({"pattern": "^(?:[ab]?){16000}x$"}), {"a": A}),
    "large pattern in each item": (
        one({"items": {"pattern": "^(?:[ab]?){16000}x$"}}),
        {"a": ["ab" * 200] * 2000},
    ),
    "names": (
        {"propertyNames": {"pattern": r"^(a|a)*\1$"}},
        {f"{'a' * 40}!{n}": 1 for n in range(2000)},
    ),
    "patterns of names": (
        {"patternProperties": {r"(a|a)*\1$": {}}},
        {f"{'a' * 40}!{n}": 1 for n in range(2000)},
    ),
    "additional": (
        {"additionalProperties": False, "patternProperties": {"^(a+)+$": {}}},
        {f"{'a' * 400}{n}": 1 for n in range(9000)},
    ),
    "unevaluated": (
        {"unevaluatedProperties": False, "patternProperties": {"^(a+)+$": {}}},
        {f"{'a' * 400}{n}": 1 for n in range(9000)},
    ),
    "unevaluated items": (
        one({"unevaluatedItems": False, "prefixItems": [{}], "contains": {"type": "string"}}),
        {"a": MANY},
    ),
    "unevaluated in unevaluated": (unevaluated_within(40), {"a": 1}),
    "doubling anyOf": (doubling("anyOf"), {"a": 1}),
    "doubling allOf": (doubling("allOf"), {"a": "x"}),
    "items": (one({"items": {"allOf": [{}] * 1000}}), {"a": MANY}),
    "bad items": (one({"items": {"type": "string"}}), {"a": MANY}),
    "required": (
        one({"items": {"required": [f"x{n}" for n in range(10_000)]}}),
        {"a": [{}] * 2000},
    ),
    "enum": (one({"items": {"enum": [f"x{n}" for n in range(10_000)]}}), {"a": ["x"] * 20_000}),
    "large enum members": (one({"items": {"enum": [MANY]}}), {"a": [MANY[:-1]] * 100}),
    "unique": (ITSELF, {"a": nested(MANY, 60)}),
    "quoted": (one({"allOf": [{"maxItems": 1}] * 500}), {"a": MANY}),
    "quoted at each depth": (
        {"properties": {"a": {"$ref": "#"}}, "not": {}},
        nested({"x": A}, 100, name="a"),
    ),
    "power": (one({"multipleOf": 0.01}), {"a": 10**4000}),
}

SOUND = {"power"}
"""Cases whose values are valid and cheap to check. No other case may pass as valid."""

CPU_SECONDS = 20
"""The limit for each case: a bounded check takes about one second, any other hours or years."""


def check_hostile_ones() -> None:
    json_schema.MAX_WORK = BUDGET
    for name, (schema, value) in HOSTILE.items():
        spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + CPU_SECONDS, resource.RLIM_INFINITY))
        print(
            json.dumps(
                [name, find_schema_problem(schema), check_instance(schema, value, MAX_VIOLATIONS)]
            ),
            flush=True,
        )


@pytest.mark.long
@pytest.mark.requirement("calls:schema-bounded", "calls:schema-hostile")
def test_no_schema_and_no_value_makes_a_check_work_for_long() -> None:
    program = f"import runpy; runpy.run_path({__file__!r})['check_hostile_ones']()"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [name for name, _, _ in lines] == list(HOSTILE), (
        run.stderr
    )  # a missing one was killed by its limit
    assert [(name, problem) for name, problem, _ in lines if problem is not None] == []
    assert {name for name, _, told in lines if told == []} == SOUND
    assert [name for name, _, told in lines if len(json.dumps(told)) > MAX_VIOLATIONS * 500] == []


@pytest.mark.requirement("calls:schema-bounded")
def test_what_a_large_call_of_an_ordinary_tool_needs_is_there() -> None:
    row = {f"p{n}": {"type": "string", "maxLength": 99, "pattern": r"^[a-z]+$"} for n in range(10)}
    schema = one(
        {
            "items": {
                "type": "object",
                "properties": row,
                "required": ["p0"],
                "additionalProperties": False,
            }
        }
    )
    assert check_instance(schema, {"a": [dict.fromkeys(row, "word")] * 2000}, 8) == []
    assert (
        check_instance(
            one({"maxLength": 2_000_000, "pattern": r"^[^\0]*$"}), {"a": "x\n" * 250_000}, 8
        )
        == []
    )


@pytest.mark.long
@pytest.mark.requirement("calls:schema-bounded")
def test_a_check_that_runs_out_of_steps_tells_what_it_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_schema, "MAX_WORK", BUDGET)
    told = check_instance(
        one({"items": {"type": "string"}}), {"a": [*range(100), *([""] * 200_000)]}, 3
    )
    assert [found["path"] for found in told] == ["a[0]", "a[1]", "a[2]"]
    assert check_instance(one({"items": {"type": "string"}}), {"a": [""] * 200_000}, 3) == [
        {"path": "", "message": "these arguments are too large to be checked against the schema"}
    ]


@pytest.mark.requirement("calls:schema-bounded")
def test_messages_and_paths_keep_both_ends_and_are_short() -> None:
    (told,) = check_instance(one({"maxLength": 5}), {"a": "x" * 5000}, 8)
    assert told["message"].startswith("'xxx")
    assert told["message"].endswith("x' is too long")
    (told,) = check_instance(
        {"additionalProperties": {"type": "null"}}, {"k" * 5000: "x" * 5000}, 8
    )
    assert (len(told["path"]), len(told["message"])) == (200, 200)


def test_violations_are_in_the_order_of_the_document() -> None:
    told = check_instance(one({"items": {"type": "string"}}), {"a": list(range(12))}, 12)
    assert [found["path"] for found in told] == [f"a[{n}]" for n in range(12)]


@pytest.mark.requirement("calls:schema-patterns", "calls:schema-keywords")
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_keyword_with_a_pattern_speaks_ecma_262_in_every_draft(draft: str) -> None:
    hopeless = r"^(a|a)*\1$"
    value = {"a" * 40 + "!": "a" * 40 + "!"}
    rules: list[dict[str, Any]] = [
        {"patternProperties": {"^\\p{L}$": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"é": {"pattern": "^\\p{L}$"}}, "additionalProperties": False},
    ]
    bound: list[dict[str, Any]] = [
        {"additionalProperties": {"pattern": hopeless}},
        {"patternProperties": {hopeless: {}}},
        {"patternProperties": {hopeless: {}}, "additionalProperties": False},
    ]
    if draft not in {"3", "4"}:
        rules.append(
            {"propertyNames": {"pattern": "^\\p{L}$"}, "additionalProperties": {"type": "string"}}
        )
        bound.append({"propertyNames": {"pattern": hopeless}})
    if draft.startswith("20"):
        rules.append(
            {"patternProperties": {"^\\p{L}$": {"type": "string"}}, "unevaluatedProperties": False}
        )
        bound.append({"patternProperties": {hopeless: {}}, "unevaluatedProperties": False})
    for rule in rules:
        schema = {"$schema": DRAFTS[draft], "type": "object", **rule}
        assert find_schema_problem(schema) is None
        assert check_instance(schema, {"é": "ü"}, 8) == []
        assert check_instance(schema, {"é": 1} if "properties" not in rule else {"é": "1"}, 8) != []
        assert check_instance(schema, {"é\n": "ü"}, 8) != []
    for rule in bound:
        told = check_instance({"$schema": DRAFTS[draft], "type": "object", **rule}, value, 8)
        assert [found["message"] for found in told] == [
            "these arguments can't be checked against the schema"
        ]


@pytest.mark.requirement("calls:schema-patterns")
def test_a_dialect_that_is_named_inside_is_no_way_round() -> None:
    inner = {"$schema": DRAFTS["7"], "patternProperties": {r"^(a|a)*\1$": {}}}
    told = check_instance(
        {"$schema": DRAFTS["7"], "properties": {"a": inner}}, {"a": {"a" * 40 + "!": 1}}, 8
    )
    assert [found["message"] for found in told] == [
        "these arguments can't be checked against the schema"
    ]


@pytest.mark.requirement("contract:quarantine", "calls:schema-bounded")
def test_a_pattern_that_can_not_be_used_is_the_reason_of_a_quarantine() -> None:
    for schema in (
        one({"pattern": r"^a\Z"}),
        {"$schema": DRAFTS["4"], "patternProperties": {r"^a\Z": {}}},
    ):
        assert find_schema_problem(schema) == (
            "inputSchema has a pattern that can't be used: '^a\\\\Z' is no regular "
            "expression of ECMA-262, or too large"
        )


MIXED = [part for n in range(round(20_000 * SCALE)) for part in (n, str(n))]


@pytest.mark.long
@pytest.mark.requirement("calls:schema-bounded")
@pytest.mark.parametrize("draft", DRAFTS)
def test_no_schema_is_read_for_long(draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "_MAX_WORK_AT_LOAD", 2 * BUDGET)
    for schema in (
        one({"enum": MIXED}),
        {"required": MIXED},
        {"dependencies": {"a": MIXED}},
        one(nested({}, 5000, name="not")),
    ):
        problem = find_schema_problem({"$schema": DRAFTS[draft], "type": "object", **schema})
        assert problem is None or len(problem) < 300
    assert find_schema_problem(
        {
            "$schema": DRAFTS[draft],
            "properties": {f"p{n}": {} for n in range(round(30_000 * SCALE))},
        }
    ) == ("inputSchema is too large")


@pytest.mark.requirement("calls:schema-keywords")
@pytest.mark.parametrize("draft", DRAFTS)
def test_what_is_wrong_with_a_schema_is_said_in_every_draft(draft: str) -> None:
    assert (
        find_schema_problem(
            {"$schema": DRAFTS[draft], **one({"minLength": 1, "items": {"maximum": 0.5}})}
        )
        is None
    )
    wrong = {"$schema": DRAFTS[draft], **one({"minLength": "1"})}
    assert (
        find_schema_problem(wrong)
        == "inputSchema is not a valid JSON Schema: '1' is not of type 'integer'"
    )


def unevaluated(rule: dict[str, Any], *, items: bool = False) -> dict[str, Any]:
    return {**rule, "unevaluatedItems" if items else "unevaluatedProperties": False}


@pytest.mark.requirement("calls:schema-keywords")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (unevaluated({"properties": {"a": {}}}), {"a": 1}, {"b": 1}),
        (unevaluated({"patternProperties": {"^a": {}}}), {"ab": 1}, {"b": 1}),
        (unevaluated({"allOf": [{"properties": {"a": {}}}]}), {"a": 1}, {"b": 1}),
        (unevaluated({"anyOf": [{"properties": {"a": {"const": 1}}}, {}]}), {"a": 1}, {"a": 2}),
        (
            unevaluated(
                {"oneOf": [{"required": ["a"], "properties": {"a": {}}}, {"maxProperties": 0}]}
            ),
            {"a": 1},
            {"b": 1},
        ),
        (
            unevaluated({"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}}),
            {"a": 1},
            {"a": 1, "b": 1},
        ),
        (
            unevaluated({"if": {"required": ["a"]}, "else": {"properties": {"b": {}}}}),
            {"b": 1},
            {"a": 1},
        ),
        (
            unevaluated({"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}}),
            {"a": 1, "b": 1},
            {"b": 1},
        ),
        (
            unevaluated({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}}),
            {"a": 1},
            {"b": 1},
        ),
        (
            unevaluated({"allOf": [{"additionalProperties": {"type": "integer"}}]}),
            {"b": 1},
            {"b": "x"},
        ),
        (unevaluated({"not": {"not": {"properties": {"a": {}}}}}), {}, {"a": 1}),
        ({"unevaluatedProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
        (one(unevaluated({"prefixItems": [{}]}, items=True)), {"a": [1]}, {"a": [1, 2]}),
        (
            one(unevaluated({"contains": {"type": "string"}}, items=True)),
            {"a": ["x"]},
            {"a": ["x", 1]},
        ),
        (
            one(unevaluated({"allOf": [{"items": {"type": "string"}}]}, items=True)),
            {"a": ["x"]},
            {"a": [1]},
        ),
        (one({"unevaluatedItems": {"type": "integer"}}), {"a": [1]}, {"a": ["x"]}),
        (
            {"$schema": DRAFTS["2019-09"], **one(unevaluated({"items": [{}]}, items=True))},
            {"a": [1]},
            {"a": [1, 2]},
        ),
        (
            {
                "$schema": DRAFTS["2019-09"],
                "$recursiveAnchor": True,
                **unevaluated({"properties": {"a": {"$recursiveRef": "#"}}}),
            },
            {"a": {"a": {}}},
            {"a": {"b": {}}},
        ),
    ],
)
def test_what_is_not_evaluated_is_found(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert find_schema_problem(schema) is None
    assert check_instance(schema, good, 8) == []
    assert check_instance(schema, bad, 8) != []


@pytest.mark.requirement("calls:schema-exact")
@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"const": 9007199254740993}, "9007199254740993", "9007199254740992"),
        ({"const": 9007199254740993}, "9007199254740993.0", "9007199254740993.1"),
        ({"enum": [0.1, 1]}, "1.0", "true"),
        ({"enum": [0.1, 1]}, "0.10", "0.1000000000000000000001"),
        ({"enum": [True]}, "true", "1"),
        ({"minimum": 0.1}, "0.1", "0.09999999999999999999999"),
        ({"maximum": 9007199254740992}, "9007199254740992", "9007199254740993"),
        ({"exclusiveMaximum": 0.3}, "0.29999999999999999999999", "0.3"),
        ({"multipleOf": 0.01}, "19.99", "19.999"),
        ({"multipleOf": 0.01}, "1e300", "1e-300"),
        ({"multipleOf": 1e-7}, "0.0000003", "0.00000035"),
        ({"multipleOf": 3}, "9007199254740993e1", "9007199254740992e1"),
        ({"multipleOf": 7}, "7e999999999", "1e999999999"),
        ({"type": "integer"}, "1.0", "1.5"),
        ({"type": "integer"}, "1e2", "1e-2"),
        ({"type": "integer"}, "1e999999999", "1e-999999999"),
        ({"uniqueItems": True}, "[9007199254740992, 9007199254740993, 0.1, true, 1]", "[1, 1.0]"),
    ],
)
def test_numbers_compare_exactly(rule: dict[str, Any], good: str, bad: str) -> None:
    assert [find_schema_problem(one(rule)), told(rule, good)] == [None, []]
    assert told(rule, bad) != []


def told(rule: dict[str, Any], text: str) -> list[dict[str, str]]:
    arguments = read_arguments(f'{{"a": {text}}}')
    assert isinstance(arguments, Arguments)
    return check_instance(one(rule), arguments.values, 8)


@pytest.mark.requirement("calls:schema-exact")
def test_a_message_writes_numbers_as_json_does() -> None:
    assert told({"minimum": 0.5, "multipleOf": 0.2}, "0.25") == [
        {"path": "a", "message": "0.25 is less than the minimum of 0.5"},
        {"path": "a", "message": "0.25 is not a multiple of 0.2"},
    ]


DECIMAL = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)


@given(DECIMAL | st.integers(), DECIMAL.filter(lambda factor: factor > 0) | st.integers(1))
def test_a_multiple_is_what_fractions_say(value: int | Decimal, factor: int | Decimal) -> None:
    assert is_multiple(value, factor) == ((Fraction(value) / Fraction(factor)).denominator == 1)


@given(DECIMAL)
def test_a_number_is_read_exactly(value: Decimal) -> None:
    assert Fraction(parse_exact(str(value))) == Fraction(value)
