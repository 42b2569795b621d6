"""``tools-host``: the settings of a tools host, in the pod file or in a file of its own.

Specification: docs/spec/tools-host.md "In a pod".

Rules. The keys are those of ``toolhost.yml``, and so their shapes are made from its models
(``claw_contract.toolhost_file``). The sections below ``tools:`` are written at the top here, beside
``limits``, ``protected`` and ``audit_arguments``. Who may do what is no part of it: the grants of
the pod say it, and the compiler writes the principals. Values are checked here, where their place
is known, and carried as data; a credential is a variable or a file of the container.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import ToolsHost
from claw_compile.grammar.reader import Reader
from claw_compile.parsing.node import MapNode, Node, ScalarNode
from claw_contract import toolhost_file as contract
from claw_contract.yaml_nodes import scalar_value

type Settings = dict[str, Any]

_VOLUME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_CHANNEL_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"  # Of a pod; a host takes any name
_REFERENCE = re.compile(rf"\$\{{{contract.VARIABLE_NAME}\}}")


def _plain(value: Any) -> Any:
    """Return what a shape has read as data."""
    match value:
        case ScalarNode():
            return value.text
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _read(members: shapes.Members, keys: tuple[shapes.Key[Any], ...]) -> Settings:
    settings: Settings = {}
    for key in keys:
        value = members[key]
        if value is not None:
            settings[key.name] = _plain(value)
    return settings


def _settings(*keys: shapes.Key[Any], **rules: Any) -> shapes.Record[Settings]:
    """Return the shape of a mapping that is carried as data."""
    return shapes.Record(keys, lambda members: _read(members, keys), **rules)


# The values of the contract's types


def _check_size(reader: Reader, value: ScalarNode, node: Node) -> ScalarNode | None:
    if contract.parse_size(value.text) >= contract.MIN_SIZE:
        return value
    message = f"{quote(value.shown)} is too small: write {contract.MIN_SIZE} bytes or more"
    reader.report(codes.BAD_VALUE, node.span, message)
    return None


def _template(_reader: Reader, value: ScalarNode, _node: Node) -> str:
    """Return a text that may hold a credential.

    ``${NAME}`` stays, for the host fills it in from its own environment.
    """
    is_template = "$" not in _REFERENCE.sub("", value.shown)
    return value.shown if is_template else value.text


_ENV = shapes.Key(
    "env",
    shapes.Text(contract.VARIABLE_NAME, "'env' is the name of a variable"),
    "A variable of the tools host.",
)
_FILE = shapes.Key("file", shapes.Text(), "A file in the tools host's container.")
_CREDENTIAL = _settings(_ENV, _FILE, either=(_ENV, _FILE))
_TEMPLATE = shapes.Conversion(shapes.Text(), _template)
_SECRET_TEXT = shapes.ScalarOr[Any](_TEMPLATE, _CREDENTIAL)
_SIZE = shapes.Conversion(
    shapes.Text(contract.SIZE, "{shown} is no size: bytes, or a number with KiB, MiB or GiB"),
    _check_size,
)
_URL = shapes.Text(r"https?://[!-~]+", "{shown} is no URL of http or https")
_SHAPES: Final[Mapping[Any, shapes.Shape[Any]]] = {
    str: shapes.Text(),
    bool: shapes.Flag(),
    contract.Word: shapes.Text(),
    contract.HostName: shapes.Text(),
    contract.Size: _SIZE,
    contract.Port: shapes.Limit(contract.MAX_PORT),
    contract.Url: _URL,
    contract.CredentialSecret: _CREDENTIAL,
    contract.SecretText: _SECRET_TEXT,
    contract.RedisUrl: _SECRET_TEXT,
}
_NAMES: Final[Mapping[Any, tuple[str, str]]] = {
    contract.VariableName: ("variable", contract.VARIABLE_NAME),
    contract.HeaderName: ("header", contract.HEADER_NAME),
    contract.ChannelName: ("channel", _CHANNEL_NAME),
    contract.Namespace: ("MCP server", rf"(?!{contract.RESERVED_NAMESPACE}$){contract.NAMESPACE}"),
}
"""For each kind of mapping: the word for its names in messages, and their pattern."""


@dataclass(frozen=True)
class _Seconds:
    """A positive number, which may have a fraction, with or without quotes."""

    max: float

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> float | None:
        word = reader.text(node, place.what)
        if word is None:
            return None

        number = _number(word.text)
        if number is None or not number > 0:  # ``.nan`` is not above 0
            reader.report(codes.BAD_LIMIT, node.span, f"{place.what} is a number above 0")
            return None

        if number > self.max:
            reader.report(codes.BAD_LIMIT, node.span, f"{place.what} is at most {self.max}")
            return None
        return number

    def json_schema(self) -> shapes.Schema:
        return shapes.or_variable(
            {
                "type": ["number", "string"],
                "exclusiveMinimum": 0,
                "maximum": self.max,
                "pattern": r"^\+?[0-9]*\.?[0-9]+\.?([eE][-+]?[0-9]+)?$",
            }
        )


def _number(text: str) -> float | None:
    """Return the number that a plain value means; None if it means another thing."""
    value = scalar_value(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


# Sections of the contract as shapes


def _section(section: type[contract.Section], **rules: Any) -> shapes.Shape[Settings]:
    """Return the shape of a section of ``toolhost.yml``."""
    keys = _keys(section)
    required = tuple(key for key in keys if section.model_fields[key.name].is_required())
    either = tuple(key for key in keys if key.name in section.either)
    record = _settings(*keys, required=required, either=either, **rules)
    if not section.needs and not section.bounds:
        return record

    def check(reader: Reader, settings: Settings, node: Node) -> Settings:
        _check_needs(section, reader, node)
        _check_bounds(section, reader, settings, node)
        return settings

    schema = record.json_schema()
    if section.needs:
        schema["dependencies"] = {key: [other] for key, other in section.needs.items()}
    return shapes.Conversion(record, check, schema)


def _check_needs(section: type[contract.Section], reader: Reader, node: Node) -> None:
    if not isinstance(node, MapNode):
        return
    for key, other in section.needs.items():
        if node.get(key) and not node.get(other):
            reader.report(codes.BAD_VALUE, node.span, f"{quote(key)} goes with {quote(other)}")


def _check_bounds(
    section: type[contract.Section], reader: Reader, settings: Settings, node: Node
) -> None:
    for key, highest in section.bounds.items():
        bound = settings.get(highest, section.model_fields[highest].default)
        if key in settings and settings[key] > bound:
            message = f"{quote(key)} is above {quote(highest)}"
            reader.report(codes.BAD_VALUE, node.span, message)


def _keys(
    section: type[contract.Section], without: Collection[str] = ()
) -> tuple[shapes.Key[Any], ...]:
    fields = section.model_fields.items()
    return tuple(_key(name, field) for name, field in fields if name not in without)


def _key(name: str, field: FieldInfo) -> shapes.Key[Any]:
    shape = _shape(field.annotation, field.metadata)
    return shapes.Key(name, shape, field.description or "", _shown_default(field))


def _shape(kind: Any, metadata: Collection[Any] = ()) -> shapes.Shape[Any]:
    """Return the shape of a type of the contract, with its limits."""
    if kind in _SHAPES:
        return _SHAPES[kind]
    if kind is int:
        return _limit(metadata)
    if kind is float:
        return _Seconds(_highest(metadata))

    arguments = [each for each in get_args(kind) if each is not NoneType]
    origin = get_origin(kind)
    if origin is list:
        return shapes.ListOf(_shape(arguments[0]))
    if origin is dict:
        return _table(*_NAMES[arguments[0]], _shape(arguments[1]))
    if origin is Literal:
        return shapes.Choice(tuple(arguments))
    if arguments:  # A type, or None
        return _shape(arguments[0])
    return _section(kind)


def _limit(metadata: Collection[Any]) -> shapes.Limit:
    """Return the shape of a whole number: none is below 1 in a pod file."""
    return shapes.Limit(_highest(metadata))


def _highest(metadata: Collection[Any]) -> int:
    """Return the highest value that a type's constraints let through."""
    for constraint in metadata:
        highest: int | None = getattr(constraint, "le", None)
        if highest is not None:
            return highest
    return shapes.MAX_LIMIT


def _table(kind: str, names: str, value: shapes.Shape[Any]) -> shapes.Conversion[Any, Settings]:
    table = shapes.Table(kind, names, value)
    return shapes.Conversion(
        table, lambda _reader, pairs, _node: {name.text: _plain(each) for name, each in pairs}
    )


def _shown_default(field: FieldInfo) -> Any:
    """Return the default as an editor shows it; None for a list, a mapping and a section."""
    kind: Any = field.annotation
    default = field.default
    if kind is contract.Size:
        is_in_mib = default % contract.MIB == 0
        return f"{default // contract.MIB}MiB" if is_in_mib else f"{default // contract.KIB}KiB"
    return default if isinstance(default, str | int | float) else None


# The key of the pod file, and the whole file

_ELSEWHERE: Final = ("listen", "principals")
_TOOLS = _keys(contract.ToolsSection)
_LIMITS = shapes.Key(
    "limits",
    _settings(*_keys(contract.LimitsSection), *_keys(contract.CallLimitsSection)),
    contract.HostSection.model_fields["limits"].description or "",
)
_HOST = (_LIMITS, *_keys(contract.HostSection, without=("limits", *_ELSEWHERE)))
_FILE_KEY = shapes.Key(
    "file", shapes.Text(), "A toolhost.yml beside the pod file, with these settings."
)
_VOLUME_KEY = shapes.Key(
    "volume",
    shapes.Text(_VOLUME, f"a volume's name is {_VOLUME}"),
    "The volume of the workspaces; default: NAME-workspaces.",
)


def _build(members: shapes.Members) -> ToolsHost:
    file = members[_FILE_KEY]
    volume = members[_VOLUME_KEY]
    volume_name = volume.text if volume else None
    return ToolsHost(file, volume_name, _read(members, _TOOLS), _read(members, _HOST))


TOOLS_HOST = shapes.Record((_FILE_KEY, _VOLUME_KEY, *_TOOLS, *_HOST), _build, is_nullable=True)

_COMPILED = tuple(
    shapes.Key(
        name,
        shapes.AnyMapping(),
        "Of a host that is no part of a pod; the compiler writes its own.",
    )
    for name in _ELSEWHERE
)
_HOST_SECTION = shapes.Key(
    "toolhost",
    shapes.Record((*_HOST, *_COMPILED), lambda members: _read(members, _HOST), is_nullable=True),
    contract.ToolHostFile.model_fields["toolhost"].description or "",
)
_TOOLS_SECTION = shapes.Key(
    "tools",
    _settings(*_TOOLS, is_nullable=True),
    contract.ToolHostFile.model_fields["tools"].description or "",
)


def _build_file(members: shapes.Members) -> ToolsHost:
    host = members[_HOST_SECTION] or {}
    tools = members[_TOOLS_SECTION] or {}
    return ToolsHost(host=host, tools=tools)


TOOLHOST_FILE = shapes.Record((_HOST_SECTION, _TOOLS_SECTION), _build_file, "toolhost.yml")
"""A whole ``toolhost.yml``.

A pod takes only the settings from it: the compiler writes principals and addresses.
"""
