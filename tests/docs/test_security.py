"""Each promise of SECURITY.md names the requirements that hold it; their tests
carry the same names.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.requirements import REQUIREMENTS

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
_PROMISE = re.compile(r"^(?P<number>[0-9]+)\. (?P<text>.*(?:\n   .*)*)$", re.MULTILINE)
_NAME = re.compile(r"`([a-z]+(?::[a-z0-9-]+)+)`")


def promises(page: str) -> dict[int, tuple[str, ...]]:
    """Return the number of each promise, and the names behind its "Held by"."""
    section = page.partition("## What is promised")[2].partition("\n## ")[0]
    found = ((int(match["number"]), match["text"]) for match in _PROMISE.finditer(section))
    return {
        number: tuple(_NAME.findall(text.partition("\n   Held by ")[2])) for number, text in found
    }


@pytest.mark.requirement("docs:promises")
def test_every_promise_names_what_holds_it() -> None:
    found = promises(PAGE)
    assert [*found] == [*range(1, len(found) + 1)]
    assert len(found) >= 8
    assert [number for number, names in found.items() if not names] == []


@pytest.mark.requirement("docs:promises")
def test_what_holds_a_promise_is_a_requirement() -> None:
    """Compare names only: test_requirements.py checks that each has a test."""
    named = {name for names in promises(PAGE).values() for name in names}
    assert sorted(named - REQUIREMENTS.keys()) == []


@pytest.mark.requirement("docs:promises")
def test_a_promise_without_a_requirement_is_found() -> None:
    page = (
        "## What is promised\n\n1. A.\n   More.\n   Held by `a:b`, `c:d:e-f`.\n2. B.\n\n## "
        "What is not\n\n1. C.\n"
    )
    assert promises(page) == {1: ("a:b", "c:d:e-f"), 2: ()}
