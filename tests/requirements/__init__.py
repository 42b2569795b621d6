"""Every behaviour that the specification asks for, as data: a table for each page that asks for it.

In a table, a heading is a source (a page, with its section), and a line is an id with one sentence.
``test_requirements.py`` fails when a line has no test, or when a test names an id that is not here.
Read these tables beside their pages to learn what was built.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_PAGE = re.compile(r"[\w./-]+\.md")


@dataclass(frozen=True)
class Requirement:
    """One behaviour, and its source."""

    source: str
    behavior: str
    table: str
    """The name of its table, without ``.toml``."""


def read_tables(folder: Path) -> dict[str, Requirement]:
    """Return the requirements of all tables of a folder by their ids.

    Raise ``ValueError`` for an id that stands twice, and for a line that is no sentence.
    """
    requirements: dict[str, Requirement] = {}
    for file in sorted(folder.glob("*.toml")):
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        for source, lines in table.items():
            if not isinstance(lines, dict):
                raise ValueError(f"{file.name}: {source} stands under no source")  # noqa: TRY004

            for name, sentence in lines.items():
                if not isinstance(sentence, str) or not sentence:
                    raise ValueError(f"{file.name}: {name} is no sentence")
                if name in requirements:
                    earlier = requirements[name].table
                    raise ValueError(f"{name} is in {earlier}.toml and {file.name}")
                requirements[name] = Requirement(source, sentence, file.stem)
    return requirements


def table_of(source: str) -> str:
    """Return the name of the table that holds the requirements of a source.

    It is the name of the first page that the source names; decisions and RFCs have a table each.

    >>> table_of("docs/spec/mediation.md section 4, repeats"), table_of("decision 0029")
    ('mediation', 'decisions')
    """
    if source.startswith("RFC "):
        return "rfcs"
    if source.startswith(("decision ", "decisions ", "docs/decisions/")):
        return "decisions"

    page = _PAGE.match(source)
    if page is None:
        raise ValueError(f"{source!r} names no page")
    return Path(page[0]).stem.lower()


REQUIREMENTS = read_tables(FOLDER)
