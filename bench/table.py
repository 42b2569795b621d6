"""The figures as a table, beside the targets."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_HEAD = ("what", "connections", "by", "p50 ms", "p99 ms", "first byte ms", "per second", "CPU ms", "CPU to bare")


_STORED = ("state", "stored turns", "of a turn p50 ms", "p99 ms", "whole turn p50 ms", "p99 ms")
_TOGETHER = ("state", "turns that write, at once", "p50 ms", "p99 ms", "pause of the loop p99 ms", "longest ms")


_ADDED = ("what", "by", "added p50 ms", "p99 ms", "over direct p50", "p99", "CPU ms", "ours, 2026-11", "original, 2026-11")
_EARLIER = {
    "arrivals, 20/s": ("27 / 55, CPU 15.5", "8 / 21, CPU 4.9"),
    "arrivals, 60/s": ("29 / 97, CPU 10.4", "7 / 19, CPU 3.8"),
    "arrivals, 20/s, cold": ("24-120 / 320-880", "8 / 21"),
    "arrivals, one every 2 s": ("+20 to 25", ""),
    "arrivals, the first after the start": ("+387", ""),
}
"""Added p50 / p99 and CPU that were measured from outside in November 2026: of this proxy then, and of the original."""


@dataclass(frozen=True)
class Results:
    """Everything that a run has measured."""

    machine: str
    added: list[dict[str, Any]]
    figures: list[dict[str, Any]]
    memory: dict[int, float]
    stored: list[dict[str, Any]]
    together: list[dict[str, Any]]

    def value(self, what: str, connections: int, subject: str, member: str) -> float | None:
        """Return one member of a figure, or None if it was not measured."""
        for figure in self.figures:
            if (figure["what"], figure["connections"], figure["subject"]) == (what, connections, subject):
                number: float | None = figure[member]
                return number
        return None


def machine(cores: Sequence[int]) -> str:
    """Return the cores and the versions of this machine."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("mitmproxy", "httpx2", "msgspec")]
    return ", ".join([f"{len(cores)} cores", f"{platform.python_implementation()} {platform.python_version()}", *versions])


def text(results: Results) -> str:
    """Return the machine, the figures, the memory and the targets as Markdown."""
    lines = ["", results.machine]
    if results.added:
        lines += ["", *grid(_ADDED, _added_lines(results))]
    if results.figures:
        lines += ["", *grid(_HEAD, _lines(results))]
    if results.memory:
        lines += ["", *grid(("turns", "memory MB"), [(f"{t:,}", f"{mb:.1f}") for t, mb in results.memory.items()])]
    for head, rows in ((_STORED, results.stored), (_TOGETHER, results.together)):
        if rows:
            lines += ["", *grid(head, [tuple(map(_cell, row.values())) for row in rows])]
    lines += ["", *grid(("target", "at most", "found", ""), [_verdict(*target) for target in targets(results)])]
    return "\n".join(lines)


def targets(results: Results) -> Iterator[tuple[str, float, float]]:
    """Yield the targets that this run has figures for: name, limit, figure."""
    one, eight = (_overhead(results, what) for what in ("turn of 1 round", "turn of 8 rounds"))
    if one is not None:
        yield "own time of a one-round turn, 1 connection, ms", 5.0, one
    if one is not None and eight is not None:
        yield "own time of each further round, 1 connection, ms", 1.5, (eight - one) / 7
    http, mcp = (_cpu_of_a_round(results, kind) for kind in ("", ", MCP"))
    if http is not None and mcp is not None:
        yield "CPU of a round with a call over MCP, to one over HTTP", 1.5, mcp / http
    for what in ("turn of 1 round", "turn of 1 round, SSE", "pass-through, SSE"):
        chat, responses = (results.value(what, 1, by, "cpu") for by in ("ours", "ours, Responses"))
        if chat and responses:
            yield f"CPU of {what}, over Responses to chat", 1.15, responses / chat
    for what in ("pass-through, JSON", "pass-through, SSE"):
        for connections in (1, 16, 64):
            bare, ours, plain = (results.value(what, connections, who, "cpu") for who in ("bare", "ours", "ours, plain"))
            if bare and ours and plain:
                yield f"CPU of {what}, connections: {connections}, to bare", 0.65, ours / bare
                yield "the same without the fast dispatch", 1.3, plain / bare
    if len(results.memory) > 1:
        values = list(results.memory.values())
        yield "memory after the last turns to after the first", 1.05, values[-1] / values[0]


def _overhead(results: Results, what: str) -> float | None:
    ours, direct = (results.value(what, 1, who, "p50") for who in ("ours", "direct"))
    return ours - direct if ours is not None and direct is not None else None


def _cpu_of_a_round(results: Results, kind: str) -> float | None:
    one, eight = (results.value(f"turn of {rounds}{kind}", 1, "ours", "cpu") for rounds in ("1 round", "8 rounds"))
    return (eight - one) / 7 if one is not None and eight is not None else None


def _verdict(name: str, limit: float, value: float) -> tuple[str, ...]:
    return name, f"{limit:g}", f"{value:.2f}", "met" if value <= limit else "missed"


def _added_lines(results: Results) -> Iterator[tuple[str, ...]]:
    for row in results.added:
        over = _over_direct(results, row)
        yield (
            row["what"],
            row["subject"],
            *(f"{row[name]:.1f}" for name in ("p50", "p99")),
            *(("", "") if over is None else (f"{each:.1f}" for each in over)),
            "" if row["cpu"] is None else f"{row['cpu']:.1f}",
            *(_EARLIER.get(row["what"], ("", "")) if row["subject"] == "ours" else ("", "")),
        )


def _over_direct(results: Results, row: dict[str, Any]) -> tuple[float, float] | None:
    """Return p50 and p99 of what a row adds to what direct calls add; a cold row has those of the warm one."""
    what = row["what"].replace(", cold", "").replace("arrivals, the first after the start", "arrivals, one every 2 s")
    for direct in results.added:
        if (direct["what"], direct["subject"]) == (what, "direct") != (row["what"], row["subject"]):
            return row["p50"] - direct["p50"], row["p99"] - direct["p99"]
    return None


def _lines(results: Results) -> Iterator[tuple[str, ...]]:
    for figure in results.figures:
        bare = results.value(figure["what"], figure["connections"], "bare", "cpu")
        cpu = figure["cpu"]
        yield (
            figure["what"],
            str(figure["connections"]),
            figure["subject"],
            *(f"{figure[name]:.2f}" for name in ("p50", "p99", "first")),
            f"{figure['per_second']:.0f}",
            "" if cpu is None else f"{cpu:.2f}",
            f"{cpu / bare:.2f}" if bare and cpu is not None else "",
        )


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def grid(head: Sequence[str], lines: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> list[str]:
    rows = [tuple(head), *lines]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    shown = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return [shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]
