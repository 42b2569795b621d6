"""Tables in Markdown, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def grid(head: Sequence[str], lines: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table."""
    rows = [tuple(head), *lines]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]
