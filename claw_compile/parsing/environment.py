"""Variables: where their values come from, and how Compose fills them into a text.

A value comes from the process's environment, or else from ``.env``. The rules of interpolation are
compose-go's (docs/spec/compile.md, "Interpolation"):

- The forms are ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME-default}``,
  ``${NAME:?message}``, ``${NAME?message}``, ``${NAME:+other}`` and ``${NAME+other}``. They nest,
  and each is on one line.
- ``$$`` is a ``$``. So is a ``$`` that begins none of these forms.
- With a colon, an empty value counts as unset. A value of blanks is not empty.
- If a reference contains several operators, the first one counts.

One rule differs: an unset variable without a default is a problem here, where Compose warns and
goes on with an empty text.

The words of a problem come from the file, never from a value: values are secrets.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.node import Node, ScalarNode, entries_of, items_of

type Lookup = Callable[[str], str | None]
"""Return the value of a variable, or None if it is not set."""
type Problem = UnsetVariable | MalformedReference

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")
_BRACE = re.compile(r"\$\{|\}")
MAX_DEPTH = 30
"""The deepest nesting of defaults."""


@dataclass(frozen=True)
class Variable:
    """One variable of a service's ``environment``.

    ``node`` is the value as the file has it, and ``value`` what Compose would give the container.
    """

    name: str
    node: ScalarNode
    key: Span
    value: "Interpolation"


def variables(node: Node | None, lookup: Lookup) -> Iterator[Variable]:
    """Yield the variables of an ``environment``, which is a mapping or a list of ``NAME=value``.

    Skip what Compose would refuse.
    """
    for entry in entries_of(node):
        if isinstance(entry.value, ScalarNode):
            written = None if entry.value.is_null else entry.value
            yield _variable(entry.key.text, written, entry.key, lookup)

    for item in items_of(node):
        if isinstance(item, ScalarNode):
            name, sign, value = item.text.partition("=")
            written = ScalarNode(value, item.span) if sign else None
            yield _variable(name, written, item, lookup)


def _variable(name: str, written: ScalarNode | None, key: ScalarNode, lookup: Lookup) -> Variable:
    span = _name_span(name, key)
    if written is not None:
        return Variable(name, written, span, interpolate(written.text, lookup))

    # A name without a value takes the value of the variable of that name.
    inherited = Interpolation(lookup(name) or "", tainted=True)
    return Variable(name, key, span, inherited)


def _name_span(name: str, key: ScalarNode) -> Span:
    """Return the span of the name alone: carets must not point at the value in ``NAME=value``."""
    span = key.span
    written_from = span.column - 1

    # The name may follow a quote.
    start = max(span.text.find(name, written_from), written_from)
    return Span(span.file, span.line, start + 1, start + 1 + len(name), span.text)


@dataclass(frozen=True, repr=False)
class Variables:
    """The variables of one compile. They have no repr, because their values are secrets."""

    environ: Mapping[str, str]
    dotenv: Mapping[str, str]

    def lookup(self, name: str) -> str | None:
        """Return a variable's value, or None if it is not set."""
        return self.environ.get(name, self.dotenv.get(name))


@dataclass(frozen=True)
class UnsetVariable:
    """A variable that is required and has no value.

    ``message`` is the text after ``:?`` or ``?``, and None for a variable that is only named.
    """

    name: str
    message: str | None = None


@dataclass(frozen=True)
class MalformedReference:
    """A ``${`` at ``offset`` that Compose can't read."""

    offset: int


@dataclass(frozen=True)
class Interpolation:
    """A text with its variables filled in.

    ``tainted`` says that some of the text is a variable's value, and so may be a secret.
    """

    text: str
    tainted: bool = False
    problems: tuple[Problem, ...] = ()


def interpolate(text: str, lookup: Lookup) -> Interpolation:
    """Fill in the variables of a text.

    >>> interpolate("${A:-${B:-c}} $$HOME", {}.get)
    Interpolation(text='c $HOME', tainted=False, problems=())
    """
    interpolator = _Interpolator(lookup)
    filled = interpolator.fill(text, 0)
    return Interpolation(filled, interpolator.tainted, tuple(interpolator.problems))


@dataclass
class _Interpolator:
    lookup: Lookup
    tainted: bool = False
    problems: list[Problem] = field(default_factory=list)

    def fill(self, text: str, depth: int) -> str:
        """Return the text with its variables filled in; ``depth`` counts the defaults around it."""
        parts: list[str] = []
        at = 0
        while (dollar := text.find("$", at)) >= 0:
            parts.append(text[at:dollar])
            value, at = self._dollar(text, dollar, depth)
            parts.append(value)

        parts.append(text[at:])
        return "".join(parts)

    def _dollar(self, text: str, dollar: int, depth: int) -> tuple[str, int]:
        """Return what replaces the reference at ``dollar``, and the offset after it."""
        follower = text[dollar + 1 : dollar + 2]
        if follower == "$":
            return "$", dollar + 2
        if follower == "{":
            return self._braced(text, dollar, depth)

        name = _NAME.match(text, dollar + 1)
        if name is None:
            return "$", dollar + 1
        return self._required(name[0]), name.end()

    def _braced(self, text: str, dollar: int, depth: int) -> tuple[str, int]:
        end = _closing_brace(text, dollar + 2)
        if end is None:
            self.problems.append(MalformedReference(dollar))
            return "", len(text)

        after = end + 1
        name = _NAME.match(text, dollar + 2)
        # A bound on the depth: a hostile file must not use up the stack.
        if name is None or "\n" in text[dollar:end] or depth > MAX_DEPTH:
            self.problems.append(MalformedReference(dollar))
            return "", after

        rest = text[name.end() : end]
        if not rest:
            return self._required(name[0]), after

        operator = _OPERATOR.match(rest)
        if operator is None:
            self.problems.append(MalformedReference(dollar))
            return "", after

        word = rest[operator.end() :]
        return self._apply(name[0], operator[0], word, depth), after

    def _apply(self, name: str, operator: str, word: str, depth: int) -> str:
        """Return what replaces ``${NAME<operator>word}``.

        The word is filled in only where it is used: a default's own unset variable is no problem of
        a variable that is set.
        """
        value = self.lookup(name)
        is_set = value is not None
        if operator.startswith(":") and value == "":
            is_set = False

        kind = operator[-1]
        if kind == "+":
            return self.fill(word, depth + 1) if is_set else ""
        if is_set:
            return self._take(value)
        if kind == "-":
            return self.fill(word, depth + 1)

        # With "?" the word is the message for an unset variable.
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
    """Return the offset of the ``}`` that closes the ``${`` before ``at``; None if nothing does."""
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()

    return None
