"""The reader of YAML text, which makes a tree with places.

The rules are in docs/spec/compile.md, "Diagnostics", last paragraph. PyYAML's node graph has
positions and spelling. Duplicate keys, merge keys, several documents and alias bombs are handled
here. A merged or aliased value keeps the place where it is written, because that is the line to
change.
"""

import re
from dataclasses import dataclass, field

import yaml

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote, start_of
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, Source
from claw_contract.yaml_nodes import YamlDocument, compose_yaml

MAX_NODES = 100_000
"""The most values that a document may have once its aliases are expanded."""

_PRESENTATION = re.compile(r"\s*(#.*|%.*)?$")
"""A line that is no part of a document: blank, a comment or a directive."""

SPREAD_HELP = "to insert the pod's defaults write '- ...', with the dash, as an entry of the list"


def read_yaml(source: Source) -> Result[MapNode]:
    """Return the document's tree, or what is wrong with it.

    The value is None when there is no tree, or one that is no mapping. Nothing that a hostile file
    does may raise: PyYAML lets ``ValueError``, ``OverflowError`` and ``RecursionError`` through.
    """
    if diagnostics := _check_document_marks(source):
        return Result(None, diagnostics)

    start = start_of(source.file)
    try:
        document = compose_yaml(source.text)
        if document.root is None:
            return Result(None, (codes.NOT_A_MAPPING.at(start, "the file holds no document"),))
        builder = _TreeBuilder(source, document)
        node = builder.node(document.root)
    except yaml.MarkedYAMLError as error:
        return Result(None, (_syntax_error(source, error),))
    except yaml.reader.ReaderError as error:
        at = source.span_of(error.position, error.position + 1)
        return Result(None, (codes.YAML_SYNTAX.at(at, "a character that YAML does not allow"),))
    except (ValueError, OverflowError):
        # An escape such as "\UFFFFFFFF" reaches Python's ``chr``.
        return Result(None, (codes.YAML_SYNTAX.at(start, "an escape that names no character"),))
    except RecursionError:
        return Result(None, (codes.YAML_SYNTAX.at(start, "nested too deeply"),))

    # The tree of an alias bomb is cut off somewhere, so that no other finding about it counts.
    if builder.bomb is not None:
        return Result(None, (builder.bomb,))
    if not isinstance(node, MapNode):
        not_a_mapping = codes.NOT_A_MAPPING.at(node.span, "a pod file is a mapping")
        return Result(None, (not_a_mapping, *builder.diagnostics))
    return Result(node, tuple(builder.diagnostics))


def _check_document_marks(source: Source) -> tuple[Diagnostic, ...]:
    """Report a line that ends the document, or begins a second one; the rest would be lost."""
    has_content = False
    for number, line in enumerate(source.lines, start=1):
        mark = line[:3]
        is_mark = mark in {"...", "---"} and (len(line) == len(mark) or line[3].isspace())
        if not is_mark:
            has_content = has_content or not _PRESENTATION.match(line)
            continue

        at = Span(source.file, number, 1, 4, line)
        if mark == "...":
            message = "this line ends the document"
            return (codes.DOCUMENT_END.at(at, message, help_text=SPREAD_HELP),)
        if has_content:
            return (codes.SECOND_DOCUMENT.at(at, "a second document begins here"),)
        has_content = True

    return ()


def _syntax_error(source: Source, error: yaml.MarkedYAMLError) -> Diagnostic:
    mark = error.problem_mark
    context = error.context_mark
    if error.problem == "could not find expected ':'":
        # PyYAML points after what it took for a key; the key is what has to change.
        mark = context or mark
        context = None

    at = start_of(source.file)
    if mark is not None:
        at = source.span(mark.line, mark.column, mark.column + 1)

    notes = []
    if context and error.context:
        notes.append(Note(source.span(context.line, context.column), error.context))

    before = at.text[: at.column - 1]
    is_tab_in_indentation = not before.strip(" ") and at.text[at.column - 1 : at.column] == "\t"
    help_text = None
    if is_tab_in_indentation:
        help_text = "indent with spaces: YAML takes no tabs there"
    elif at.text.strip() == "...":
        help_text = SPREAD_HELP

    message = _one_line(error.problem or "not YAML")
    return codes.YAML_SYNTAX.at(at, message, notes=notes, help_text=help_text)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def _own_tag(raw: yaml.Node) -> str:
    """Return a tag that the file writes, such as ``!reset``, else ""."""
    return raw.tag if raw.tag.startswith("!") and raw.tag != "!" else ""


@dataclass
class _TreeBuilder:
    """One conversion of PyYAML's graph. A shared node is converted once and stays shared.

    ``converted`` has each finished node with the number of values in it, aliases expanded; ``open``
    has the nodes that are being converted now.
    """

    source: Source
    document: YamlDocument
    diagnostics: list[Diagnostic] = field(default_factory=list)
    bomb: Diagnostic | None = None
    converted: dict[int, tuple[Node, int]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def node(self, raw: yaml.Node) -> Node:
        node, _size = self._sized(raw)
        return node

    def _sized(self, raw: yaml.Node) -> tuple[Node, int]:
        """Return the converted node, and the number of values in it."""
        known = self.converted.get(id(raw))
        if known is not None:
            return known
        if id(raw) in self.open:
            self._report_bomb(raw, "an anchor that contains itself")
            return ScalarNode("", self._span(raw), plain=True), 1

        self.open.add(id(raw))
        node, size = self._convert(raw)
        self.open.discard(id(raw))

        # Ten aliases of ten aliases, a few times over, are a short file, and billions of values to
        # all code that walks the tree. Further out the node counts as one: one report is enough.
        if size > MAX_NODES:
            self._report_bomb(raw, f"expands to more than {MAX_NODES} values")
            size = 1

        self.converted[id(raw)] = node, size
        return node, size

    def _convert(self, raw: yaml.Node) -> tuple[Node, int]:
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw), 1

        if isinstance(raw, yaml.SequenceNode):
            sized_items = [self._sized(item) for item in raw.value]
            items = tuple(item for item, _size in sized_items)
            size = 1 + sum(size for _item, size in sized_items)
            return ListNode(items, self._span(raw), _own_tag(raw)), size

        assert isinstance(raw, yaml.MappingNode)
        return self._mapping(raw)

    def _scalar(self, raw: yaml.ScalarNode) -> ScalarNode:
        text: str = raw.value
        # A lone surrogate can't be encoded as UTF-8, and would raise wherever it is written.
        if any("\ud800" <= char <= "\udfff" for char in text):
            message = "an escape that names half a character"
            self.diagnostics.append(codes.YAML_SYNTAX.at(self._span(raw), message))
            text = ""
        plain = self.document.is_plain(raw)
        return ScalarNode(text, self._span(raw), plain=plain, tag=_own_tag(raw))

    def _mapping(self, raw: yaml.MappingNode) -> tuple[Node, int]:
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        size = 1

        for raw_key, raw_value in raw.value:
            key = self._key(raw_key)
            value, value_size = self._sized(raw_value)
            size += 1 + value_size
            if key is None:
                continue

            if key.text == "<<" and key.plain:
                for entry in self._merged_entries(value):
                    merged.setdefault(entry.key.text, entry)
            elif key.text in own:
                note = Note(own[key.text].key.span, "the first one is here")
                message = f"the key {quote(key.text)} is repeated here"
                self.diagnostics.append(codes.DUPLICATE_KEY.at(key.span, message, notes=[note]))
            else:
                own[key.text] = Entry(key, value)

        # A key of the mapping itself wins over a merged one, wherever ``<<`` is.
        inherited = [entry for name, entry in merged.items() if name not in own]
        entries = (*own.values(), *inherited)
        return MapNode(entries, self._span(raw), _own_tag(raw)), size

    def _key(self, raw: yaml.Node) -> ScalarNode | None:
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw)
        self.diagnostics.append(codes.WRONG_TYPE.at(self._span(raw), "a key is a single value"))
        return None

    def _merged_entries(self, value: Node) -> list[Entry]:
        """Return the entries that ``<<`` brings from a mapping, or from a list of mappings.

        Of two entries with one key, the caller takes the earlier
        (https://yaml.org/type/merge.html).
        """
        entries: list[Entry] = []
        for part in value.items if isinstance(value, ListNode) else (value,):
            if isinstance(part, MapNode):
                entries.extend(part.entries)
            else:
                message = "'<<' merges a mapping, or a list of mappings"
                self.diagnostics.append(codes.WRONG_TYPE.at(part.span, message))

        return entries

    def _report_bomb(self, raw: yaml.Node, message: str) -> None:
        if self.bomb is None:
            self.bomb = codes.ALIAS_BOMB.at(self._span(raw), message)

    def _span(self, raw: yaml.Node) -> Span:
        start = raw.start_mark
        end = raw.end_mark
        is_one_line = end.line == start.line
        return self.source.span(start.line, start.column, end.column if is_one_line else None)
