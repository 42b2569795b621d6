"""The requirements and the tests name each other, both ways."""

from __future__ import annotations

import re
from pathlib import Path

from tests.requirements import AREAS, REQUIREMENTS

MARK = re.compile(r'requirement\(\s*((?:"[^"]+",?\s*)+)\)')


def named_by_tests() -> dict[str, list[str]]:
    """Return each requirement id with the files whose tests name it."""
    named: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.rglob("test_*.py")):
        for mark in MARK.findall(file.read_text(encoding="utf-8")):
            for name in re.findall(r'"([^"]+)"', mark):
                named.setdefault(name, []).append(file.name)
    return named


def test_every_requirement_has_a_test() -> None:
    assert sorted(REQUIREMENTS.keys() - named_by_tests().keys()) == []


def test_no_test_names_an_unknown_requirement() -> None:
    assert {
        name: files for name, files in named_by_tests().items() if name not in REQUIREMENTS
    } == {}


def test_no_id_stands_in_two_areas() -> None:
    assert len(REQUIREMENTS) == sum(len(area) for area in AREAS.values())


def test_ids_are_area_and_behaviour() -> None:
    assert [name for name in REQUIREMENTS if not re.fullmatch(r"[a-z]+(:[a-z0-9-]+)+", name)] == []
