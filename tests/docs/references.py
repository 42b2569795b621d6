"""References to documents, as they stand in Python files and Markdown pages.

Rules. A page is named by its path from the root of the repository: ``docs/spec/mediation.md``
section 4, "Repeats". The number is that of a heading; the words in quotes are a heading or a bold
text of that page. A decision may be named by its number alone. A link of a Markdown page is checked
by ``test_links.py``, not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

PROJECTS = frozenset(
    {"codex", "h11", "httpx", "mitmproxy", "openclaw", "pydantic", "pytest", "redis", "smolagents"}
)
"""The projects whose GitHub issues may be cited, as in "mitmproxy issue 1234"."""
_PRIVATE = re.compile(
    r"\borigin-[a-z]+|(?<![\w/-])(?:reference|seeds)/\w+|(?<![\w/-])(?:re)?design\.md"
)
_ISSUE = re.compile(r"(?:\b(\w+)\s+)?\bissues? #?\d+", re.IGNORECASE)
_LINK = re.compile(r"\]\([^)\s]+\)")
_PAGE = re.compile(
    r"""(?<![\w/.-])(?P<path>(?:docs|spec)/[\w./-]*\w\.md)
        (?:`{0,2},?\s(?:sections?\s(?P<sections>\d+(?:(?:,\s|\sand\s|\sto\s)\d+)*)))?
        (?:`{0,2},?\s"(?P<words>[^"]+)")?""",
    re.VERBOSE,
)
_DECISION = re.compile(r"(?:docs/decisions/|\bdecisions? |\bADR )(\d{4})")
_SOURCE = re.compile(
    r"(?:docs/[\w./-]+|[A-Z]+)\.md\b|decision \d{4}\b|RFC \d+\b|JSON Schema\b|https://"
)
_BARE = re.compile(
    r"(?<![\w/.-])(?:contract|compile|mediation|mcp|responses|governance|tools-host|live-streaming)\.md"
)


def broken_references(text: str, *, is_markdown: bool = False) -> Iterator[str]:
    """Yield one sentence for each reference of a file that leads to nothing in the repository."""
    text = _LINK.sub("]", text) if is_markdown else text
    for match in _PRIVATE.finditer(text):
        yield f"{match[0]}: not in the repository"
    for match in _ISSUE.finditer(text) if "issue" in text.lower() else ():
        if (match[1] or "").lower() not in PROJECTS:
            yield f"{match[0]}: an issue of which project?"
    for match in _DECISION.finditer(text):
        if not list((ROOT / "docs" / "decisions").glob(f"{match[1]}-*.md")):
            yield f"{match[0]}: no such decision"
    if ".md" not in text:
        return
    if not is_markdown:
        for match in _BARE.finditer(text):
            yield f"{match[0]}: name it by its path, docs/spec/{match[0]}"
    for match in _PAGE.finditer(" ".join(text.split())):
        yield from _broken_page(match)


def is_public_source(source: str) -> bool:
    """Return True if each part of a requirement's source begins with something that
    a reader can look up.

    The parts are separated by semicolons. Each begins with a page, a decision, an RFC or an
    address.
    """
    return all(_SOURCE.match(part) for part in source.split("; "))


def _broken_page(match: re.Match[str]) -> Iterator[str]:
    page = ROOT / match["path"]
    if not page.is_file():
        yield f"{match['path']}: no such page"
        return
    numbers, titles = _headings(page)
    for number in re.findall(r"\d+", match["sections"] or ""):
        if number not in numbers:
            yield f"{match[0]}: no section {number}"
    words = (match["words"] or "").rstrip("…., ").lower()
    if not any(title.startswith(words) for title in titles):
        yield f"{match[0]}: neither a heading nor a bold text"


@cache
def _headings(page: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the numbers of the sections of a page, and its headings and bold texts
    in lower case.
    """
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (?:(\d+)\. )?(.+)$", text, re.MULTILINE)
    titles = [title.replace("`", "") for _, title in headings] + re.findall(r"\*\*(.+?)\*\*", text)
    return frozenset(number for number, _ in headings if number), frozenset(
        title.replace("`", "").rstrip(".,").lower() for title in titles
    )
