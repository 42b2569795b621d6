"""Variables: their values (the process's environment over ``.env``), Compose's interpolation, a
service's ``environment``.

Rules of interpolation, as in compose-go: ``$NAME`` ``${NAME}`` ``${NAME:-default}``
``${NAME-default}`` ``${NAME:?message}`` ``${NAME?message}`` ``${NAME:+other}`` ``${NAME+other}``,
nested, on one line; ``$$`` is a ``$``, and so is one that begins nothing; the colon forms treat an
empty value as unset (blanks are not empty); the earliest operator counts. Here an unset variable
without a default is a problem, where Compose warns and takes nothing. A problem's words come from
the file, never from a value (docs/spec/compile.md "Interpolation").
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.node import Node, ScalarNode, entries_of, items_of

type Lookup = Callable[[str], str | None]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")
_BRACE = re.compile(r"\$\{|\}")
MAX_DEPTH = 30  # The deepest nesting of defaults
type Problem = UnsetVariable | MalformedReference


@dataclass(frozen=True)
class Variable:
    """One variable: ``node`` is where it is written, ``value`` what Compose would
    give the container.
    """

    name: str
    node: ScalarNode
    key: Span
    value: "Interpolation"


def variables(node: Node | None, lookup: Lookup) -> Iterator[Variable]:
    """Yield the variables of an ``environment``; a shape that Compose would refuse gives none."""
    for entry in entries_of(node):
        if isinstance(entry.value, ScalarNode):
            yield _variable(
                entry.key.text, None if entry.value.is_null else entry.value, entry.key, lookup
            )
    for item in items_of(node):
        if isinstance(item, ScalarNode):
            name, sign, value = item.text.partition("=")
            yield _variable(name, ScalarNode(value, item.span) if sign else None, item, lookup)


def _variable(name: str, written: ScalarNode | None, key: ScalarNode, lookup: Lookup) -> Variable:
    if written is not None:
        return Variable(name, written, _name_span(name, key), interpolate(written.text, lookup))
    return Variable(
        name, key, _name_span(name, key), Interpolation(lookup(name) or "", tainted=True)
    )


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


@dataclass(frozen=True)
class UnsetVariable:
    """A variable without a value.

    ``message`` is the text of ``:?``, None for a variable that is just named.
    """

    name: str
    message: str | None = None


@dataclass(frozen=True)
class MalformedReference:
    """A ``${`` at ``offset`` that Compose can't read."""

    offset: int


@dataclass(frozen=True)
class Interpolation:
    """``tainted``: some of the text is the value of a variable."""

    text: str
    tainted: bool = False
    problems: tuple[Problem, ...] = ()


def interpolate(text: str, lookup: Lookup) -> Interpolation:
    """Fill in the variables of a text.

    >>> interpolate("${A:-${B:-c}} $$HOME", {}.get)
    Interpolation(text='c $HOME', tainted=False, problems=())
    """
    filling = _Interpolator(lookup)
    filled = filling.fill(text, 0)
    return Interpolation(filled, filling.tainted, tuple(filling.problems))


@dataclass
class _Interpolator:
    lookup: Lookup
    tainted: bool = False
    problems: list[Problem] = field(default_factory=list)

    def fill(self, text: str, depth: int) -> str:
        parts: list[str] = []
        at = 0
        while (dollar := text.find("$", at)) >= 0:
            parts.append(text[at:dollar])
            value, at = self._dollar(text, dollar, depth)
            parts.append(value)
        return "".join(parts) + text[at:]

    def _dollar(self, text: str, dollar: int, depth: int) -> tuple[str, int]:
        follower = text[dollar + 1 : dollar + 2]
        if follower == "$":
            return "$", dollar + 2
        if follower == "{":
            return self._braced(text, dollar, depth)
        if (name := _NAME.match(text, dollar + 1)) is not None:
            return self._required(name[0]), name.end()
        return "$", dollar + 1

    def _braced(self, text: str, dollar: int, depth: int) -> tuple[str, int]:
        end = _closing_brace(text, dollar + 2)
        name = _NAME.match(text, dollar + 2)
        if end is None or name is None or "\n" in text[dollar:end] or depth > MAX_DEPTH:
            self.problems.append(MalformedReference(dollar))
            return "", len(text) if end is None else end + 1
        rest = text[name.end() : end]
        if not rest:
            return self._required(name[0]), end + 1
        operator = _OPERATOR.match(rest)
        if operator is None:
            self.problems.append(MalformedReference(dollar))
            return "", end + 1
        return self._apply(name[0], operator[0], rest[operator.end() :], depth), end + 1

    def _apply(self, name: str, operator: str, word: str, depth: int) -> str:
        value = self.lookup(name)
        present = value is not None and (value != "" or not operator.startswith(":"))
        match operator[-1]:
            case "+":
                return self.fill(word, depth + 1) if present else ""
            case "-":
                return self._take(value) if present else self.fill(word, depth + 1)
        if present:
            return self._take(value)
        self.problems.append(UnsetVariable(name, word))
        return ""

    def _required(self, name: str) -> str:
        value = self.lookup(name)
        if value is None:
            self.problems.append(UnsetVariable(name))
        return self._take(value)

    def _take(self, value: str | None) -> str:
        self.tainted = self.tainted or bool(value)
        return value or ""


def _closing_brace(text: str, at: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    return None
