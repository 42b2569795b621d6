"""YAML text → a tree with places (docs/spec/compile.md "Diagnostics", last paragraph).

PyYAML's node graph gives positions and spelling; duplicate keys, merge keys, several documents and
alias bombs are ours. A merged or aliased value keeps the place where it was written, which is the
line that has to change.
"""

import re
from dataclasses import dataclass, field

import yaml

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote, start_of
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, Source
from claw_contract.yaml_nodes import YamlDocument, compose_yaml

MAX_NODES = 100_000  # The most values that a document may have once its aliases are expanded
_PRESENTATION = re.compile(r"\s*(#.*|%.*)?$")
SPREAD_HELP = (
    "to splice the pod's defaults write '- ...', with the dash, where the list's entries stand"
)


def read_yaml(source: Source) -> Result[MapNode]:
    """Return the document's tree, or what is wrong with it.

    The value is None when the text can't be parsed at all.
    """
    if diagnostics := _document_marks(source):
        return Result(None, diagnostics)
    try:
        document = compose_yaml(source.text)
        if document.root is None:
            return Result(
                None, (codes.NOT_A_MAPPING.at(start_of(source.file), "the file holds no document"),)
            )
        builder = _TreeBuilder(source, document)
        node = builder.node(document.root)
    except yaml.MarkedYAMLError as error:
        return Result(None, (_syntax(source, error),))
    except yaml.reader.ReaderError as error:
        at = source.span_of(error.position, error.position + 1)
        return Result(None, (codes.YAML_SYNTAX.at(at, "a character that YAML does not allow"),))
    except (ValueError, OverflowError):
        return Result(
            None,
            (codes.YAML_SYNTAX.at(start_of(source.file), "an escape that names no character"),),
        )
    except RecursionError:
        return Result(None, (codes.YAML_SYNTAX.at(start_of(source.file), "nested too deeply"),))
    if builder.bomb is not None:
        return Result(None, (builder.bomb,))
    if not isinstance(node, MapNode):
        return Result(
            None,
            (codes.NOT_A_MAPPING.at(node.span, "a pod file is a mapping"), *builder.diagnostics),
        )
    return Result(node, tuple(builder.diagnostics))


def _document_marks(source: Source) -> tuple[Diagnostic, ...]:
    content = False
    for number, line in enumerate(source.lines, start=1):
        mark = line[:3]
        if mark in {"...", "---"} and (len(line) == len(mark) or line[3].isspace()):
            at = Span(source.file, number, 1, 4, line)
            if mark == "...":
                return (
                    codes.DOCUMENT_END.at(at, "this line ends the document", help_text=SPREAD_HELP),
                )
            if content:
                return (codes.SECOND_DOCUMENT.at(at, "a second document begins here"),)
            content = True
        elif not _PRESENTATION.match(line):
            content = True
    return ()


def _syntax(source: Source, error: yaml.MarkedYAMLError) -> Diagnostic:
    mark, before = error.problem_mark, error.context_mark
    if error.problem == "could not find expected ':'":
        # PyYAML points behind what it took for a key; the key is what has to change.
        mark, before = before or mark, None
    at = source.span(mark.line, mark.column, mark.column + 1) if mark else start_of(source.file)
    notes = (
        [Note(source.span(before.line, before.column), error.context or "")]
        if before and error.context
        else []
    )
    spread = SPREAD_HELP if at.text.strip() == "..." else None
    if at.text[: at.column - 1].strip(" ") == "" and "\t" in at.text[: at.column]:
        spread = "indent with spaces: YAML takes no tabs there"
    return codes.YAML_SYNTAX.at(
        at, _one_line(error.problem or "not YAML"), notes=notes, help_text=spread
    )


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def _own_tag(raw: yaml.Node) -> str:
    return raw.tag if raw.tag.startswith("!") and raw.tag != "!" else ""


@dataclass
class _TreeBuilder:
    """One conversion of PyYAML's graph; shared nodes are converted once and stay shared."""

    source: Source
    document: YamlDocument
    diagnostics: list[Diagnostic] = field(default_factory=list)
    bomb: Diagnostic | None = None
    done: dict[int, tuple[Node, int]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def node(self, raw: yaml.Node) -> Node:
        return self._sized(raw)[0]

    def _sized(self, raw: yaml.Node) -> tuple[Node, int]:
        if (known := self.done.get(id(raw))) is not None:
            return known
        if id(raw) in self.open:
            self._explode(raw, "an anchor that contains itself")
            return ScalarNode("", self._span(raw), plain=True), 1
        self.open.add(id(raw))
        node, size = self._convert(raw)
        self.open.discard(id(raw))
        if size > MAX_NODES:
            self._explode(raw, f"expands to more than {MAX_NODES} values")
            size = 1
        self.done[id(raw)] = node, size
        return node, size

    def _convert(self, raw: yaml.Node) -> tuple[Node, int]:
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw), 1
        if isinstance(raw, yaml.SequenceNode):
            items = [self._sized(item) for item in raw.value]
            node = ListNode(tuple(item for item, _ in items), self._span(raw), _own_tag(raw))
            return node, 1 + sum(size for _, size in items)
        assert isinstance(raw, yaml.MappingNode)
        return self._mapping(raw)

    def _scalar(self, raw: yaml.ScalarNode) -> ScalarNode:
        text: str = raw.value
        if any("\ud800" <= char <= "\udfff" for char in text):
            self.diagnostics.append(
                codes.YAML_SYNTAX.at(self._span(raw), "an escape that names half a character")
            )
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
                for entry in self._merge(value):
                    merged.setdefault(entry.key.text, entry)
            elif (first := own.get(key.text)) is not None:
                note = Note(first.key.span, "it is here for the first time")
                message = f"the key {quote(key.text)} stands here again"
                self.diagnostics.append(codes.DUPLICATE_KEY.at(key.span, message, notes=[note]))
            else:
                own[key.text] = Entry(key, value)
        entries = (*own.values(), *(entry for name, entry in merged.items() if name not in own))
        return MapNode(entries, self._span(raw), _own_tag(raw)), size

    def _key(self, raw: yaml.Node) -> ScalarNode | None:
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw)
        self.diagnostics.append(codes.WRONG_TYPE.at(self._span(raw), "a key is a single value"))
        return None

    def _merge(self, value: Node) -> list[Entry]:
        """Return the entries that ``<<`` brings: of a mapping, or of a list of
        them, where an earlier one wins.
        """
        parts = value.items if isinstance(value, ListNode) else (value,)
        entries: list[Entry] = []
        for part in parts:
            if isinstance(part, MapNode):
                entries.extend(part.entries)
            else:
                self.diagnostics.append(
                    codes.WRONG_TYPE.at(part.span, "'<<' merges a mapping, or a list of mappings")
                )
        return entries

    def _explode(self, raw: yaml.Node, message: str) -> None:
        self.bomb = self.bomb or codes.ALIAS_BOMB.at(self._span(raw), message)

    def _span(self, raw: yaml.Node) -> Span:
        start, end = raw.start_mark, raw.end_mark
        return self.source.span(
            start.line, start.column, end.column if end.line == start.line else None
        )
