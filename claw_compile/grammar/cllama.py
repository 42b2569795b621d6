"""``cllama`` and the environment of the proxy (docs/spec/compile.md "Grammar").

Rules. ``cllama`` is a name, a list of names, or ``{proxy, mode}``; ``null`` and ``[]`` mean none. ``env`` and ``cllama-env``
are the proxy's only, and where provider keys belong: their values are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar.access import VARIABLE_NAME
from claw_compile.grammar.pod import MODES, Cllama, Mode, Setting
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import (
    Choice,
    Conversion,
    Key,
    ListOf,
    Members,
    Place,
    Record,
    ScalarOr,
    Schema,
    Table,
    Text,
)
from claw_compile.parsing.node import MapNode, Node, ScalarNode, kind

_PROXY_NAME = Text("[a-z0-9][a-z0-9-]*", "{shown} is no type of proxy: [a-z0-9-]+")
_PROXIES = ScalarOr(Conversion(_PROXY_NAME, lambda _reader, name, _node: (name,)), ListOf(_PROXY_NAME))


@dataclass(frozen=True)
class _EnvValue:
    """The value of one variable, its own variables filled in; or ``null``, which no one has filled in."""

    def read(self, reader: Reader, node: Node, place: Place) -> ScalarNode | None:
        if not isinstance(node, ScalarNode):
            reader.report(codes.WRONG_TYPE, node.span, f"{place.what} is a single value, and this is {kind(node)}")
            return None
        return node if node.is_null else reader.fill(node)

    def json_schema(self) -> Schema:
        return {"type": ["string", "number", "boolean", "null"]}


def _settings(reader: Reader, pairs: tuple[tuple[ScalarNode, ScalarNode], ...], _node: Node) -> Mapping[str, Setting]:
    """Return name → value; a name without a value takes the process's, as in Compose."""
    return {
        name.text: Setting(name.span, (reader.lookup(name.text) or "") if node.raw is None else node.text)
        for name, node in pairs
    }


ENV = Conversion(Table("variable", VARIABLE_NAME, _EnvValue()), _settings)

_PROXY = Key("proxy", _PROXIES, "The type of the proxy.")
_MODE = Key[Mode]("mode", Choice[Mode](MODES), "By which entrance the runner comes to it.", "base-url")
_ENV = Key("env", ENV, "The environment of the proxy; provider keys belong here.")


def _build(members: Members) -> Cllama | None:
    mode, proxies = members[_MODE] or "base-url", members[_PROXY]
    return Cllama(members.place.span, proxies or (), mode)


def _build_default(members: Members) -> Cllama | None:
    """Build the default; None where it holds nothing but ``env``."""
    if not (_ENV in members and _MODE not in members):
        members.require(_PROXY)
    return _build(members) if _PROXY in members else None


_ONLY_ENV: Schema = {"required": ["env"], "not": {"required": ["mode"]}}
_RECORD = Record((_PROXY, _MODE), _build, required=(_PROXY,))
_DEFAULT_RECORD = Record((_PROXY, _MODE, _ENV), _build_default, rules={"anyOf": [{"required": ["proxy"]}, _ONLY_ENV]})


@dataclass(frozen=True)
class _CllamaShape:
    """``cllama``, or ``cllama-defaults``, which also holds the proxy's environment (``read_default_env``)."""

    record: Record[Cllama]

    def read(self, reader: Reader, node: Node, place: Place) -> Cllama | None:
        if isinstance(node, MapNode):
            return self.record.read(reader, node, place)
        return Cllama(place.span, _PROXIES.read(reader, node, place) or ())

    def json_schema(self) -> Schema:
        return {"anyOf": [*_PROXIES.json_schema()["anyOf"], self.record.json_schema()]}


CLLAMA = _CllamaShape(_RECORD)
DEFAULT_CLLAMA = _CllamaShape(_DEFAULT_RECORD)


def read_default_env(reader: Reader, node: Node) -> Mapping[str, Setting]:
    """Return ``env`` of ``cllama-defaults``."""
    env = node.get(_ENV.name) if isinstance(node, MapNode) else None
    return (ENV.read(reader, env.value, Place(quote(_ENV.name), env.key.span)) if env else None) or {}
