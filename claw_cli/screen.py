"""Output for terminals and pipes: plain text, JSON, errors, a console, and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:  # most verbs print no table
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 1000  # columns of output that goes to no terminal: no line is broken
_MAX_NAMES = 10


def plain(text: str) -> str:
    """Return text without control characters, as one line.

    >>> plain("a" + chr(27) + "[2J")
    'a�[2J'
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "�" for character in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 line``, ``2 lines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names_in_short(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others; "" for no names."""
    first = ", ".join(names[:_MAX_NAMES])
    others = len(names) - _MAX_NAMES
    return f"{first}, and {others} more" if others > 0 else first


def print_lines(lines: Iterable[object]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_json(document: Any, *, ascii_only: bool = False) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=ascii_only) + "\n")


def fail(why: str, code: int = 1) -> NoReturn:
    """Print one line to standard error, and exit."""
    sys.stderr.write(f"error: {plain(why)}\n")
    raise typer.Exit(code)


def console() -> Console:
    """Return a console on standard output. In a pipe it breaks no line."""
    from rich.console import Console

    shown = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not shown.is_terminal:
        shown.width = _PIPE_WIDTH
    return shown


def table(*headings: str, numbers: int) -> Table:
    """Return an empty table without a frame, whose last ``numbers`` columns are numbers."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = len(headings) - numbers
    for heading in headings[:texts]:
        grid.add_column(heading, justify="left", overflow="fold")
    for heading in headings[texts:]:
        grid.add_column(heading, justify="right", overflow="fold")
    return grid
