"""The transcript of the README's first screen: what the agent saw, and what was hidden from it."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, blocks


def seen_answer() -> str:
    return _columns()[0]


def hidden_calls() -> list[str]:
    """Return each call as the demo prints it: ``round 1: service.tool {…}``."""
    return re.split(r" (?=round )", _columns()[1])


def _columns() -> tuple[str, str]:
    (block,) = blocks(ROOT / "README.md", "transcript")
    rows = [line.split("│") for line in block.text.splitlines()[1:]]
    seen, hidden = (" ".join(column) for column in zip(*rows, strict=True))
    return " ".join(seen.split()), " ".join(hidden.split())
