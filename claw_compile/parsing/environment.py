"""Variables: their values (the process's environment over ``.env``), and a Compose service's ``environment``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.interpolation import Interpolation, Lookup, interpolate
from claw_compile.parsing.node import Node, ScalarNode, entries_of, items_of


@dataclass(frozen=True)
class Variable:
    """One variable: ``node`` is where it is written, ``value`` what Compose would give the container."""

    name: str
    node: ScalarNode
    key: Span
    value: Interpolation


def variables(node: Node | None, lookup: Lookup) -> Iterator[Variable]:
    """Yield the variables of an ``environment``; a shape that Compose would refuse gives none."""
    for entry in entries_of(node):
        if isinstance(entry.value, ScalarNode):
            yield _variable(entry.key.text, None if entry.value.is_null else entry.value, entry.key, lookup)
    for item in items_of(node):
        if isinstance(item, ScalarNode):
            name, sign, value = item.text.partition("=")
            yield _variable(name, ScalarNode(value, item.span) if sign else None, item, lookup)


def _variable(name: str, written: ScalarNode | None, key: ScalarNode, lookup: Lookup) -> Variable:
    if written is not None:
        return Variable(name, written, _name_span(name, key), interpolate(written.text, lookup))
    return Variable(name, key, _name_span(name, key), Interpolation(lookup(name) or "", tainted=True))


def _name_span(name: str, key: ScalarNode) -> Span:
    """Return the span of the name alone: an excerpt must not point at the value."""
    span = key.span
    offset = max(span.text.find(name, span.column - 1), span.column - 1)
    return Span(span.file, span.line, offset + 1, offset + 1 + len(name), span.text)


@dataclass(frozen=True, repr=False)
class Variables:
    """``lookup`` gives a variable's value, or None. It has no repr: its values are secrets."""

    environ: Mapping[str, str]
    dotenv: Mapping[str, str]

    def lookup(self, name: str) -> str | None:
        return self.environ.get(name, self.dotenv.get(name))
