"""CSV output, one row for each call.

A cell that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break) gets an apostrophe in
front, as spreadsheets themselves write text. Control characters are replaced. So names that a model invented are harmless.
"""

from __future__ import annotations

import csv
from typing import TextIO

import msgspec

from claw_audit.turns import Call
from claw_cli.screen import plain

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class CsvCalls:
    """Writer of calls; the heading is written at once."""

    def __init__(self, out: TextIO) -> None:
        self._writer = csv.writer(out, lineterminator="\n")
        self._writer.writerow(Call.__struct_fields__)

    def __call__(self, row: Call) -> None:
        self._writer.writerow(map(_cell, msgspec.structs.astuple(row)))


def _cell(value: object) -> str:
    """Return the text of a cell.

    >>> _cell("=1+1"), _cell(True), _cell(None), _cell(12)
    ("'=1+1", 'true', '', '12')
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)
        case _:
            return str(value)
