"""Diagnostics: a code, a place, a sentence (docs/spec/compile.md "Diagnostics").

Rules. A user's mistake is a value with a place, never an exception. A message quotes what the
*file* says, through ``quote``, and never a value that came from the environment.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from claw_contract.known_providers import KEY_SHAPE

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

        ``hint`` stands beside the carets, ``help_text`` on a line of its own.
        """
        shown_notes = tuple(Note(note.span, escape_controls(note.message)) for note in notes)
        hint, help_text = hint and escape_controls(hint), help_text and escape_controls(help_text)
        return Diagnostic(self, escape_controls(message), span, shown_notes, hint, help_text)


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
        """Go on with the value, where there is one; the diagnostics of both phases are kept."""
        if self.value is None:
            return Result(None, self.diagnostics)
        result = phase(self.value)
        return Result(result.value, (*self.diagnostics, *result.diagnostics))


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort diagnostics by place, each once: a default that ten agents inherit is wrong once."""
    return tuple(
        sorted(
            dict.fromkeys(diagnostics), key=lambda each: (each.span, each.code.name, each.message)
        )
    )


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(diagnostic.is_error for diagnostic in diagnostics)


def quote(text: str) -> str:
    r"""Quote text of a file for a message: short, without control characters, and
    without what looks like a key.

    >>> print(quote("get_quote"), quote("a" + chr(7)))
    'get_quote' 'a\x07'
    """
    text = KEY_SHAPE.sub("•••", text)
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return "'" + escape_controls(shown) + "'"


def escape_controls(text: str) -> str:
    r"""Escape control characters: a descriptor's words must not move a terminal's cursor.

    Lines stay lines.

    >>> print(escape_controls("a" + chr(27) + "[2J"))
    a\x1b[2J
    """
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


SHOWN = 80


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the closest known word as a hint, if one is close.

    >>> did_you_mean("alow", ["allow", "deny"])
    "did you mean 'allow'?"
    """
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {quote(close[0])}?" if close else None
