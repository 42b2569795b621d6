"""Leak inputs: the texts that an agent's container gets and that may hold a credential, with their places.

Rules. Every value of the agent's Compose service counts, and of each service that it extends: variables by name and value,
other keys by value; the files behind ``env_file``, ``secrets``, ``configs``, single bind mounts and the Dockerfile; and the
words that it is given to read. What is external, or in an image, can't be seen here. A place never carries its line: that may
show the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from claw_compile.diagnostics.diagnostic import Note, Span
from claw_compile.parsing.environment import variables
from claw_compile.parsing.interpolation import Lookup, interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, items_of, scalars
from claw_compile.parsing.source import Source

type Kind = Literal["variable", "text", "file", "prose"]
"""``file``: names may stand in it beside their values. ``prose``: words for the agent to read."""

_REFERENCE = re.compile(r"\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class LeakInput:
    """One text. ``what`` names it in messages; ``refers`` are the variables in it; ``source`` is set for a whole file."""

    what: str
    at: Span
    text: str = field(repr=False)
    kind: Kind
    name: str = ""
    refers: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    source: Source | None = field(default=None, repr=False)

    def place(self, start: int, end: int) -> Span:
        """Return the place of a piece of the text, without the line."""
        return hide_line(self.source.span_of(start, end)) if self.source is not None else self.at


def hide_line(span: Span) -> Span:
    """Return a place whose line is never shown."""
    return Span(span.file, span.line, span.column, span.end_column)


def file_input(what: str, source: Source, kind: Kind, notes: tuple[Note, ...] = ()) -> LeakInput:
    """Return the whole text of a file as an input."""
    return LeakInput(what, Span(source.file, 1, 1, 1), source.text, kind, notes=notes, source=source)


def variable_inputs(what: str, node: Node | None, lookup: Lookup, notes: tuple[Note, ...]) -> Iterator[LeakInput]:
    """Yield variables in map or list form. One without a value takes it from the environment, by its own name."""
    for each in variables(node, lookup):
        bare = each.node.text == each.name and each.value.tainted
        refers = (each.name,) if bare else references(each.node.text)
        label = f"{each.name} in {what}"
        yield LeakInput(label, hide_line(each.key), each.value.text, "variable", each.name, refers, notes)


def text_inputs(what: str, node: Node, lookup: Lookup, notes: tuple[Note, ...]) -> Iterator[LeakInput]:
    """Yield every single value below a key."""
    for scalar in scalars(node):
        text = interpolate(scalar.text, lookup).text if "$" in scalar.text else scalar.text
        if text:
            yield LeakInput(what, hide_line(scalar.span), text, "text", refers=references(scalar.text), notes=notes)


def references(written: str) -> tuple[str, ...]:
    """Return the variables that a value names."""
    if "$" not in written:
        return ()
    return tuple(match["name"] for match in _REFERENCE.finditer(written.replace("$$", "")))


def mounted_names(node: Node | None) -> Iterator[ScalarNode]:
    """Return the names in a service's ``secrets`` or ``configs``, short or long form."""
    for item in items_of(node):
        source = item.value("source") if isinstance(item, MapNode) else item
        if isinstance(source, ScalarNode):
            yield source
