"""The tables in ``docs/performance.md``, each between two marks."""

from __future__ import annotations

from pathlib import Path


def replace(page: Path, name: str, text: str) -> None:
    """Write a table anew. Raise ``ValueError`` where the page has no place for it."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(
            f"{page} has no place for a table: it lacks the marks <!-- {name} --> and "
            f"<!-- /{name} -->"
        )
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")
