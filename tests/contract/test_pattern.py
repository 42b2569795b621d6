"""Patterns of ECMA-262's language, whose every search ends."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.pattern import PatternError, compile_pattern, find_patterns

# Patterns that Python's re reads differently or can't read, beside some that it reads alike.
CASES: list[tuple[str, str]] = [
    ("^a$", "a\n"),
    ("^a$", "a"),
    (r"^\d+$", "١٢"),
    (r"^\w+$", "é"),
    (r"^\s$", "\ufeff"),
    (r"^\s$", "\x1c"),
    (r"^\p{L}+$", "Zoë"),
    (r"^\p{Script=Greek}$", "α"),
    (r"^\u0041\x42\cC$", "AB\x03"),
    ("^.$", "😀"),
    (r"^\uD83D\uDE00$", "😀"),
    (r"^[\uD83D\uDE00-\uD83D\uDE02]$", "😁"),
    (r"^[^\0]+$", "a\0"),
    (r"^\\0$", "\\0"),
    ("b", "abc"),
    (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "abcDefg1"),
    (r"^(?!.*\.\.)[a-z.]+$", "a..b"),
    (r"(?<=\$)\d", "$5"),
    (r"^(a|b)\1$", "bb"),
    (r"^(a|b)\1$", "ab"),
    (r"^[[a&&b~~]+$", "[&a"),
    (r"^[\s\S]*$", "a\nb"),
    (r"\bfoo\b", "a foo b"),
    (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "a.b+c@d-e.f"),
]


@pytest.mark.requirement("calls:schema-patterns")
def test_patterns_mean_what_a_javascript_engine_takes_them_for() -> None:
    node = shutil.which("node")
    assert node is not None
    program = (
        "for (const [p, t] of JSON.parse(process.argv[1])) console.log(new RegExp(p, 'u').test(t))"
    )
    unescaped = [
        (source, text) for source, text in CASES if source != r"^[[a&&b~~]+$"
    ]  # legal without the u flag only
    run = subprocess.run(
        [node, "-e", program, json.dumps(unescaped)], capture_output=True, text=True, check=True
    )
    said = [line == "true" for line in run.stdout.split()]
    assert [compile_pattern(source).matches(text) for source, text in unescaped] == said
    assert compile_pattern(r"^[[a&&b~~]+$").matches("[&a")


@pytest.mark.requirement("calls:schema-bounded")
@pytest.mark.parametrize(
    "source",
    [
        "(",
        "[a-z",
        r"^a\Z",
        "(?P<n>a)(?P=n)",
        "a{",
        "(?(1)a|b)",
        "a{4294967296}",
        "(x{1000}){1000}",
        "(?:" * 5000,
        "\ud800",
    ],
)
def test_what_is_no_pattern_is_said_when_it_is_read(source: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern(source)
    assert len(str(raised.value)) < 400


@pytest.mark.requirement("calls:schema-bounded")
def test_a_search_that_backtracks_for_too_long_has_no_answer() -> None:
    assert compile_pattern(r"^(a+)\1$").matches("a" * 40)
    with pytest.raises(PatternError):
        compile_pattern(r"^(a|a)*\1$").matches("a" * 40 + "!")
    with pytest.raises(PatternError):
        compile_pattern("a").matches("\ud800")


def test_patterns_are_found_wherever_they_stand_but_in_values() -> None:
    schema = {
        "properties": {
            "pattern": {"pattern": "1"},
            "x": {"items": [{"propertyNames": {"pattern": "2"}}]},
        },
        "patternProperties": {"3": {"not": {"pattern": "4"}}},
        "enum": [{"pattern": "no"}],
        "default": {"pattern": "no"},
    }
    assert sorted(source for _, source in find_patterns(schema)) == ["1", "2", "3", "4"]


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_is_searched_as_a_pattern_or_refused_and_raises_nothing_else(
    source: str, text: str
) -> None:
    with contextlib.suppress(PatternError):
        compile_pattern(source).matches(text)
