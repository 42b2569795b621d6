"""Compose's interpolation and Compose's ``.env``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_compile.parsing.dotenv import read_dotenv
from claw_compile.parsing.environment import MalformedReference, UnsetVariable, interpolate
from claw_compile.parsing.node import Source, decode


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
def test_interpolation_never_raises(text: str) -> None:
    interpolate(text, {"A": "1"}.get)


@pytest.mark.requirement("compile:dotenv")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("X=1", "1"),
        ("  export X = 1  # comment", "1"),
        ("X: yaml", "yaml"),
        ("X=a#b", "a#b"),
        ("X=", ""),
        ("X= # no comment", "# no comment"),
        ("X='it\\'s'", "it's"),
        ("X='${A} $A # kept'", "${A} $A # kept"),
        ('X="${A}\\n\\t\\"q\\" \\$A"', 'first\n\t"q" $A'),
        ("X=${A}-${B:-b}", "first-b"),
        ("X='two\nlines'", "two\nlines"),
        ('X="quoted" # comment', "quoted"),
        ("X=1\r", "1"),
        ("#X=2", None),
        ("X", None),
    ],
)
def test_a_line_of_dotenv_reads_as_compose_reads_it(line: str, value: str | None) -> None:
    result = read_dotenv(Source(".env", f"A=first\n{line}\nLAST=1\n"), {})
    assert result.diagnostics == ()
    assert result.value is not None
    assert result.value.get("X") == value
    assert result.value["LAST"] == "1"


@pytest.mark.requirement("compile:dotenv")
def test_a_byte_order_mark_before_dotenv_is_no_part_of_a_name() -> None:
    source = decode(".env", "\ufeffX=1\r\nY='2'\r\n".encode()).value
    assert source is not None
    assert read_dotenv(source, {}).value == {"X": "1", "Y": "2"}


@pytest.mark.parametrize(
    "line", ["X Y", "=1", "X='open", 'X="open', "X='a' b", 'X="a"b', "X=${Z:?why}", "X=${A"]
)
def test_a_bad_line_of_dotenv_is_reported_without_its_text(line: str) -> None:
    (diagnostic,) = read_dotenv(Source(".env", f"A=1\n{line}\n"), {}).diagnostics
    assert (diagnostic.code.name, diagnostic.span.line, diagnostic.span.text) == (
        "dotenv-syntax",
        2,
        "",
    )
