"""The shapes that values of a pod file take.

Each shape reads a value, and describes itself as JSON Schema for editors. A shape that can't read a
value reports why and returns None, so that one run finds every mistake.

The two don't accept quite the same values. An editor sees a value before its variables are filled
in, so a text with a ``$`` may become anything. A plain scalar is a number or a boolean to an
editor, and text to the grammar, which reads its spelling. A rule about two places (a service that
must exist, a second ``...``) is not in the JSON Schema.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Code, Note, Span, did_you_mean, quote
from claw_compile.grammar.pod import EntryList, Spread
from claw_compile.grammar.reader import Reader, is_null, is_spread
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, kind

type Schema = dict[str, Any]
MAX_LIMIT = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")
_ANY_TEXT = r"[\s\S]*\S[\s\S]*"
_SAMPLES = {"integer": "5", "number": "1.5", "boolean": "true"}
"""A value of each type that a plain scalar may have."""
_NULL: Schema = {"type": "null"}
# A ``$`` that begins a variable, after any number of ``$$``.
_VARIABLE: Schema = {"type": "string", "pattern": r"^(?:[^$]|\$\$)*\$[A-Za-z_{]"}
_SPREAD: Schema = {"const": "...", "description": "The pod's defaults go here; once in a list."}


def or_variable(schema: Schema) -> Schema:
    """Return the schema of a value that may be written as a variable."""
    return {"anyOf": [schema, _VARIABLE]}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def one_of(*keys: str) -> Schema:
    """Return the schema of a mapping that has exactly one of the keys."""
    return {"oneOf": [{"required": [key]} for key in keys]}


@dataclass(frozen=True)
class ValuePlace:
    """The place of a value: its name in messages, and the span to report it at.

    That is the span of the value's key, or of the value itself in a list.
    """

    what: str
    span: Span


class Shape[T](Protocol):
    """One shape: how a value is read into a ``T``, and its JSON Schema."""

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> T | None:
        """Return the value, or report what is wrong with it and return None."""

    def json_schema(self) -> Schema:
        """Return the JSON Schema (draft 7) of the same values."""


@dataclass(frozen=True)
class Text:
    """A single value that is not empty and matches a pattern.

    ``{shown}`` in the message is replaced by the value as the file has it.
    """

    pattern: str = _ANY_TEXT
    message: str = ""
    code: Code = codes.BAD_VALUE
    name: str = ""
    max_length: int | None = None

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> ScalarNode | None:
        what = self.name or place.what
        word = reader.text(node, what)
        if word is None:
            return None

        if self.pattern != _ANY_TEXT and not re.fullmatch(self.pattern, word.text):
            reader.report(self.code, word.span, self.message.format(shown=quote(word.shown)))
            return None
        if self.max_length is not None and len(word.text) > self.max_length:
            reader.report(self.code, word.span, f"{what} has at most {self.max_length} characters")
            return None

        return word

    def json_schema(self) -> Schema:
        # To an editor a plain scalar may be a number or a boolean. These are allowed where their
        # spelling matches the pattern.
        types = ["string"]
        types += [name for name, sample in _SAMPLES.items() if re.fullmatch(self.pattern, sample)]

        schema = or_variable({"type": types, "pattern": f"^(?:{self.pattern})$"})
        if self.max_length is None:
            return schema
        return {"allOf": [schema, {"maxLength": self.max_length}]}


@dataclass(frozen=True)
class Prose:
    """A text of any number of lines, which may be empty."""

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> str | None:
        if not isinstance(node, ScalarNode) or node.is_null:
            message = f"{place.what} is a text, and this is {kind(node)}"
            reader.report(codes.WRONG_TYPE, node.span, message)
            return None

        text = reader.fill(node, allowed="\n\t")
        return text.text if text else None

    def json_schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class Choice[W: str]:
    """One word of a closed set."""

    options: tuple[W, ...]

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> W | None:
        word = reader.text(node, place.what)
        if word is None:
            return None

        for option in self.options:
            if word.text == option:
                return option

        message = f"{place.what} is one of {', '.join(self.options)}"
        hint = did_you_mean(word.shown, self.options)
        reader.report(codes.BAD_VALUE, node.span, message, hint=hint)
        return None

    def json_schema(self) -> Schema:
        return or_variable({"enum": list(self.options)})


@dataclass(frozen=True)
class Flag:
    """``true`` or ``false``, with or without quotes."""

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> bool | None:
        word = reader.text(node, place.what)
        if word is None:
            return None

        if word.text not in {"true", "false"}:
            reader.report(codes.BAD_VALUE, node.span, f"{place.what} is true or false")
            return None
        return word.text == "true"

    def json_schema(self) -> Schema:
        return or_variable({"type": ["boolean", "string"], "pattern": "^(?:true|false)$"})


@dataclass(frozen=True)
class Limit:
    """A positive integer, with or without quotes."""

    max: int = MAX_LIMIT

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> int | None:
        word = reader.text(node, place.what)
        if word is None:
            return None

        is_number = _NUMBER.fullmatch(word.text) is not None
        if not (is_number and 0 < int(word.text) <= MAX_LIMIT):
            reader.report(codes.BAD_LIMIT, node.span, f"{place.what} is a positive integer")
            return None

        number = int(word.text)
        if number > self.max:
            reader.report(codes.BAD_LIMIT, node.span, f"{place.what} is at most {self.max}")
            return None
        return number

    def json_schema(self) -> Schema:
        return or_variable(
            {
                "type": ["integer", "string"],
                "minimum": 1,
                "maximum": self.max,
                "pattern": "^0*[1-9][0-9]{0,9}$",
            }
        )


@dataclass(frozen=True)
class AnyValue:
    """Any value, which is carried as it is."""

    def read(self, _reader: Reader, node: Node, _place: ValuePlace) -> Node | None:
        return node

    def json_schema(self) -> Schema:
        return {}


@dataclass(frozen=True)
class AnyMapping:
    """A mapping whose entries are not checked, or null."""

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> MapNode | None:
        return reader.mapping(node, place.what)

    def json_schema(self) -> Schema:
        return or_null({"type": "object"})


@dataclass(frozen=True)
class Conversion[S, T]:
    """Another shape whose value is checked further and converted.

    ``schema`` replaces the shape's JSON Schema, where that would accept more than ``convert`` does.
    """

    shape: Shape[S]
    convert: Callable[[Reader, S, Node], T | None]
    schema: Schema | None = None

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> T | None:
        value = self.shape.read(reader, node, place)
        return None if value is None else self.convert(reader, value, node)

    def json_schema(self) -> Schema:
        return self.shape.json_schema() if self.schema is None else self.schema


@dataclass(frozen=True)
class ScalarOr[T]:
    """A single value of one shape, or else a list or mapping of another."""

    scalar: Shape[T]
    other: Shape[T]

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> T | None:
        is_scalar = isinstance(node, ScalarNode) and not node.is_null
        shape = self.scalar if is_scalar else self.other
        return shape.read(reader, node, place)

    def json_schema(self) -> Schema:
        return {"anyOf": [self.scalar.json_schema(), self.other.json_schema()]}


@dataclass(frozen=True)
class ListOf[T]:
    """A list; ``null`` is an empty one. Items that can't be read are reported and left out."""

    item: Shape[T]

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> tuple[T, ...]:
        values: list[T] = []
        for item in items(reader, node, place.what):
            item_place = ValuePlace(f"an entry of {place.what}", item.span)
            value = self.item.read(reader, item, item_place)
            if value is not None:
                values.append(value)

        return tuple(values)

    def json_schema(self) -> Schema:
        return {"type": ["array", "null"], "items": self.item.json_schema()}


@dataclass(frozen=True)
class SpreadList[T]:
    """A list with at most one ``...`` for the pod's defaults (docs/spec/compile.md, "Defaults").

    A list of defaults (``is_default``) takes no ``...``.
    """

    item: Shape[T]
    is_default: bool = False

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> EntryList[T]:
        entries: list[T | Spread] = []
        first: Spread | None = None

        for item in items(reader, node, place.what):
            if not is_spread(item):
                item_place = ValuePlace(f"an entry of {place.what}", item.span)
                value = self.item.read(reader, item, item_place)
                if value is not None:
                    entries.append(value)
            elif self.is_default:
                message = f"'...' in {place.what}: these are the defaults themselves"
                reader.report(codes.SPREAD_WITHOUT_DEFAULTS, item.span, message)
            elif first is not None:
                message = f"'...' twice in {place.what}"
                notes = [Note(first.span, "the first one is here")]
                reader.report(codes.SPREAD_TWICE, item.span, message, notes=notes)
            else:
                first = Spread(item.span)
                entries.append(first)

        return EntryList(place.span, tuple(entries))

    def json_schema(self) -> Schema:
        item = self.item.json_schema()
        entry: Schema = {"anyOf": [_SPREAD, item]}
        if self.is_default:
            entry = {"allOf": [{"not": {"const": "..."}}, item]}
        return {"type": ["array", "null"], "items": entry}


def items(reader: Reader, node: Node, what: str) -> tuple[Node, ...]:
    """Return the items of a list; ``null`` is an empty one. Report anything else."""
    if isinstance(node, ListNode):
        return node.items
    if is_null(node):
        return ()

    message = f"{what} is a list, and this is {kind(node)}"
    hint = "a spread is an entry of the list: '- ...'" if is_spread(node) else None
    reader.report(codes.WRONG_TYPE, node.span, message, hint=hint)
    return ()


@dataclass(frozen=True)
class Table[T]:
    """A mapping of free names that match a pattern; ``null`` is an empty one.

    ``kind`` is the word for one entry in messages, such as ``variable`` or ``secret``.
    """

    kind: str
    names: str
    value: Shape[T]

    def read(
        self, reader: Reader, node: Node, place: ValuePlace
    ) -> tuple[tuple[ScalarNode, T], ...]:
        mapping = reader.mapping(node, place.what)
        if mapping is None:
            return ()

        pairs: list[tuple[ScalarNode, T]] = []
        for entry in mapping.entries:
            name = entry.key
            shown = quote(name.text)
            if not re.fullmatch(self.names, name.text):
                message = f"{shown} can't name a {self.kind}: {self.names}"
                reader.report(codes.BAD_VALUE, name.span, message)
                continue

            value_place = ValuePlace(f"the {self.kind} {shown}", name.span)
            value = self.value.read(reader, entry.value, value_place)
            if value is not None:
                pairs.append((name, value))

        return tuple(pairs)

    def json_schema(self) -> Schema:
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": f"^(?:{self.names})$"},
            "additionalProperties": self.value.json_schema(),
        }


@dataclass(frozen=True)
class MissingKey:
    """The words for a required key that is absent, where the usual ones are not enough."""

    code: Code = codes.MISSING_KEY
    message: str = ""
    help_text: str | None = None


@dataclass(frozen=True)
class Key[T]:
    """A key of a mapping: its name, the shape of its value, and what an editor shows about it."""

    name: str
    shape: Shape[T]
    description: str
    default: Any = None
    deprecated: bool = False
    missing: MissingKey = MissingKey()

    def json_schema(self) -> Schema:
        schema = {"description": self.description, **self.shape.json_schema()}
        if self.default is not None:
            schema["default"] = self.default
        if self.deprecated:
            schema["deprecated"] = True
        return schema


@dataclass(frozen=True)
class Members:
    """The entries of one mapping.

    ``members[KEY]`` reads the value of a key, and is None where the key is absent. Each access
    reads again, and reports again: ask once for each key.
    """

    reader: Reader
    entries: Mapping[str, Entry]
    node: Node
    place: ValuePlace

    def __contains__(self, key: Key[Any]) -> bool:
        return key.name in self.entries

    def __getitem__[T](self, key: Key[T]) -> T | None:
        entry = self.entries.get(key.name)
        if entry is None:
            return None

        place = ValuePlace(quote(key.name), entry.key.span)
        return key.shape.read(self.reader, entry.value, place)

    def fields(self, keys: Mapping[str, Key[Any]]) -> dict[str, Any]:
        """Return field → value for the keys that have a value."""
        values: dict[str, Any] = {}
        for name, key in keys.items():
            value = self[key]
            if value is not None:
                values[name] = value
        return values

    def require(self, *keys: Key[Any]) -> None:
        """Report each of the keys that is absent."""
        for key in keys:
            if key in self:
                continue

            missing = key.missing
            message = missing.message or f"{self.place.what} needs {quote(key.name)}"
            self.reader.report(missing.code, self.place.span, message, help_text=missing.help_text)

    def require_one(self, *keys: Key[Any]) -> None:
        """Report the mapping unless it has exactly one of the keys."""
        if sum(key in self for key in keys) == 1:
            return

        either = " or ".join(quote(key.name) for key in keys)
        message = f"{self.place.what} needs either {either}"
        self.reader.report(codes.MISSING_KEY, self.place.span, message)


@dataclass(frozen=True)
class Record[T]:
    """A mapping with these keys and no others, and the value that ``build`` makes of it.

    ``required`` keys must be there, and exactly one of ``either``. Where ``is_nullable``, ``null``
    is an empty mapping; ``build`` then gets an empty mapping for a value of a wrong type too, which
    is reported. ``name`` is the name of the mapping in messages, in place of its key. ``rules`` are
    the JSON Schema of what ``build`` checks.
    """

    keys: tuple[Key[Any], ...]
    build: Callable[[Members], T | None]
    name: str = ""
    required: tuple[Key[Any], ...] = ()
    either: tuple[Key[Any], ...] = ()
    is_nullable: bool = False
    rules: Schema = field(default_factory=dict)

    def read(self, reader: Reader, node: Node, place: ValuePlace) -> T | None:
        place = ValuePlace(self.name or place.what, place.span)

        if isinstance(node, MapNode):
            entries = reader.keys(node, place.what, [key.name for key in self.keys])
            members = Members(reader, entries, node, place)
            members.require(*self.required)
            if self.either:
                members.require_one(*self.either)
            return self.build(members)

        if not (self.is_nullable and is_null(node)):
            message = f"{place.what} is a mapping, and this is {kind(node)}"
            reader.report(codes.WRONG_TYPE, node.span, message)
        if not self.is_nullable:
            return None
        return self.build(Members(reader, {}, node, place))

    def json_schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {key.name: key.json_schema() for key in self.keys},
            "additionalProperties": False,
            **self.rules,
        }
        if self.required:
            schema["required"] = [key.name for key in self.required]
        if self.either:
            schema |= one_of(*(key.name for key in self.either))
        return or_null(schema) if self.is_nullable else schema
