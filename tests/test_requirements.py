"""The requirements and the tests name each other, both ways."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS, read_tables, table_of

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


def test_ids_are_area_and_behaviour() -> None:
    assert [name for name in REQUIREMENTS if not re.fullmatch(r"[a-z]+(:[a-z0-9-]+)+", name)] == []


def test_each_requirement_is_in_the_table_of_its_page() -> None:
    assert {
        name: requirement.table
        for name, requirement in REQUIREMENTS.items()
        if requirement.table != table_of(requirement.source)
    } == {}


EDGE_CASES = Path(__file__).parents[1] / "docs/spec/live.md"


def test_each_edge_case_of_live_streams_is_named_by_a_requirement() -> None:
    page = EDGE_CASES.read_text(encoding="utf-8")
    _, _, section = page.partition("## 12. Edge cases")
    cases = {int(number) for number in re.findall(r"(?m)^\| (\d+) \|", section)}

    named: set[int] = set()
    for name, requirement in REQUIREMENTS.items():
        if name.startswith("live:"):
            for group in re.findall(r"\(([\d#, to]+)\)", requirement.behavior):
                named |= numbers_in(group)
    assert len(cases) == 41
    assert cases - named == set()


def numbers_in(group: str) -> set[int]:
    """Return the numbers of a text such as "2 to 7, 12, #21"."""
    numbers: set[int] = set()
    for part in group.replace("#", "").split(","):
        first, _, last = part.partition(" to ")
        numbers |= {*range(int(first), int(last or first) + 1)}
    return numbers


SOUND = '["docs/spec/mcp.md"]\n"mcp:a" = "It works."\n'


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (SOUND, SOUND, r"mcp:a is in first\.toml and second\.toml"),
        (SOUND + '["docs/mcp.md"]\n"mcp:a" = "Again."\n', "", r"in first\.toml and first\.toml"),
        (SOUND + '"mcp:a" = "Again."\n', "", "overwrite"),
        ('"mcp:a" = "It works."\n', "", "stands under no source"),
        ('["docs/spec/mcp.md"]\n"mcp:a" = ""\n', "", "is no sentence"),
        ('["docs/spec/mcp.md"]\n"mcp:a" = 1\n', "", "is no sentence"),
    ],
)
def test_an_id_that_stands_twice_or_without_a_sentence_is_an_error(
    tmp_path: Path, first: str, second: str, reason: str
) -> None:
    (tmp_path / "first.toml").write_text(first, encoding="utf-8")
    (tmp_path / "second.toml").write_text(second, encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        read_tables(tmp_path)
