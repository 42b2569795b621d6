r"""The reader of ``.env`` files in Compose's dialect, which no library reads.

The rules, as in compose-go (docs/spec/compile.md, "Interpolation"):

- An assignment is ``NAME=value``, ``NAME: value`` or ``export NAME=value``. A bare ``NAME`` assigns
  nothing here.
- ``#`` begins a comment at the start of a line, or after a value and a blank.
- Single quotes are literal, except that ``\'`` is a quote, and may span lines.
- Double quotes have escapes.
- Unquoted and double-quoted values are interpolated: from the process's environment first, then
  from the lines above.

Values are secrets. A message names the variable and never the value, and a diagnostic of this
module has no excerpt of the line.
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

    ``value`` is None for a bare name. ``written`` is the value before interpolation, or "" where
    nothing is interpolated.
    """

    name: str
    value: str | None = field(repr=False)
    line: int
    written: str = field(default="", repr=False)


def read_dotenv(source: Source, environ: Mapping[str, str]) -> Result[dict[str, str]]:
    """Return name → value. Report and skip each line that can't be read."""
    parser = _parse(source, environ)
    return Result(parser.values, tuple(parser.diagnostics))


def read_env_file(source: Source, environ: Mapping[str, str]) -> Result[tuple[Assignment, ...]]:
    """Return every assignment of a service's ``env_file``.

    An assignment that a later line overrides is among them: its value is in the file all the same.
    """
    parser = _parse(source, environ)
    return Result(tuple(parser.assignments), tuple(parser.diagnostics))


def _parse(source: Source, environ: Mapping[str, str]) -> "_Parser":
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
        """Read the assignment that begins at ``at``, and return where its last line ends.

        Only a quoted value can have more than one line.
        """
        end = self._line_end(at)
        line = self.text[at:end].strip()
        if not line or line.startswith("#"):
            return end

        match = _ASSIGNMENT.match(self.text, at, end)
        if match is None:
            self._report(at, "this line is not NAME=value")
            return end

        name = match["name"]
        start = match.end()
        rest = self.text[start:end]

        if not match["sign"]:
            # A bare name stands alone, without even a comment.
            if rest.strip(_BLANKS):
                self._report(at, "this line is not NAME=value")
            else:
                self.assignments.append(Assignment(name, None, self._number(at)))
            return end

        if self.text[start : start + 1] in _CLOSING:
            return self._quoted_value(at, name, start)

        self._interpolate(at, name, _without_comment(rest))
        return end

    def _quoted_value(self, at: int, name: str, start: int) -> int:
        quote = self.text[start]
        closed = _CLOSING[quote].match(self.text, start + 1)
        if closed is None:
            # Where the value ends is unknown, so nothing after it can be read either.
            self._report(at, f"the quote of {name} is not closed")
            return len(self.text)

        inner = closed[0][:-1]
        end = self._line_end(closed.end())
        rest = self.text[closed.end() : end].strip()
        if rest.partition("#")[0]:
            self._report(at, f"text follows the closing quote of {name}")
        elif quote == "'":
            self._assign(at, name, inner.replace("\\'", "'"))
        else:
            # ``\$`` becomes ``$$``, which the interpolation makes a ``$``.
            written = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), inner)
            self._interpolate(at, name, written)

        return end

    def _interpolate(self, at: int, name: str, written: str) -> None:
        interpolation = interpolate(written, self._lookup)

        for problem in interpolation.problems:
            if isinstance(problem, MalformedReference):
                self._report(at, f"the value of {name} holds a '${{' that begins no variable")
            elif problem.message is not None:
                self._report(at, f"the value of {name} needs {problem.name}, which is not set")

            # A variable that is just unset is empty here, as in Compose.

        self._assign(at, name, interpolation.text, written)

    def _lookup(self, name: str) -> str | None:
        return self.environ.get(name, self.values.get(name))

    def _assign(self, at: int, name: str, value: str, written: str = "") -> None:
        self.values[name] = value
        self.assignments.append(Assignment(name, value, self._number(at), written))

    def _number(self, at: int) -> int:
        """Return the 1-based number of the line at an offset."""
        return bisect.bisect_left(self._ends, at) + 1

    @cached_property
    def _ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def _report(self, at: int, message: str) -> None:
        # A span without the line's text has no excerpt, which could show a secret.
        span = Span(self.file, self._number(at), 1, 1)
        self.diagnostics.append(codes.DOTENV_SYNTAX.at(span, message))


def _without_comment(text: str) -> str:
    return _COMMENT.sub("", text.lstrip(_BLANKS)).strip(_BLANKS)
