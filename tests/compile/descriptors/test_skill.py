"""A skill's file: its description, and mistakes of its front matter."""

from __future__ import annotations

import pytest

from claw_compile.descriptors.skill import MAX_DESCRIPTION, read_skill
from claw_compile.parsing.node import Source


@pytest.mark.requirement("compile:skills")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("---\ndescription: How to trade\n---\n# Trading\n", "How to trade"),
        ("---\ndescription: >\n  In two\n  lines\n---\n", "In two lines"),
        ("# **Trading**\n\nMore.\n", "Trading"),
        ("\n\n  text  \n", "text"),
        ("", ""),
        (f"# {'x' * 2000}\n", "x" * MAX_DESCRIPTION),
    ],
)
def test_the_description_is_of_the_front_matter_or_the_first_line(
    text: str, description: str
) -> None:
    result = read_skill("skills/trade.md", "skills/trade.md", Source("trade.md", text))
    assert result.diagnostics == ()
    assert result.value is not None
    assert (result.value.name, result.value.description) == ("trade.md", description)
    assert result.value.content == text.encode()


@pytest.mark.requirement("compile:skills")
@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("---\ndescription: open\n", "bad-skill", 1),
        ("---\nname: x\n---\n", "bad-skill", 2),
        ("---\nname: x\ndescription: [a]\n---\n", "bad-skill", 3),
        ("---\na: b\n\tc: d\n---\n", "yaml-syntax", 3),
    ],
)
def test_a_mistake_in_the_front_matter_is_told_in_its_line(text: str, code: str, line: int) -> None:
    (told,) = read_skill("trade.md", "trade.md", Source("trade.md", text)).diagnostics
    assert (told.code.name, told.span.line) == (code, line)
