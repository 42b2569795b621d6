"""The pages as the tests read them: fenced blocks with the words behind their language, and tables.

```python run          code that runs as it stands, in the environment of its page
```sh env              the environment that ``claw compile`` gives an agent, byte for byte
                       except for its token
```sh start            the command that starts the proxy
```sh first-hour …     the README's path to the first answer, run by test_first_hour.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ENTRANCES = DOCS / "entrances"
_FENCE = re.compile(r"^```(\w+)((?: [\w.-]+)*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`` (.+?) ``|`([^`]+)`")
_RULE = re.compile(r"[|\s-]+")
_OURS = ("addons", "bench", "certs", "claw_*", "docs", "pods", "scripts", "tests")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        first = next(iter(self.text.splitlines()), "")
        return f"{self.page.stem}: {self.language}: {first}"


def pages() -> list[Path]:
    """Return every page of the repository."""
    below = (
        page for folder in _OURS for place in ROOT.glob(folder) for page in place.rglob("*.md")
    )
    return sorted(
        {*ROOT.glob("*.md"), *(page for page in below if "node_modules" not in page.parts)}
    )


def blocks(page: Path, word: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, or those that have this word."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    made = [Block(page, language, tuple(words.split()), text) for language, words, text in found]
    return [block for block in made if word is None or word in block.words]


def rows(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row in the tables below a heading, without the head rows."""
    text = page.read_text(encoding="utf-8")
    level = heading.partition(" ")[0]
    section = text.split(f"{heading}\n", 1)[1]
    section = re.split(rf"^#{{1,{len(level)}}} ", section, maxsplit=1, flags=re.MULTILINE)[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    for line, following in pairwise([*table, ""]):
        if not (
            _RULE.fullmatch(line) or _RULE.fullmatch(following)
        ):  # a table's head is above its rule
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def spans(of: Iterable[list[str]]) -> set[str]:
    """Return the words in the code spans of the first column."""
    return {one or other for row in of for one, other in _SPAN.findall(row[0])}
