"""The tree that both readers (YAML and JSON) make of a file: values with places.

A scalar keeps its spelling: ``0123`` stays ``0123``. Code that needs a number calls
``scalar_value``, which follows YAML 1.2. So ``on``, ``yes`` and ``22:22`` are strings, where YAML
1.1 reads true, true and 1342.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, assert_never

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Result, Span
from claw_contract.yaml_nodes import scalar_value

# PyYAML counts these line breaks, and the JSON reader counts the same ones.
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")

type Node = ScalarNode | ListNode | MapNode


@dataclass(frozen=True)
class ScalarNode:
    """A single value.

    ``plain`` says that it is written without quotes: only such a value can be a number, a boolean
    or null. ``raw`` is the text of the file where variables were filled in, else None. ``tag`` is a
    tag that the file writes and YAML's schema does not imply, such as Compose's ``!reset``.
    """

    text: str
    span: Span
    plain: bool = False
    raw: str | None = None
    tag: str = ""

    @property
    def shown(self) -> str:
        """The text that a diagnostic may print: the file's, and not a variable's value."""
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
        for entry in self.entries:
            if entry.key.text == key:
                return entry
        return None

    def value(self, key: str) -> Node | None:
        entry = self.get(key)
        return entry.value if entry else None


def child(node: Node | None, *keys: str) -> Node | None:
    """Return the value at a path of keys; None where a key is missing."""
    for key in keys:
        node = node.value(key) if isinstance(node, MapNode) else None
    return node


def items_of(node: Node | None) -> tuple[Node, ...]:
    """Return the items of a list, and no items of anything else."""
    return node.items if isinstance(node, ListNode) else ()


def entries_of(node: Node | None) -> tuple[Entry, ...]:
    """Return the entries of a mapping, and no entries of anything else."""
    return node.entries if isinstance(node, MapNode) else ()


def scalars(node: Node, *, keys: bool = False) -> Iterator[ScalarNode]:
    """Yield every single value of a tree in the order of the file; with ``keys``, the keys too."""
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
    """Return the place of ``path`` under ``node``, or of its deepest part that exists.

    ``path`` may be the ``loc`` of a pydantic error. In it, names of the arms of a union come
    between the keys; they match no key and are skipped.
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
    """Return the words for the node's type in a message."""
    match node:
        case ScalarNode():
            return "nothing" if node.is_null else "a single value"
        case ListNode():
            return "a list"
        case MapNode():
            return "a mapping"
    assert_never(node)


@dataclass(frozen=True)
class Source:
    """The text of a file. ``file`` is its path as the user gave it, which diagnostics print."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_BREAK.split(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def span(self, line: int, column: int, end: int | None = None) -> Span:
        """Return the place at a 0-based line and column.

        ``end`` is the column after the place; without it, the place ends with the line's text.
        """
        text = self.lines[line] if line < len(self.lines) else ""
        last = len(text.rstrip()) if end is None else end
        return Span(self.file, line + 1, column + 1, max(last, column) + 1, text)

    def span_of(self, start: int, end: int) -> Span:
        """Return the place of ``text[start:end]``; of several lines, its part on the first one."""
        line = bisect.bisect_right(self._starts, start) - 1
        begins = self._starts[line]

        is_last_line = line + 1 == len(self._starts)
        is_one_line = is_last_line or max(start + 1, end) <= self._starts[line + 1]
        return self.span(line, start - begins, end - begins if is_one_line else None)


def decode(file: str, data: bytes) -> Result[Source]:
    """Decode the bytes of a file as UTF-8, and drop a byte order mark."""
    try:
        return Result(Source(file, data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        # The text before the bad byte gives its line and column; "?" is shown in its place.
        sound = data[: error.start].decode("utf-8", errors="ignore")
        at = Source(file, sound + "?").span_of(len(sound), len(sound) + 1)
        return Result(None, (codes.NOT_UTF8.at(at, "this byte is not UTF-8"),))
