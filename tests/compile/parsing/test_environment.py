"""Compose's interpolation of variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_compile.parsing.environment import MalformedReference, UnsetVariable, interpolate


@pytest.mark.requirement("compile:interpolation")
@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("$A-${A}", {"A": "1"}, "1-1"),
        ("${A:-${B:-c}}", {}, "c"),
        ("${A-x:-y}", {}, "x:-y"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A-d}", {"A": ""}, ""),
        ("${A:-d}", {"A": " "}, " "),
        ("${A:+x}", {"A": ""}, ""),
        ("${A+x}", {"A": ""}, "x"),
        ("${A:+${B}}", {"A": "1", "B": "2"}, "2"),
        ("$$HOME $${A}", {}, "$HOME ${A}"),
        ("a $ b$1 $", {}, "a $ b$1 $"),
        ("${A:-}", {}, ""),
        ("${A:-http://x:1}/", {}, "http://x:1/"),
        ("${A:?${NOT_READ}}", {"A": "1"}, "1"),
    ],
)
def test_variables_are_filled_in_as_compose_does_it(
    text: str, environ: dict[str, str], expected: str
) -> None:
    result = interpolate(text, environ.get)
    assert (result.text, result.problems) == (expected, ())


@pytest.mark.parametrize(
    ("text", "environ", "problem"),
    [
        ("$A", {}, UnsetVariable("A")),
        ("${A}", {}, UnsetVariable("A")),
        ("x${A:?need A}", {}, UnsetVariable("A", "need A")),
        ("${A:?need A}", {"A": ""}, UnsetVariable("A", "need A")),
        ("${A?}", {}, UnsetVariable("A", "")),
        ("${A:-a\nb}", {}, MalformedReference(0)),
        ("${", {}, MalformedReference(0)),
        ("${}", {}, MalformedReference(0)),
        ("${A:}", {}, MalformedReference(0)),
        ("${1}", {}, MalformedReference(0)),
    ],
)
def test_what_can_not_be_filled_in_is_a_problem(
    text: str, environ: dict[str, str], problem: object
) -> None:
    assert interpolate(text, environ.get).problems == (problem,)


def test_a_value_is_tainted_and_a_default_is_not() -> None:
    assert interpolate("${A:-d}", {"A": "secret"}.get).tainted
    assert not interpolate("${A:-d}", {}.get).tainted


@given(st.text(alphabet="${}AB:-?+ x", max_size=60))
def test_interpolation_of_any_text_raises_nothing(text: str) -> None:
    interpolate(text, {"A": "1"}.get)
