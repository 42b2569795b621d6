"""The figures as tables, beside the targets."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from dataclasses import astuple

from markdown import grid
from results import Results
from targets import targets

_ARRIVALS = ("what", "by", "added p50 ms", "p99 ms", "over direct p50", "p99", "CPU ms")
_KEPT = (
    "what",
    "connections",
    "by",
    "p50 ms",
    "p99 ms",
    "first byte ms",
    "per second",
    "CPU ms",
    "CPU to bare",
)
_STORED = ("state", "stored turns", "of a turn p50 ms", "p99 ms", "whole turn p50 ms", "p99 ms")
_TOGETHER = (
    "state",
    "turns that write, at once",
    "p50 ms",
    "p99 ms",
    "pause of the loop p99 ms",
    "longest ms",
)
_SIZES = ("a core does, and a proxy takes", "")
_TARGETS = ("target", "limit", "found", "", "empty addon")


def machine(cores: Sequence[int]) -> str:
    """Return the cores and the versions of this machine."""
    versions = [
        f"{name} {importlib.metadata.version(name)}" for name in ("mitmproxy", "httpx2", "msgspec")
    ]
    return ", ".join(
        [
            f"{len(cores)} cores",
            f"{platform.python_implementation()} {platform.python_version()}",
            *versions,
        ]
    )


def tables(results: Results) -> dict[str, str]:
    """Return the tables as Markdown, by their names in ``docs/performance.md``."""
    found: dict[str, tuple[Sequence[str], list[tuple[str, ...]]]] = {
        "arrivals": (_ARRIVALS, list(_overhead_lines(results))),
        "kept": (_KEPT, list(_kept_lines(results))),
        "turns": (
            ("turns", "memory MB"),
            [(f"{turns:,}", f"{mb:.1f}") for turns, mb in results.by_turns.items()],
        ),
        "agents": (
            ("agents", "memory MB"),
            [(f"{agents:,}", f"{mb:.1f}") for agents, mb in results.by_agents.items()],
        ),
        "stored": (_STORED, [tuple(map(_cell, astuple(row))) for row in results.stored]),
        "together": (_TOGETHER, [tuple(map(_cell, astuple(row))) for row in results.together]),
        "sizes": (_SIZES, list(_sizes(results))),
        "targets": (_TARGETS, [target.cells() for target in targets(results)]),
    }
    return {
        "machine": results.machine,
        **{name: "\n".join(grid(head, rows)) for name, (head, rows) in found.items() if rows},
    }


def text(results: Results) -> str:
    """Return all tables."""
    absent = [] if results.has_workers else ["Not built: claw proxy --workers"]
    return "\n\n".join(["", *tables(results).values(), *absent])


def _overhead_lines(results: Results) -> Iterator[tuple[str, ...]]:
    for row in results.overheads:
        over_p50 = ""
        over_p99 = ""
        over = results.over_direct(row.what, row.subject)
        if over is not None and row.subject != "direct":
            over_p50 = f"{over[0]:.1f}"
            over_p99 = f"{over[1]:.1f}"

        cpu = "" if row.cpu is None else f"{row.cpu:.1f}"
        yield row.what, row.subject, f"{row.p50:.1f}", f"{row.p99:.1f}", over_p50, over_p99, cpu


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
        )


def _sizes(results: Results) -> Iterator[tuple[str, str]]:
    """Yield what is needed to size a proxy, from the CPU and the memory that was found."""
    one_round = results.value("turn of 1 round", 16, "ours", "cpu")
    eight_rounds = results.value("turn of 8 rounds", 16, "ours", "cpu")
    if one_round:
        yield "turns of one round a second, on kept connections", _a_second(one_round)
    if one_round and eight_rounds:
        yield "turns of eight rounds a second, on kept connections", _a_second(eight_rounds)

    for row in results.overheads:
        if row.subject == "ours" and row.what == "arrivals, 60/s" and row.cpu:
            name = "turns of two rounds a second, each on a connection of its own"
            yield name, _a_second(row.cpu)

    for what in ("JSON", "SSE"):
        passed = results.value(f"pass-through, {what}", 16, "ours", "cpu")
        if passed:
            yield f"requests a second passed through, {what}", _a_second(passed)

    if results.by_turns:
        yield "memory of a proxy", f"{max(results.by_turns.values()):.0f} MB"

    if len(results.by_agents) > 1:
        # From the pod with the fewest agents to the one with the most.
        counts = list(results.by_agents)
        megabytes = list(results.by_agents.values())
        of_one = (megabytes[-1] - megabytes[0]) / (counts[-1] - counts[0])
        yield "memory for each agent more", f"{1000 * of_one:.0f} kB"


def _a_second(cpu: float) -> str:
    """Return how many operations of ``cpu`` milliseconds each a core does in a second."""
    return f"{1000 / cpu:.0f}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
