"""One meaning of YAML for all files that people write: pod files, and ``toolhost.yml``.

Specification: docs/spec/compile.md "Diagnostics".

Rules. A plain scalar is what YAML 1.2's core schema says: ``on``, ``yes``, ``22:22``, ``1_000`` and
``2001-01-01`` are texts (YAML 1.1, as PyYAML reads it, would make them true, true, 1342, 1000 and a
date), and ``0123`` is 123 (YAML 1.1: 83). Whoever needs the spelling takes it from the node.
"""

import contextlib
import re
from typing import Any, Final, NamedTuple

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

MAX_DIGITS: Final = 400
"""The most digits of a number. A longer one stays a text.

Python refuses to convert thousands of digits, and nobody means them.
"""
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, bool | float | None]] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
)
_STRING: Final = "tag:yaml.org,2002:str"
_DISPUTED = re.compile("[\t\ufeff\x85\u2028\u2029]")
"""Characters that libyaml and PyYAML treat differently."""


class YamlDocument(NamedTuple):
    """PyYAML's node graph of a text; ``root`` is None where the text holds no document."""

    root: yaml.Node | None
    tagged_strings: set[int]
    """The ``id`` of each plain scalar that its tag makes a string: ``!!str 0123`` is ``"0123"``."""

    def is_plain(self, node: yaml.ScalarNode) -> bool:
        """Return whether a scalar may be a number, a boolean or null: no quotes, and no string tag.

        The node must be one of this document's.
        """
        return not node.style and id(node) not in self.tagged_strings


def compose_yaml(text: str) -> YamlDocument:
    """Return the node graph of a text. Aliases are shared nodes, and may contain themselves.

    Raise ``yaml.YAMLError``; ``ValueError`` or ``OverflowError`` for an escape that names no
    character; ``RecursionError``.
    """
    # libyaml's parser is four times as fast, where it is there. It refuses in words of its own, so
    # PyYAML's parser tells what is wrong: its places and words are those of our errors.
    if yaml.__with_libyaml__ and not _DISPUTED.search(text):
        with contextlib.suppress(yaml.YAMLError, ValueError):
            fast = _LibyamlLoader(text)
            return YamlDocument(fast.get_single_node(), fast.tagged_strings)

    loader = _PyYamlLoader(text)
    return YamlDocument(loader.get_single_node(), loader.tagged_strings)


def scalar_value(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar by YAML 1.2's core schema, and nothing more.

    >>> scalar_value("on"), scalar_value("22:22"), scalar_value("1_000"), scalar_value("0123")
    ('on', '22:22', '1_000', 123)
    >>> scalar_value("0x10"), scalar_value("1e3"), scalar_value("~")
    (16, 1000.0, None)
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


class _StringRecorder(Composer):
    """A composer that resolves no plain scalar, and notes which ones a tag makes a string."""

    tagged_strings: set[int]

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        is_tagged = self.peek_event().tag in {_STRING, "!"}  # type: ignore[attr-defined]
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if is_tagged:
            self.tagged_strings.add(id(node))
        return node

    # PyYAML would resolve by YAML 1.1 here, which is of no interest
    def resolve(self, _kind: type[yaml.Node], _value: str | None, _implicit: object) -> str:
        return _STRING

    def descend_resolver(self, _node: yaml.Node | None, _index: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


class _PyYamlLoader(_StringRecorder, Reader, Scanner, Parser):
    """The loader on PyYAML's own events."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        self.tagged_strings = set()


class _LibyamlLoader(_StringRecorder):
    """The same loader on libyaml's events."""

    def __init__(self, text: str) -> None:
        parser = yaml.CSafeLoader(text)
        Composer.__init__(self)
        self.tagged_strings = set()

        self.parser = parser
        self.check_event = parser.check_event
        self.peek_event = parser.peek_event
        self.get_event = parser.get_event
