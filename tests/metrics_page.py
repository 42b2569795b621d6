"""The table of docs/metrics.md, made from the registry; ``python -m
tests.metrics_page`` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from claw_mediate.telemetry.metrics import Metrics

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
_TABLE = re.compile(r"(?s)(?<=<!-- metrics -->\n).*(?=<!-- /metrics -->)")


def series(metric: Any) -> str:
    """Return the metric's name in a query."""
    family = metric.describe()[0]
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def table() -> str:
    """Return a row for each of our metrics, in the order of their definition."""
    rows = ["| metric | | labels | |", "|---|---|---|---|"]
    for metric in metrics():
        family = metric.describe()[0]
        labels = ", ".join(f"`{name}`" for name in metric._labelnames)
        rows.append(f"| `{series(metric)}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def metrics() -> list[Any]:
    return [each for each in vars(Metrics()).values() if hasattr(each, "_labelnames")]


def written() -> str:
    """Return the page with the current table."""
    return _TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
