"""Other models that a request names beside its ``model``: fallbacks, routers, presets, and those of a provider's own tools.

A model policy decides about each of them, for each is a way to another model (docs/spec/mediation.md section 8):

    models, fallbacks, preset, agent       OpenRouter, LiteLLM, Anthropic, Google
    providerOptions.gateway.models         Vercel's AI gateway
    plugins[].allowedModels, tools[].model, tools[].parameters.analysis_models
    extra_body.model, grader.model         and any other member whose name says "model", "fallback" or "preset", at any depth
    Model, MODELS                          servers in Go read members in any case
    ?model=…                               a LiteLLM server reads the query

Not looked at is what is the user's and not the provider's to read: schemas, the arguments of calls, metadata.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_outline import outline_request
from claw_mediate.core.json_pieces import contains, contains_match, pieces_of

_MAX_NAME = 64  # Bytes of a member's name that is looked at
_WORDS = re.compile(r"model|fallback|preset")
_HARMLESS: Final = frozenset({"fallback_credit_token"})
_TOP_LEVEL: Final = frozenset({"agent"})  # Deeper, an agent is only a name for people

_MEMBER = re.compile(rb'"([^"\\]{1,64}+)"[ \t\r\n]*+:[ \t\r\n]*+["\[{]')
"""A member whose value can hold a name. Text matches nowhere: its quotes are escaped."""
_ESCAPED_LETTER = re.compile(rb"\\u(?:00[2-7]|017[fF]|212[aA])")
"""An escape that a name of ours could be written with: ASCII, and the two other letters that are folded to ASCII."""
_ESCAPE_BYTES = 6
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"([ \t\r\n]*+:)?', re.DOTALL)
"""A string; the second group is there if it is the name of a member."""

_USERS: Final = frozenset(
    {"arguments", "client_metadata", "input_schema", "json_schema", "metadata", "output_schema", "properties", "schema"}
)
_FUNCTION_TYPES: Final = (None, "function", "custom")

_decoder = msgspec.json.Decoder()


class NamedModel(NamedTuple):
    """One model that a request names, and by which member: ``tools[0].model``."""

    member: str
    name: str


class AmbiguousMemberError(json_splice.JsonSpliceError):
    """A member that may name a model stands twice, or in escapes: parsers could disagree about it."""


def find_named_models(body: bytes) -> list[NamedModel]:
    """Return the models that a JSON document names beside its own ``model``. Raise ``AmbiguousMemberError``.

    The document was validated before.

    >>> find_named_models(b'{"model": "a", "models": ["b"], "tools": [{"type": "image", "model": "c"}]}')
    [NamedModel(member='models[0]', name='b'), NamedModel(member='tools[0].model', name='c')]
    """
    outline = outline_request(body)
    body = outline.text
    members: Counter[bytes] = Counter()
    for start, end in pieces_of(body):
        members.update(_MEMBER.findall(body, start, end))
    count = sum(often for name, often in members.items() if may_name_model(name.decode(errors="replace")))
    if contains(body, b"\\u") and contains_match(body, _ESCAPED_LETTER, _ESCAPE_BYTES):
        _check_escapes(body)
    if count == 0 or (count == members[b"model"] == 1 and _has_own_model(body)):
        return []

    try:
        document = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AmbiguousMemberError("the members that may name a model can't be read") from error

    walk = _Walk()
    found = [*walk.read(document, "")]
    if walk.count != count:
        raise AmbiguousMemberError("a member that may name a model stands twice in one object")
    return [NamedModel(outline.restore(member), outline.restore(name)) for member, name in found]


def _check_escapes(body: bytes) -> None:
    """Raise ``AmbiguousMemberError`` for a member that may name a model and is written with escapes, as no runner does."""
    for string in _STRING.finditer(body):
        name, colon = string.groups()
        if not colon or b"\\" not in name:
            continue
        try:
            is_about_model = may_name_model(_decoder.decode(b'"%b"' % name))
        except (msgspec.DecodeError, UnicodeDecodeError):
            is_about_model = True  # Half a surrogate: parsers differ
        if is_about_model:
            raise AmbiguousMemberError("a member that may name a model is written with escapes")


def find_models_in_query(query: str) -> list[NamedModel]:
    """Return the models that a query names."""
    if not query:
        return []
    pairs = parse_qsl(query, errors="surrogateescape")
    return [NamedModel(f"?{name}", value) for name, value in pairs if may_name_model(name)]


def may_name_model(member: str) -> bool:
    """Return whether a member of that name may name a model, ``model`` itself included."""
    plain = member.casefold()
    return (_WORDS.search(plain) is not None and plain not in _HARMLESS) or plain in _TOP_LEVEL


def names_model(field: str) -> bool:
    """Return whether a form's field, but for ``model`` itself, may name a model."""
    return field != "model" and may_name_model(field)


class _Own(msgspec.Struct):
    model: Any = None


_own_decoder = msgspec.json.Decoder(_Own)


def _has_own_model(body: bytes) -> bool:
    """Return whether the one member ``model`` that a document has stands at its top level."""
    try:
        return isinstance(_own_decoder.decode(body).model, str)
    except (msgspec.DecodeError, RecursionError):
        return False


class _Walk:
    """One reading of a document. ``count``: how many members it has that may name a model, wherever they stand."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, value: Any, place: str, *, is_users: bool = False) -> Iterator[NamedModel]:
        if isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, (dict, list)):
                    yield from self.read(element, f"{place}[{index}]", is_users=is_users)
        elif isinstance(value, dict):
            hidden = _USERS | _own_members(value)
            for name, member in value.items():
                where = f"{place}.{name}" if place else name
                yield from self._read_member(name, member, where, is_users=is_users or name in hidden)

    def _read_member(self, name: str, member: Any, where: str, *, is_users: bool) -> Iterator[NamedModel]:
        is_container = isinstance(member, (dict, list))
        can_hold_name = is_container or isinstance(member, str)
        if can_hold_name and may_name_model(name) and len(name.encode()) <= _MAX_NAME:
            self.count += 1
            is_own = where == "model" and isinstance(member, str)
            is_deep_agent = name.casefold() in _TOP_LEVEL and where != name
            if not (is_users or is_own or is_deep_agent):
                yield from _names_in(name.casefold(), member, where)
        if is_container:
            yield from self.read(member, where, is_users=is_users)


def _own_members(value: dict[str, Any]) -> frozenset[str]:
    """Return the members of an object that hold what its user writes, by the kind of the object."""
    kind = value.get("type")
    if isinstance(kind, str) and kind.endswith("tool_use"):
        return frozenset({"input"})
    if kind in _FUNCTION_TYPES and ("parameters" in value or "function" in value):
        return frozenset({"parameters"})
    return frozenset()


def _names_in(name: str, member: Any, where: str) -> Iterator[NamedModel]:
    """Return the names of a member: a text, the texts of a list, or (LiteLLM's fallbacks) all texts of an object."""
    if isinstance(member, str):
        if member.strip():
            yield NamedModel(where, f"@preset/{member}" if name == "preset" else member)
        return

    elements = member if isinstance(member, list) else [member]
    for index, element in enumerate(elements):
        place = f"{where}[{index}]" if isinstance(member, list) else where
        if isinstance(element, str):
            yield NamedModel(place, element)
        elif isinstance(element, dict) and "fallback" in name and not any(map(may_name_model, element)):
            yield from (NamedModel(place, text) for text in _texts(element))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for element in value:
            yield from _texts(element)
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member)
