"""YAML as plain data, with the place of each value, so that an error can point at it.

Rules. A key stands once in a mapping. Aliases are bounded by what they expand to. There is one
document, and no tags but YAML's own.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

MAX_BYTES: Final = 1 << 20
_MAX_NODES = 20_000
_TAGS: Final = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

type Path = tuple[str | int, ...]
"""The way to a value: keys and indexes."""


class Place(NamedTuple):
    """A line and a column, both from 1 on."""

    line: int = 1
    column: int = 1


class Problem(NamedTuple):
    """One error, with its place."""

    place: Place
    message: str


class DocumentError(ValueError):
    """A text that can't be read at all."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        """Keep what is wrong, and where."""
        super().__init__(message)
        self.problem = Problem(place or Place(), message)


@dataclass
class Document:
    """The data of a text; ``keys`` and ``values`` have the places, by path."""

    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=lambda: {(): Place()})
    problems: list[Problem] = field(default_factory=list)


def read_document(content: bytes) -> Document:
    """Return the document with the problems of single values. Raise ``DocumentError``."""
    if len(content) > MAX_BYTES:
        raise DocumentError(f"the file is longer than {MAX_BYTES} bytes: it can't be the right one")
    try:
        loader = yaml.SafeLoader(content.decode())
        root = loader.get_single_node()
        document = Document()
        document.data = None if root is None else _Reader(loader, document).value(root, ())
    except yaml.MarkedYAMLError as error:
        raise DocumentError(
            f"this is no YAML: {error.problem}: correct it here, or just before",
            _place(error.problem_mark),
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise DocumentError(
            "this is no YAML: it has characters that are not allowed in a text"
        ) from None
    except RecursionError:
        raise DocumentError(
            "this is nested too deeply, or an anchor that contains itself"
        ) from None
    return document


@dataclass
class _Reader:
    loader: yaml.SafeLoader
    document: Document
    nodes: int = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise DocumentError(
                f"the file has more than {_MAX_NODES} values: are its aliases right?",
                _place(node.start_mark),
            )
        self.document.values[path] = _place(node.start_mark)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _TAGS:
            self._note(node, f"the tag {node.tag[:64]!r} is not known here: leave it out")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        try:
            return self.loader.construct_object(node)
        except ValueError:
            self._note(
                node, f"{str(node.value)[:64]!r} is no value that YAML knows: put it in quotes"
            )

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, "a key is a word")
            elif key.value in members:
                self._note(
                    key, f"the key {key.value!r} stands here for the second time: keep one of them"
                )
            else:
                self.document.keys[*path, key.value] = _place(key.start_mark)
                members[key.value] = self.value(value, (*path, key.value))
        return members

    def _note(self, node: yaml.Node, message: str) -> None:
        self.document.problems.append(Problem(_place(node.start_mark), message))


def _place(mark: yaml.Mark | None) -> Place:
    return Place() if mark is None else Place(mark.line + 1, mark.column + 1)
