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

type Data = str | int | bool | Node | Iterable[Data] | Mapping[str, Data] | None

_OURS = Span("", 0, 0, 0)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {
    "null",
    "true",
    "false",
    "y",
    "n",
    "yes",
    "no",
    "on",
    "off",
}  # Text that YAML 1.1 or 1.2 would not take for a string
_PLAIN_START = re.compile(r"""[^\s\-?:,\[\]{}#&*!|>'"%@`]|[-?:](?=\S)""")
_NOT_PLAIN = re.compile(r""":(\s|$)|\s#|[^\S ]|^[.-]{3}|\s$""")


def as_yaml(root: MapNode, first: Sequence[str] = ()) -> str:
    """Return the document as YAML; ``first`` are keys that stand at its top."""
    top = [MapNode((each,), root.span) for name in first if (each := root.get(name)) is not None]
    rest = MapNode(tuple(each for each in root.entries if each.key.text not in first), root.span)
    lines = [line for part in (*top, rest) for line in _lines(part)]
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
        case int():
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
    plain = _NAME.fullmatch(name) is not None and name.lower() not in _WORDS
    return Entry(ScalarNode(name, _OURS, plain=plain), tree(value))


def _lines(node: Node) -> list[str]:
    match node:
        case ScalarNode():
            return []
        case ListNode():
            return [line for item in node.items for line in _item(item)]
        case MapNode():
            return [
                line
                for each in sorted(node.entries, key=lambda each: each.key.text)
                for line in _entry(each)
            ]
    assert_never(node)


def _entry(each: Entry) -> Iterable[str]:
    head, body = _head(each.value), _lines(each.value)
    yield f"{_scalar(each.key)}:{' ' if head else ''}{head}"
    yield from (f"  {line}" for line in body)


def _item(item: Node) -> Iterable[str]:
    head, body = _head(item), _lines(item)
    first, *rest = body if body and not head else [head, *body]
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)


def _head(node: Node) -> str:
    """Return what stands on the line of the key: the tag, and the value where it
    needs no lines of its own.
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
    quote = json.dumps(node.text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quote)
