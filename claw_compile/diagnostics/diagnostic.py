"""Diagnostics: a code, a place and a sentence (docs/spec/compile.md, "Diagnostics").

A user's mistake is a value with a place, never an exception. A message quotes the text of a *file*,
through ``quote``, and never a value that came from the environment.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from claw_contract.known_providers import KEY_SHAPE

SHOWN = 80
"""The most characters of a file's text that one quotation shows."""

type Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Span:
    """A piece of one line: 1-based, ``end_column`` exclusive.

    ``text`` is the whole line, for the excerpt.
    """

    file: str
    line: int
    column: int
    end_column: int
    text: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def start_of(file: str) -> Span:
    """Return the place of a file that has no better one: its first character."""
    return Span(file, 1, 1, 1)


@dataclass(frozen=True)
class Note:
    """Another place that a diagnostic is about."""

    span: Span
    message: str


@dataclass(eq=False)
class Code:
    """One kind of diagnostic: its meaning, its remedy, and its stable name.

    All of them are in ``claw_compile/codes.py``.
    """

    severity: Severity
    meaning: str
    remedy: str
    name: str = ""

    def at(
        self,
        span: Span,
        message: str,
        *,
        hint: str | None = None,
        notes: Iterable[Note] = (),
        help_text: str | None = None,
    ) -> "Diagnostic":
        """Return a diagnostic of this kind.

        A report prints ``hint`` next to the carets, and ``help_text`` on a line of its own. All
        texts are escaped here, once, whatever a file may have put into them.
        """
        return Diagnostic(
            code=self,
            message=escape_controls(message),
            span=span,
            notes=tuple(Note(note.span, escape_controls(note.message)) for note in notes),
            hint=escape_controls(hint) if hint else hint,
            help=escape_controls(help_text) if help_text else help_text,
        )


@dataclass(frozen=True)
class Diagnostic:
    code: Code
    message: str
    span: Span
    notes: tuple[Note, ...] = ()
    hint: str | None = None
    help: str | None = None

    @property
    def is_error(self) -> bool:
        return self.code.severity == "error"


@dataclass(frozen=True)
class Result[T]:
    """The outcome of a phase: its value, and its diagnostics.

    ``value`` is None when the next phase has nothing to work on.
    """

    value: T | None
    diagnostics: tuple[Diagnostic, ...] = ()

    def then[U](self, phase: "Callable[[T], Result[U]]") -> "Result[U]":
        """Run the next phase on the value, if there is one, and return both phases' diagnostics."""
        if self.value is None:
            return Result(None, self.diagnostics)

        result = phase(self.value)
        return Result(result.value, (*self.diagnostics, *result.diagnostics))


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort diagnostics by place, and drop repetitions.

    A mistake in the pod's defaults is found for every agent that inherits them, and reported once.
    """
    distinct = dict.fromkeys(diagnostics)
    return tuple(sorted(distinct, key=lambda each: (each.span, each.code.name, each.message)))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(diagnostic.is_error for diagnostic in diagnostics)


def quote(text: str) -> str:
    r"""Quote text of a file for a message.

    The text is cut to ``SHOWN`` characters, control characters are escaped, and what looks like a
    provider's key is hidden.

    >>> print(quote("get_quote"), quote("a" + chr(7)))
    'get_quote' 'a\x07'
    """
    # Keys are hidden before the cut: half a key would no longer look like one.
    text = KEY_SHAPE.sub("•••", text)
    if len(text) > SHOWN:
        text = text[:SHOWN] + "…"
    return "'" + escape_controls(text) + "'"


def escape_controls(text: str) -> str:
    r"""Escape control characters other than line feeds.

    Otherwise the words of a hostile descriptor could move a terminal's cursor, and overwrite the
    report.

    >>> print(escape_controls("a" + chr(27) + "[2J"))
    a\x1b[2J
    """
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint with the closest known word, or None if no word is close.

    >>> did_you_mean("alow", ["allow", "deny"])
    "did you mean 'allow'?"
    """
    # Sorted, so that a tie never depends on the order of a set.
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {quote(close[0])}?" if close else None
