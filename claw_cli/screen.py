"""What a terminal is given."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 1000
"""Where there is no terminal, at which lines would end."""


def plain(text: str) -> str:
    """On one line, without what a terminal obeys.

    >>> plain("a" + chr(27) + "[2J")
    'a�[2J'
    """
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "�" for sign in text)


def console() -> Console:
    """Standard output, as wide as lines are where it is no terminal."""
    shown = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return (
        shown
        if shown.is_terminal
        else Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)
    )


def table(*headings: str, numbers: int) -> Table:
    """One without lines around it; so many columns at its end are numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if place >= len(headings) - numbers else "left", overflow="fold")
    return made
