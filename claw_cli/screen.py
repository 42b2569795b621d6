"""Output for terminals and pipes: plain text, errors, a console, and tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:  # most verbs print no table
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


def fail(why: str, code: int = 1) -> NoReturn:
    """Print one line to standard error, and exit."""
    sys.stderr.write(f"error: {plain(why)}\n")
    raise typer.Exit(code)


def console() -> Console:
    """Return a console on standard output, in a pipe as wide as its lines are."""
    from rich.console import Console

    shown = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return (
        shown
        if shown.is_terminal
        else Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)
    )


def table(*headings: str, numbers: int) -> Table:
    """Return an empty table without a frame, whose last ``numbers`` columns are numbers."""
    from rich import box
    from rich.table import Table

    columns = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        columns.add_column(heading, justify="right" if place >= len(headings) - numbers else "left", overflow="fold")
    return columns
