"""Output of an audit: tables, and CSV with a row for each call."""

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from claw_audit.bounded_counter import NamedCount
from claw_audit.report import AgentRow, FailureRow, Report, ToolRow, TurnCounts, WithheldRow
from claw_audit.turns import RecordedCall, Usage
from claw_cli.screen import count, plain, table

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Beginnings of a cell that some spreadsheet takes for a formula."""


def print_tables(report: Report, console: Console) -> None:
    """Print the summary, and every table that has rows."""
    if report.first is not None:
        console.print(f"from {report.first} to {report.last}", soft_wrap=True)
    console.print(_turns(report.turns), soft_wrap=True)
    if report.turns.attempts:
        console.print(_usage(report), soft_wrap=True)

    for part in _tables(report):
        console.print(part)


def _usage(report: Report) -> str:
    used = report.used
    cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
    tokens = f"{used.tokens_in:,} tokens in{cached}, {used.tokens_out:,} out, ${_cost(used)}"

    latency = report.latency_ms
    took = "an unknown time"
    if latency.p50 is not None:
        took = f"{latency.p50} ms (p50), {latency.p95} ms (p95)"

    first = report.ttft_ms
    shown = ""
    if first.p50 is not None:
        shown = f"; live ones showed content after {first.p50} ms (p50), {first.p95} ms (p95)"
    return f"{tokens}; turns took {took}{shown}"


def _turns(turns: TurnCounts) -> str:
    outcomes = {
        "ok": turns.ok,
        "failed": turns.failed,
        "left by their runner": turns.aborted,
        "without an end": turns.unfinished,
        "resumed": turns.resumed,
        "in the log only": turns.only_in_log,
    }
    total = count(turns.total, "turn")
    parts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)
    return f"{total}: {parts}" if parts else total


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

    yield from _rows(report.interventions, "intervention", "times")
    yield from _rows(report.turn_errors, "turns failed with", "times")
    yield from _rows(report.call_errors, "calls failed with", "times")
    yield from _rows(report.proxy_errors, "error of the proxy", "times")

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


type _Row = AgentRow | ToolRow | NamedCount | WithheldRow | RecordedCall | FailureRow


def _rows(rows: Iterable[_Row], *headings: str, words: int = 1) -> Iterator[Table]:
    """Yield a table, or nothing without rows.

    ``words``: how many columns, from the left, are texts; the others are numbers.
    """
    all_rows = list(rows)
    if not all_rows:
        return

    grid = table(*headings, numbers=len(headings) - words)
    for row in all_rows:
        grid.add_row(*("" if cell is None else plain(str(cell)) for cell in _cells(row)))
    yield grid


def _cells(row: _Row) -> tuple[object, ...]:
    """Return the cells of a row, in the order of the headings in ``_tables``."""
    match row:
        case AgentRow(turns=turns, latency_ms=latency, used=used):
            return (
                row.agent,
                turns.total,
                turns.ok,
                turns.failed,
                turns.aborted,
                row.calls,
                row.calls_failed,
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
        case RecordedCall():
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


def csv_writer(out: TextIO) -> Callable[[RecordedCall], object]:
    """Write the heading of the CSV, and return a function that writes the row of a call.

    Names in it may be invented by a model. So a cell that a spreadsheet would take for a formula
    gets an apostrophe in front, as spreadsheets themselves write text, and control characters are
    replaced.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(RecordedCall.__struct_fields__)

    def write(call: RecordedCall) -> None:
        writer.writerow(map(_csv_cell, msgspec.structs.astuple(call)))

    return write


def _csv_cell(value: object) -> str:
    """Return the text of a cell.

    >>> _csv_cell("=1+1"), _csv_cell(True), _csv_cell(None), _csv_cell(12)
    ("'=1+1", 'true', '', '12')
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value).lower()  # true and false, as in JSON
    return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)
