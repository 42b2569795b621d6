"""``.env`` in Compose's dialect, which no library reads (docs/spec/compile.md "Interpolation").

Rules. ``NAME=value``, ``NAME: value``, ``export NAME=value``; ``#`` begins a comment at the start
of a line, or behind a value and a blank; a bare ``NAME`` takes nothing from here. Single quotes are
literal but for an escaped quote, and may span lines; double quotes know escapes; unquoted and
double-quoted values are interpolated, from the process and then from the lines above. A message
names the variable and never the value, and an excerpt is never printed.
"""

import bisect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Result, Span
from claw_compile.parsing.environment import MalformedReference, interpolate
from claw_compile.parsing.node import Source

_ASSIGNMENT = re.compile(
    r"[^\S\n]*(?:export[^\S\n]+)?(?P<name>[\w.\-\[\]]+)[^\S\n]*(?P<sign>[=:]?)[ \t]*"
)
_COMMENT = re.compile(r" #.*$")
_BLANKS = " \t\v\f\r\x85\xa0"
_ESCAPE = re.compile(r"\\([abfnrtv$\"\\])")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "$": "$$"}
_CLOSING = {
    "'": re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL),
    '"': re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL),
}


@dataclass(frozen=True)
class Assignment:
    """One variable of a file, and the line where it begins.

    A bare name has no value of its own: None.
    """

    name: str
    value: str | None = field(repr=False)
    line: int
    written: str = field(default="", repr=False)


def read_dotenv(source: Source, environ: Mapping[str, str]) -> Result[dict[str, str]]:
    """Return name → value. A line that can't be read is reported and left out."""
    parser = _read(source, environ)
    return Result(parser.values, tuple(parser.diagnostics))


def read_env_file(source: Source, environ: Mapping[str, str]) -> Result[tuple[Assignment, ...]]:
    """Return every variable of a service's ``env_file``, also one that a later line
    gives another value.
    """
    parser = _read(source, environ)
    return Result(tuple(parser.assignments), tuple(parser.diagnostics))


def _read(source: Source, environ: Mapping[str, str]) -> "_Parser":
    parser = _Parser(source.file, source.text.replace("\r\n", "\n"), environ)
    at = 0
    while at < len(parser.text):
        at = parser.line(at) + 1
    return parser


@dataclass
class _Parser:
    file: str
    text: str
    environ: Mapping[str, str]
    values: dict[str, str] = field(default_factory=dict)
    assignments: list[Assignment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def line(self, at: int) -> int:
        """Read what begins on the line at ``at``; give the end of its last line."""
        end = self._line_end(at)
        line = self.text[at:end].strip()
        if not line or line.startswith("#"):
            return end
        match = _ASSIGNMENT.match(self.text, at, end)
        if match is None or (
            not match["sign"] and _without_comment(" " + self.text[match.end() : end])
        ):
            self._report(at, "this line is not NAME=value")
            return end
        if not match["sign"]:
            self.assignments.append(Assignment(match["name"], None, self._number(at)))
            return end
        if self.text[match.end() : match.end() + 1] in _CLOSING:
            return self._quoted_value(at, match["name"], match.end())
        self._keep(at, match["name"], _without_comment(self.text[match.end() : end]))
        return end

    def _quoted_value(self, at: int, name: str, start: int) -> int:
        quote = self.text[start]
        closed = _CLOSING[quote].match(self.text, start + 1)
        if closed is None:
            self._report(at, f"the quote of {name} is not closed")
            return len(self.text)
        end = self._line_end(closed.end())
        if self.text[closed.end() : end].strip().partition("#")[0]:
            self._report(at, f"something stands behind the closing quote of {name}")
        elif quote == "'":
            self._take(at, name, closed[0][:-1].replace("\\'", "'"))
        else:
            self._keep(
                at,
                name,
                _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), closed[0][:-1]),
            )
        return end

    def _keep(self, at: int, name: str, written: str) -> None:
        filled = interpolate(written, lambda key: self.environ.get(key, self.values.get(key)))
        for problem in filled.problems:
            if isinstance(problem, MalformedReference):
                self._report(at, f"the value of {name} holds a '${{' that begins no variable")
            elif problem.message is not None:
                self._report(at, f"the value of {name} needs {problem.name}, which is not set")
        self._take(at, name, filled.text, written)

    def _take(self, at: int, name: str, value: str, written: str = "") -> None:
        self.values[name] = value
        self.assignments.append(Assignment(name, value, self._number(at), written))

    def _number(self, at: int) -> int:
        return bisect.bisect_left(self._ends, at) + 1

    @cached_property
    def _ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def _report(self, at: int, message: str) -> None:
        self.diagnostics.append(
            codes.DOTENV_SYNTAX.at(Span(self.file, self._number(at), 1, 1), message)
        )


def _without_comment(text: str) -> str:
    return _COMMENT.sub("", text.lstrip(_BLANKS)).strip(_BLANKS)
