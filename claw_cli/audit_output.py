"""Output of an audit: tables, and CSV with a row for each call."""

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from claw_audit.bounded_counter import NamedCount
from claw_audit.report import AgentRow, FailureRow, Report, ToolRow, TurnCounts, WithheldRow
from claw_audit.turns import Call, Usage
from claw_cli.screen import count, plain, table

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def print_tables(report: Report, console: Console) -> None:
    """Print the summary, and every table that has rows."""
    if report.first is not None:
        console.print(f"from {report.first} to {report.last}", soft_wrap=True)
    console.print(_turns(report.turns), soft_wrap=True)
    if report.turns.attempts:
        used, latency = report.used, report.latency_ms
        cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
        tokens = f"{used.tokens_in:,} tokens in{cached}, {used.tokens_out:,} out, ${_cost(used)}"
        took = (
            "an unknown time"
            if latency.p50 is None
            else f"{latency.p50} ms (p50), {latency.p95} ms (p95)"
        )
        console.print(f"{tokens}; turns took {took}", soft_wrap=True)
    for part in _tables(report):
        console.print(part)


def _turns(turns: TurnCounts) -> str:
    outcomes = {
        "ok": turns.ok,
        "failed": turns.failed,
        "left by their runner": turns.aborted,
        "without an end": turns.unfinished,
        "resumed": turns.resumed,
        "in the log only": turns.only_in_log,
    }
    parts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)
    return f"{count(turns.total, 'turn')}{f': {parts}' if parts else ''}"


def _cost(used: Usage) -> str:
    estimated = f" + {used.estimated_usd:.4f} estimated" if used.estimated_usd else ""
    unknown = f" + {used.unpriced} of unknown cost" if used.unpriced else ""
    return f"{used.cost_usd:.4f}{estimated}{unknown}"


def _tables(report: Report) -> Iterator[Table]:
    yield from _rows(
        report.agents,
        "agent",
        "turns",
        "ok",
        "failed",
        "left",
        "calls",
        "failed",
        "p50",
        "p95",
        "in",
        "out",
        "USD",
    )
    yield from _rows(
        report.tools, "tool", "effect", "calls", "failed", "ran", "repeats", "p50", "p95", words=2
    )
    for name, counts in (
        ("intervention", report.interventions),
        ("turns failed with", report.turn_errors),
        ("calls failed with", report.call_errors),
        ("error of the proxy", report.proxy_errors),
    ):
        yield from _rows(counts, name, "times")
    yield from _rows(report.withheld, "agent", "tool", "why it was not shown", "turns", words=3)
    yield from _rows(
        report.calls,
        "latest calls",
        "agent",
        "turn",
        "tool",
        "result",
        "effect",
        "round",
        "ms",
        words=6,
    )
    yield from _rows(
        report.failures, "latest failures", "agent", "turn", "tool", "why", "HTTP", words=5
    )


type _Row = AgentRow | ToolRow | NamedCount | WithheldRow | Call | FailureRow


def _rows(iterable: Iterable[_Row], *headings: str, words: int = 1) -> Iterator[Table]:
    if rows := list(iterable):
        grid = table(*headings, numbers=len(headings) - words)
        for row in rows:
            grid.add_row(*("" if cell is None else plain(str(cell)) for cell in _cells(row)))
        yield grid


def _cells(row: _Row) -> tuple[object, ...]:
    match row:
        case AgentRow(turns=turns, latency_ms=latency, used=used):
            counts = (
                turns.total,
                turns.ok,
                turns.failed,
                turns.aborted,
                row.calls,
                row.calls_failed,
            )
            return (
                row.agent,
                *counts,
                latency.p50,
                latency.p95,
                used.tokens_in,
                used.tokens_out,
                _cost(used),
            )
        case ToolRow(latency_ms=latency):
            return (
                row.tool,
                row.effect,
                row.calls,
                row.failed,
                row.ran,
                row.duplicates,
                latency.p50,
                latency.p95,
            )
        case NamedCount():
            return row.name, row.count
        case WithheldRow():
            return row.agent, row.tool, row.why, row.turns
        case Call():
            result = row.code or row.status
            return (
                row.ts,
                row.agent,
                row.turn_id,
                row.tool,
                result,
                row.effect,
                row.round,
                row.latency_ms,
            )
        case FailureRow():
            return row.ts, row.agent, row.turn_id, row.tool, row.code, row.status_code


def csv_writer(out: TextIO) -> Callable[[Call], object]:
    """Write the heading of the CSV and return a writer of calls.

    A cell that a spreadsheet would take for a formula gets an apostrophe in front, as spreadsheets
    themselves write text, and control characters are replaced. So names that a model invented are
    harmless.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Call.__struct_fields__)
    return lambda call: writer.writerow(map(_csv_cell, msgspec.structs.astuple(call)))


def _csv_cell(value: object) -> str:
    """Return the text of a cell.

    >>> _csv_cell("=1+1"), _csv_cell(True), _csv_cell(None), _csv_cell(12)
    ("'=1+1", 'true', '', '12')
    """
    if isinstance(value, str):
        return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)
    return "" if value is None else str(value).lower()
