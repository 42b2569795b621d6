"""YAML as plain data, with the position of each value, so that an error can point at it.

Rules. A value means what it means in a pod file (``claw_contract.yaml_nodes``), merge keys (``<<``)
too. A key is written once in a mapping. The number of values is bounded, with aliases expanded.
There is one document, and no tags but YAML's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from claw_contract.yaml_nodes import YamlDocument, compose_yaml, scalar_value

MAX_BYTES: Final = 1 << 20
_MAX_NODES: Final = 20_000
_KNOWN_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "null", "bool", "int", "float")
)
_MERGE: Final = "<<"

type ValuePath = tuple[str | int, ...]
"""The way to a value: keys and indexes."""


class Position(NamedTuple):
    """A line and a column, both from 1 on."""

    line: int = 1
    column: int = 1


class FileProblem(NamedTuple):
    """One error, with its position."""

    position: Position
    message: str


class DocumentError(ValueError):
    """A text that can't be read at all."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        """Keep what is wrong, and where."""
        super().__init__(message)
        self.problem = FileProblem(position or Position(), message)


@dataclass
class Document:
    """The data of a text; ``keys`` and ``values`` have the positions, by path."""

    data: Any = None
    keys: dict[ValuePath, Position] = field(default_factory=dict)
    values: dict[ValuePath, Position] = field(default_factory=lambda: {(): Position()})
    problems: list[FileProblem] = field(default_factory=list)


def read_document(content: bytes) -> Document:
    """Return the document, with the problems of single values. Raise ``DocumentError``."""
    if len(content) > MAX_BYTES:
        raise DocumentError(f"the file is longer than {MAX_BYTES} bytes: it can't be the right one")

    try:
        source = compose_yaml(content.decode())
        document = Document()
        if source.root is not None:
            document.data = _Reader(source, document).value(source.root, ())
    except yaml.MarkedYAMLError as error:
        raise DocumentError(
            f"this is no YAML: {error.problem}: correct it here, or just before",
            _position(error.problem_mark),
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise DocumentError(
            "this is no YAML: it has characters that are not allowed in a text"
        ) from None
    except DocumentError:
        raise
    except (ValueError, OverflowError):
        raise DocumentError("this is no YAML: it has an escape that names no character") from None
    except RecursionError:
        raise DocumentError(
            "this is nested too deeply, or an anchor that contains itself"
        ) from None
    return document


@dataclass
class _Reader:
    """One reading of a node graph; it fills in the document."""

    source: YamlDocument
    document: Document
    node_count: int = 0

    def value(self, node: yaml.Node, path: ValuePath) -> Any:
        self._count(node)
        self.document.values[path] = _position(node.start_mark)
        if node.tag not in _KNOWN_TAGS:
            self._report(node, f"the tag {node.tag[:64]!r} is not known here: leave it out")

        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node)

    def _scalar(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        text: str = node.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._report(
                node, "this has an escape that names half a character: write the whole one"
            )
            return ""
        return scalar_value(text) if self.source.is_plain(node) else text

    def _mapping(self, node: yaml.MappingNode, path: ValuePath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key, "a key is a word")
            elif key.value == _MERGE and self.source.is_plain(key):
                for entry in self._merged_entries(value):
                    merged.setdefault(entry[0].value, entry)
            elif key.value in own:
                self._report(
                    key, f"the key {key.value!r} stands here for the second time: keep one of them"
                )
            else:
                own[key.value] = self._entry(key, value, path)

        # A mapping's own keys win, and of merged mappings the one that is named first
        for name, (key, value) in merged.items():
            if name not in own:
                own[name] = self._entry(key, value, path)
        return own

    def _entry(self, key: yaml.ScalarNode, value: yaml.Node, path: ValuePath) -> Any:
        """Return the value of a key, whose position is noted."""
        value_path = (*path, key.value)
        self.document.keys[value_path] = _position(key.start_mark)
        return self.value(value, value_path)

    def _merged_entries(self, value: yaml.Node) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """Yield the entries that ``<<`` brings: of a mapping, or of a list of mappings."""
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for part in parts:
            self._count(part)
            if not isinstance(part, yaml.MappingNode):
                self._report(part, "'<<' merges a mapping, or a list of mappings")
                continue
            for key, member in part.value:
                if isinstance(key, yaml.ScalarNode) and key.value == _MERGE:
                    yield from self._merged_entries(member)
                elif isinstance(key, yaml.ScalarNode):
                    yield key, member

    def _count(self, node: yaml.Node) -> None:
        """Count a value, with those of aliases. Raise ``DocumentError`` if there are too many."""
        self.node_count += 1
        if self.node_count > _MAX_NODES:
            raise DocumentError(
                f"the file has more than {_MAX_NODES} values: are its aliases right?",
                _position(node.start_mark),
            )

    def _report(self, node: yaml.Node, message: str) -> None:
        self.document.problems.append(FileProblem(_position(node.start_mark), message))


def _position(mark: yaml.Mark | None) -> Position:
    return Position() if mark is None else Position(mark.line + 1, mark.column + 1)
