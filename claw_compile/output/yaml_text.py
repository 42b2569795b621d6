"""A tree as YAML text that Compose and kubectl read as the tree means it.

Rules. What came from a file keeps its spelling and its quotes: ``0123`` and ``"4000:22"`` are what
they were. What is ours is quoted. Anchors are written out. A mapping has no order: its keys are
sorted, so that no reordering of a file changes a byte.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode

type Data = str | int | float | bool | Node | Iterable[Data] | Mapping[str, Data] | None

_OURS = Span("", 0, 0, 0)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {"null", "true", "false", "y", "n", "yes", "no", "on", "off"}
"""Words that YAML 1.1 or 1.2 would not take for a string."""
# A plain scalar must not begin like a list, a comment, an anchor, a tag, a block or a quotation
# (YAML 1.2, "ns-plain-first") …
_PLAIN_START = re.compile(r"""[^\s\-?:,\[\]{}#&*!|>'"%@`]|[-?:](?=\S)""")
# … and must hold nothing that would end it: ": ", " #", a line break, the mark of a document
_NOT_PLAIN = re.compile(r""":(\s|$)|\s#|[^\S ]|^[.-]{3}|\s$""")


def as_yaml(root: MapNode, first: Sequence[str] = ()) -> str:
    """Return the document as YAML; ``first`` are keys that stand at its top."""
    lines: list[str] = []
    for name in first:
        entry_at_top = root.get(name)
        if entry_at_top is not None:
            lines.extend(_entry(entry_at_top))

    rest = tuple(each for each in root.entries if each.key.text not in first)
    lines.extend(_lines(MapNode(rest, root.span)))
    return "".join(f"{line}\n" for line in lines or ["{}"])


def tree(data: Data) -> Node:
    """Return our own data as a tree; nodes in it stay what they are.

    A string is quoted, and means itself.
    """
    match data:
        case ScalarNode() | ListNode() | MapNode():
            return data
        case None:
            return ScalarNode("null", _OURS, plain=True)
        case int() | float():  # a bool is one, too: True becomes ``true``
            return ScalarNode(str(data).lower(), _OURS, plain=True)
        case str():
            return ScalarNode(data, _OURS)
        case Mapping():
            return mapping(data)
        case _:
            return ListNode(tuple(tree(item) for item in data), _OURS)


def mapping(data: Mapping[str, Data]) -> MapNode:
    return MapNode(tuple(entry(name, value) for name, value in data.items()), _OURS)


def entry(name: str, value: Data) -> Entry:
    is_plain = _NAME.fullmatch(name) is not None and name.lower() not in _WORDS
    return Entry(ScalarNode(name, _OURS, plain=is_plain), tree(value))


def _lines(node: Node) -> list[str]:
    """Return the lines below a node's head: none of a scalar."""
    lines: list[str] = []
    match node:
        case ScalarNode():
            pass
        case ListNode():
            for item in node.items:
                lines.extend(_item(item))
        case MapNode():
            for each in sorted(node.entries, key=lambda each: each.key.text):
                lines.extend(_entry(each))
        case _:
            assert_never(node)
    return lines


def _entry(each: Entry) -> Iterable[str]:
    head = _head(each.value)
    yield f"{_scalar(each.key)}: {head}" if head else f"{_scalar(each.key)}:"
    for line in _lines(each.value):
        yield f"  {line}"


def _item(item: Node) -> Iterable[str]:
    head = _head(item)
    body = _lines(item)
    # A mapping without a tag begins on the line of its dash.
    lines = body if body and not head else [head, *body]
    yield f"- {lines[0]}"
    for line in lines[1:]:
        yield f"  {line}"


def _head(node: Node) -> str:
    """Return the part of a value that is on the line of its key.

    That is the tag, and the value if it needs no lines of its own.
    """
    match node:
        case ScalarNode():
            value = _scalar(node)
        case ListNode():
            value = "" if node.items else "[]"
        case MapNode():
            value = "" if node.entries else "{}"
    return " ".join(part for part in (node.tag, value) if part)


def _scalar(node: ScalarNode) -> str:
    if node.plain and not node.text:
        return "null"
    if node.plain and _PLAIN_START.match(node.text) and not _NOT_PLAIN.search(node.text):
        return node.text

    # A JSON string is one of YAML, except for characters that YAML calls not printable.
    quoted_text = json.dumps(node.text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted_text)
