"""The tree that both readers (YAML and JSON) make of a file: values with places.

Rules. A scalar keeps its spelling (``0123`` stays ``0123``); who needs a number asks
``scalar_value``: ``on``, ``yes`` and ``22:22`` are strings (YAML 1.1 would make them true, true and
1342). ``shown`` is what a diagnostic may print: the text of the file, before a variable's value
went in.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, assert_never

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Result, Span

_LINE_BREAK = re.compile(
    "\r\n|[\r\n\x85\u2028\u2029]"
)  # The line breaks of PyYAML; the JSON reader counts the same way
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
)
# A longer number stays a string; Python refuses to convert some thousand digits, and nobody means
# them
MAX_DIGITS = 400
type Node = ScalarNode | ListNode | MapNode


@dataclass(frozen=True)
class ScalarNode:
    """``plain`` is a scalar without quotes: only that can be a number, a boolean or null.

    ``tag`` is one that a file writes and YAML's schema does not imply, as Compose's ``!reset``.
    """

    text: str
    span: Span
    plain: bool = False
    raw: str | None = None
    tag: str = ""

    @property
    def shown(self) -> str:
        return self.text if self.raw is None else self.raw

    @property
    def is_null(self) -> bool:
        return self.plain and scalar_value(self.text) is None


@dataclass(frozen=True)
class ListNode:
    items: tuple[Node, ...]
    span: Span
    tag: str = ""


@dataclass(frozen=True)
class Entry:
    key: ScalarNode
    value: Node


@dataclass(frozen=True)
class MapNode:
    """Entries in the order of the file, each key once."""

    entries: tuple[Entry, ...]
    span: Span
    tag: str = ""

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key.text == key), None)

    def value(self, key: str) -> Node | None:
        entry = self.get(key)
        return entry.value if entry else None


def child(node: Node | None, *keys: str) -> Node | None:
    """Return the value under the keys, one below the other; None where there is none."""
    for key in keys:
        node = node.value(key) if isinstance(node, MapNode) else None
    return node


def items_of(node: Node | None) -> tuple[Node, ...]:
    """Return the items of a list; none of anything else."""
    return node.items if isinstance(node, ListNode) else ()


def entries_of(node: Node | None) -> tuple[Entry, ...]:
    """Return the entries of a mapping; none of anything else."""
    return node.entries if isinstance(node, MapNode) else ()


def scalars(node: Node, *, keys: bool = False) -> Iterator[ScalarNode]:
    """Yield every single value in a tree, in the order of the file; with ``keys``, the keys too."""
    if isinstance(node, ScalarNode):
        yield node
    for item in items_of(node):
        yield from scalars(item, keys=keys)
    for entry in entries_of(node):
        if keys:
            yield entry.key
        yield from scalars(entry.value, keys=keys)


def plain_data(node: Node) -> Any:
    """Return the node as JSON data, for a model or a validator."""
    match node:
        case ScalarNode():
            return scalar_value(node.text) if node.plain else node.text
        case ListNode():
            return [plain_data(item) for item in node.items]
        case MapNode():
            return {entry.key.text: plain_data(entry.value) for entry in node.entries}
    assert_never(node)


def span_at(node: Node, path: tuple[str | int, ...]) -> Span:
    """Return the place of ``path`` under ``node``; of the deepest part that exists
    when the rest is missing.

    A pydantic error's ``loc`` is such a path; parts that name an arm of a union are passed over.
    """
    for part in path:
        match node:
            case MapNode() if (entry := node.get(str(part))) is not None:
                node = entry.value
            case ListNode() if isinstance(part, int) and part < len(node.items):
                node = node.items[part]
            case _:
                continue
    return node.span


def kind(node: Node) -> str:
    """Return what a message calls the node."""
    match node:
        case ScalarNode():
            return "nothing" if node.is_null else "a single value"
        case ListNode():
            return "a list"
        case MapNode():
            return "a mapping"
    assert_never(node)


def scalar_value(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar, by YAML 1.2's core schema and nothing more.

    >>> scalar_value("on"), scalar_value("4000:22"), scalar_value("0x10")
    ('on', '4000:22', 16)
    >>> scalar_value("1e3"), scalar_value("~")
    (1000.0, None)
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


@dataclass(frozen=True)
class Source:
    """``file`` is the name that diagnostics print: the path as the user gave it."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_BREAK.split(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def span(self, line: int, column: int, end: int | None = None) -> Span:
        """Return a place from 0-based line and column; without ``end``, to the end
        of what the line says.
        """
        text = self.lines[line] if line < len(self.lines) else ""
        last = len(text.rstrip()) if end is None else end
        return Span(self.file, line + 1, column + 1, max(last, column) + 1, text)

    def span_of(self, start: int, end: int) -> Span:
        """Return a place from offsets into the text."""
        line = bisect.bisect_right(self._starts, start) - 1
        begins = self._starts[line]
        same_line = line + 1 == len(self._starts) or max(start + 1, end) <= self._starts[line + 1]
        return self.span(line, start - begins, end - begins if same_line else None)


def decode(file: str, data: bytes) -> Result[Source]:
    """Decode the bytes of a file; a byte order mark is dropped."""
    try:
        return Result(Source(file, data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        sound = data[: error.start].decode("utf-8", errors="ignore")
        at = Source(file, sound + "?").span_of(len(sound), len(sound) + 1)
        return Result(None, (codes.NOT_UTF8.at(at, "this byte is not UTF-8"),))
