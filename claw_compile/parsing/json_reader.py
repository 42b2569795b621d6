"""The reader of JSON text, which makes the same tree with places as the YAML reader.

The reader is strict RFC 8259 (docs/spec/compile.md, "Diagnostics"): no NaN, no trailing comma, no
lone surrogate. Nesting is bounded, so that a descriptor can't use up the stack here or in code that
walks the tree later. Python's ``json`` gives no places, hence a reader of our own.
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
    """Return the document's tree, or a diagnostic at the first place where the text is not JSON.

    Duplicate keys are all reported; the first of them counts.
    """
    parser = _Parser(source)
    try:
        node, end = parser.value(_skip_blanks(source.text, 0), 0)
        parser.require_end(end)
    except _JsonError as error:
        at = source.span_of(error.at, error.at + 1)
        return Result(None, (codes.JSON_SYNTAX.at(at, str(error)),))

    return Result(node, tuple(parser.diagnostics))


def _skip_blanks(text: str, at: int) -> int:
    """Return the offset of the first character from ``at`` on that is no white space."""
    if text[at : at + 1] not in _BLANKS:
        return at
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


@dataclass
class _Parser:
    source: Source
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def require_end(self, at: int) -> None:
        """Raise ``_JsonError`` if anything but white space follows the document."""
        at = _skip_blanks(self.source.text, at)
        if at < len(self.source.text):
            raise _JsonError(at, "the document ended before this")

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        """Return the value that begins at ``at``, and the offset where it ends."""
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
        is_number = text[-1].isdigit()
        # ``1e999`` would become infinity, which JSON can't express when the value is written again.
        if len(text) > MAX_DIGITS or (is_number and abs(float(text)) == float("inf")):
            raise _JsonError(at, "a number out of range")

        end = match.end()
        return ScalarNode(text, self.source.span_of(at, end), plain=True), end

    def _string(self, at: int) -> tuple[ScalarNode, int]:
        try:
            text, end = _STRINGS.raw_decode(self.source.text, at)
        except JSONDecodeError as error:
            message = "a string that is not closed, or holds a bad escape"
            raise _JsonError(error.pos, message) from None

        # A lone surrogate can't be encoded later. The file is UTF-8, so only an escape can make
        # one.
        has_escape = "\\" in self.source.text[at:end]
        if has_escape and any("\ud800" <= char <= "\udfff" for char in text):
            raise _JsonError(at, "an escape that names half a character")

        return ScalarNode(text, self.source.span_of(at, end)), end

    def _array(self, at: int, depth: int) -> tuple[ListNode, int]:
        text = self.source.text
        end = _skip_blanks(text, at + 1)
        if text[end : end + 1] == "]":
            return ListNode((), self.source.span_of(at, end + 1)), end + 1

        items: list[Node] = []
        while True:
            item, end = self.value(end, depth + 1)
            items.append(item)

            end, is_closed = self._next(end, "]")
            if is_closed:
                return ListNode(tuple(items), self.source.span_of(at, end)), end

    def _object(self, at: int, depth: int) -> tuple[MapNode, int]:
        text = self.source.text
        end = _skip_blanks(text, at + 1)
        if text[end : end + 1] == "}":
            return MapNode((), self.source.span_of(at, end + 1)), end + 1

        entries: dict[str, Entry] = {}
        while True:
            if text[end : end + 1] != '"':
                raise _JsonError(end, "a key in double quotes is expected here")
            key, end = self._string(end)

            end = _skip_blanks(text, end)
            if text[end : end + 1] != ":":
                raise _JsonError(end, "':' is expected here")

            value, end = self.value(_skip_blanks(text, end + 1), depth + 1)
            self._add(entries, Entry(key, value))

            end, is_closed = self._next(end, "}")
            if is_closed:
                return MapNode(tuple(entries.values()), self.source.span_of(at, end)), end

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        """Return the place of the next member and False, or of the end and True."""
        at = _skip_blanks(self.source.text, at)
        char = self.source.text[at : at + 1]
        if char == closing:
            return at + 1, True
        if char != ",":
            raise _JsonError(at, f"',' or {closing!r} is expected here")
        return _skip_blanks(self.source.text, at + 1), False

    def _add(self, entries: dict[str, Entry], entry: Entry) -> None:
        first = entries.setdefault(entry.key.text, entry)
        if first is entry:
            return

        note = Note(first.key.span, "the first one is here")
        message = f"the key {quote(entry.key.text)} is repeated here"
        self.diagnostics.append(codes.DUPLICATE_KEY.at(entry.key.span, message, notes=[note]))
