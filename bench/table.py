"""The figures as tables, beside the targets."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from dataclasses import astuple

from arrivals import FIRST
from markdown import grid
from results import Results
from targets import targets

_EARLIER = ("ours, 2026-11", "original, 2026-11")
"""Columns of what was measured from outside in November 2026, on two cores: this proxy as it was, and the original."""
_ADDED = ("what", "by", "added p50 ms", "p99 ms", "over direct p50", "p99", "CPU ms", *_EARLIER)
_ADDED_EARLIER = {
    "arrivals, 20/s": ("27 / 55, CPU 15.5", "8 / 21, CPU 4.9"),
    "arrivals, 20/s, cold": ("24-120 / 320-880", "as warm"),
    "arrivals, 60/s": ("29 / 97, CPU 10.4", "7 / 19, CPU 3.8"),
    "arrivals, one every 2 s": ("20-25", ""),
    FIRST: ("387", ""),
}
_KEPT = ("what", "connections", "by", "p50 ms", "p99 ms", "first byte ms", "per second", "CPU ms", "CPU to bare", *_EARLIER)
_KEPT_EARLIER = {
    ("turn of 1 round", 1): ("p50 10.2", "p50 1.7"),
    ("turn of 1 round", 16): ("p50 101", "p50 14"),
    ("turn of 8 rounds", 1): ("p50 27", "p50 7.4"),
    ("turn of 8 rounds", 16): ("p50 335", "p50 61"),
    ("pass-through, JSON", 1): ("p50 2.0-3.2", "p50 0.65"),
    ("pass-through, JSON", 16): ("403/s", "2,358/s"),
}
_STORED = ("state", "stored turns", "of a turn p50 ms", "p99 ms", "whole turn p50 ms", "p99 ms")
_TOGETHER = ("state", "turns that write, at once", "p50 ms", "p99 ms", "pause of the loop p99 ms", "longest ms")
_TARGETS = ("target", "limit", "found", "", "empty addon")


def machine(cores: Sequence[int]) -> str:
    """Return the cores and the versions of this machine."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("mitmproxy", "httpx2", "msgspec")]
    return ", ".join([f"{len(cores)} cores", f"{platform.python_implementation()} {platform.python_version()}", *versions])


def text(results: Results) -> str:
    """Return the machine, the figures, the memory and the targets as Markdown."""
    tables: list[tuple[Sequence[str], list[tuple[str, ...]]]] = [
        (_ADDED, list(_added_lines(results))),
        (_KEPT, list(_kept_lines(results))),
        (("turns", "memory MB"), [(f"{turns:,}", f"{mb:.1f}") for turns, mb in results.by_turns.items()]),
        (("agents", "memory MB"), [(f"{agents:,}", f"{mb:.1f}") for agents, mb in results.by_agents.items()]),
        (_STORED, [tuple(map(_cell, astuple(row))) for row in results.stored]),
        (_TOGETHER, [tuple(map(_cell, astuple(row))) for row in results.together]),
        (_TARGETS, [target.cells() for target in targets(results)]),
    ]
    lines = ["", results.machine, *(line for head, rows in tables if rows for line in ("", *grid(head, rows)))]
    return "\n".join(lines if results.has_workers else [*lines, "", "Not built: claw proxy --workers"])


def _added_lines(results: Results) -> Iterator[tuple[str, ...]]:
    for row in results.added:
        over = results.over_direct(row.what, row.subject) if row.subject != "direct" else None
        yield (
            row.what,
            row.subject,
            f"{row.p50:.1f}",
            f"{row.p99:.1f}",
            *(("", "") if over is None else (f"{over[0]:.1f}", f"{over[1]:.1f}")),
            "" if row.cpu is None else f"{row.cpu:.1f}",
            *(_ADDED_EARLIER.get(row.what, ("", "")) if row.subject == "ours" else ("", "")),
        )


def _kept_lines(results: Results) -> Iterator[tuple[str, ...]]:
    for row in results.figures:
        bare = results.value(row.what, row.connections, "bare", "cpu")
        yield (
            row.what,
            str(row.connections),
            row.subject,
            *(f"{milliseconds:.2f}" for milliseconds in (row.p50, row.p99, row.first)),
            f"{row.per_second:.0f}",
            "" if row.cpu is None else f"{row.cpu:.2f}",
            f"{row.cpu / bare:.2f}" if bare and row.cpu is not None else "",
            *(_KEPT_EARLIER.get((row.what, row.connections), ("", "")) if row.subject == "ours" else ("", "")),
        )


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
