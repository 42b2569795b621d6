"""Output for terminals and pipes: plain text, a console, and tables."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 1000
"""Columns of output that goes to no terminal, so that no line is broken."""


def plain(text: str) -> str:
    """Return text without control characters, as one line.

    >>> plain("a" + chr(27) + "[2J")
    'a�[2J'
    """
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "�" for sign in text)


def console() -> Console:
    """Return a console on standard output, in a pipe as wide as its lines are."""
    shown = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return (
        shown
        if shown.is_terminal
        else Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)
    )


def table(*headings: str, numbers: int) -> Table:
    """Return an empty table without a frame, whose last ``numbers`` columns are numbers."""
    columns = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        columns.add_column(heading, justify="right" if place >= len(headings) - numbers else "left", overflow="fold")
    return columns
