"""JSON text → the same tree with places as the YAML reader makes
(docs/spec/compile.md "Diagnostics").

Strict RFC 8259: no NaN, no trailing comma, no lone surrogate; and a bound on nesting, so that
nothing behind it can run out of stack.
"""

import re
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, quote
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, Source
from claw_contract.yaml_nodes import MAX_DIGITS

MAX_DEPTH = 40
_STRINGS = JSONDecoder()
_BLANKS = {" ", "\t", "\n", "\r"}
_BLANK = re.compile(r"[ \t\n\r]*")
_LITERAL = re.compile(r"true|false|null|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


class _JsonError(Exception):
    """An error that unwinds the reader; it never leaves this module."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def read_json(source: Source) -> Result[Node]:
    """Return the document's tree, or the first place where the text is not JSON;
    duplicate keys are all reported.
    """
    parser = _Parser(source)
    try:
        node, end = parser.value(_blank(source.text, 0), 0)
        parser.ends(end)
    except _JsonError as error:
        at = source.span_of(error.at, error.at + 1)
        return Result(None, (codes.JSON_SYNTAX.at(at, str(error)),))
    return Result(node, tuple(parser.diagnostics))


def _blank(text: str, at: int) -> int:
    if text[at : at + 1] not in _BLANKS:
        return at
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


@dataclass
class _Parser:
    source: Source
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def ends(self, at: int) -> None:
        """Check that nothing but blanks stands behind the document."""
        if (at := _blank(self.source.text, at)) < len(self.source.text):
            raise _JsonError(at, "the document ended before this")

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        """Return the value that begins at ``at``, and the offset of its end."""
        if depth > MAX_DEPTH:
            raise _JsonError(at, f"nested more than {MAX_DEPTH} deep")
        match self.source.text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case '"':
                return self._string(at)
            case "":
                raise _JsonError(at, "the document ends too early")
        return self._literal(at)

    def _literal(self, at: int) -> tuple[ScalarNode, int]:
        match = _LITERAL.match(self.source.text, at)
        if match is None:
            raise _JsonError(at, "a value is expected here")
        text = match[0]
        if len(text) > MAX_DIGITS or (text[-1].isdigit() and abs(float(text)) == float("inf")):
            raise _JsonError(at, "a number out of range")
        return ScalarNode(text, self.source.span_of(at, match.end()), plain=True), match.end()

    def _string(self, at: int) -> tuple[ScalarNode, int]:
        try:
            text, end = _STRINGS.raw_decode(self.source.text, at)
        except JSONDecodeError as error:
            raise _JsonError(
                error.pos, "a string that is not closed, or holds a bad escape"
            ) from None
        # The file is UTF-8: only an escape can make one.
        if "\\" in self.source.text[at:end] and any("\ud800" <= char <= "\udfff" for char in text):
            raise _JsonError(at, "an escape that names half a character")
        return ScalarNode(text, self.source.span_of(at, end)), end

    def _array(self, at: int, depth: int) -> tuple[ListNode, int]:
        text, items = self.source.text, list[Node]()
        end = _blank(text, at + 1)
        if text[end : end + 1] == "]":
            return ListNode((), self.source.span_of(at, end + 1)), end + 1
        while True:
            item, end = self.value(end, depth + 1)
            items.append(item)
            end, closed = self._next(end, "]")
            if closed:
                return ListNode(tuple(items), self.source.span_of(at, end)), end

    def _object(self, at: int, depth: int) -> tuple[MapNode, int]:
        text, entries = self.source.text, dict[str, Entry]()
        end = _blank(text, at + 1)
        if text[end : end + 1] == "}":
            return MapNode((), self.source.span_of(at, end + 1)), end + 1
        while True:
            if text[end : end + 1] != '"':
                raise _JsonError(end, "a key in double quotes is expected here")
            key, end = self._string(end)
            end = _blank(text, end)
            if text[end : end + 1] != ":":
                raise _JsonError(end, "':' is expected here")
            value, end = self.value(_blank(text, end + 1), depth + 1)
            self._keep(entries, Entry(key, value))
            end, closed = self._next(end, "}")
            if closed:
                return MapNode(tuple(entries.values()), self.source.span_of(at, end)), end

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        at = _blank(self.source.text, at)
        char = self.source.text[at : at + 1]
        if char == closing:
            return at + 1, True
        if char != ",":
            raise _JsonError(at, f"',' or {closing!r} is expected here")
        return _blank(self.source.text, at + 1), False

    def _keep(self, entries: dict[str, Entry], entry: Entry) -> None:
        first = entries.setdefault(entry.key.text, entry)
        if first is not entry:
            note = Note(first.key.span, "it is here for the first time")
            message = f"the key {quote(entry.key.text)} stands here again"
            self.diagnostics.append(codes.DUPLICATE_KEY.at(entry.key.span, message, notes=[note]))
