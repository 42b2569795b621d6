"""A list with its one ``...`` (spec/compile.md "Defaults"): tools, surfaces, feeds, skills, and the pod's defaults of them."""

from __future__ import annotations

from collections.abc import Callable

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quoted
from claw_compile.grammar.pod import Listed, Spread
from claw_compile.grammar.reader import Reading, is_spread
from claw_compile.parsing.node import Entry, Node


def read_list[T](reading: Reading, entry: Entry, read: Callable[[Reading, Node], T | None]) -> Listed[T]:
    """The entries that can be read, in their order; defaults themselves take no ``...``."""
    what = quoted(entry.key.text)
    entries: list[T | Spread] = []
    first: Spread | None = None
    for item in reading.items(entry.value, what):
        if not is_spread(item):
            if (value := read(reading, item)) is not None:
                entries.append(value)
        elif entry.key.text.endswith("-defaults"):
            message = f"'...' in {what}: these are the defaults themselves"
            reading.found.append(codes.SPREAD_WITHOUT_DEFAULTS.at(item.span, message))
        elif first is not None:
            notes = [Note(first.span, "the first one is here")]
            reading.found.append(codes.SPREAD_TWICE.at(item.span, f"'...' twice in {what}", notes=notes))
        else:
            first = Spread(item.span)
            entries.append(first)
    return Listed(entry.key.span, tuple(entries))
