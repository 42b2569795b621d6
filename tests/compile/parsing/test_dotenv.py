"""Compose's ``.env``."""

from __future__ import annotations

import pytest

from claw_compile.parsing.dotenv import read_dotenv
from claw_compile.parsing.node import Source, decode


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
