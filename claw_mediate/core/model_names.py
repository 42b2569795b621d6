"""Other models that a request names beside its ``model``: fallbacks, routers, presets, and those of
a provider's own tools.

A model policy decides about each of them, for each is a way to another model
(docs/spec/mediation.md section 8):

    models, fallbacks, preset, agent       OpenRouter, LiteLLM, Anthropic, Google
    agent_id, deployment_id, engine        Mistral, LiteLLM, Azure: at the top only, or in ``extra_body``
    providerOptions.gateway.models         Vercel's AI gateway
    plugins[].allowedModels, tools[].model, tools[].parameters.analysis_models
    extra_body.model, grader.model         and any other member whose name says "model", "fallback" or "preset", at any depth
    Model, MODELS                          servers in Go read members in any case
    ?model=…                               a LiteLLM server reads the query
    x-model-provider, helicone-fallbacks   headers of gateways, which are not sent

Not looked at is what is the user's and not the provider's to read: schemas, the arguments of calls,
metadata. At the top of a request, only metadata is the user's.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import read_query
from claw_mediate.core.json_outline import TooManyValuesError, outline_request
from claw_mediate.core.json_pieces import contains, contains_match, pieces_of

_MAX_NAME = 64  # Bytes of a member's name that is looked at
_MAX_NAMED: Final = 2000  # Models that one request may name
# Levels of a member that are read for the names in it: each may be read again for each one above it
_MAX_NESTED: Final = 8
_MAX_PLACE: Final = (
    200  # Characters of a place that are kept: names may be long, and nested a thousand times
)
_WORDS = re.compile(r"model|fallback|preset")
_HARMLESS: Final = frozenset({"fallback_credit_token"})
_TOP_LEVEL = re.compile(r"(?:agent|deployment|engine)[_-]?(?:id)?")
"""Members that name a model at the top of a request.

Deeper, an agent is only a name for people, an engine one of a search.
"""

_TOP: Final = ("", "extra_body")
_HEADERS: Final = frozenset({"x-portkey-config"})
"""Headers of gateways that hold a whole configuration of routes."""

_MEMBER = re.compile(rb'"([^"\\]{1,64}+)"[ \t\r\n]*+:[ \t\r\n]*+["\[{]')
"""A member whose value can hold a name. Text matches nowhere: its quotes are escaped."""
_ESCAPED_LETTER = re.compile(rb"\\u(?:00[02-7]|017[fF]|212[aA])")
"""An escape that a name of ours could be written with: ASCII, the two other letters that are folded
to ASCII, and NUL.
"""
_ESCAPE_BYTES = 6
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"([ \t\r\n]*+:)?', re.DOTALL)
"""A string; the second group is there if it is the name of a member."""

_USERS: Final = frozenset(
    {
        "arguments",
        "client_metadata",
        "input_schema",
        "json_schema",
        "metadata",
        "output_schema",
        "properties",
        "schema",
    }
)
_USERS_AT_TOP: Final = frozenset({"client_metadata", "metadata"})
_CALL_TYPE = re.compile(r".{0,40}tool_use", re.DOTALL)
_FUNCTION_TYPES: Final = (None, "function", "custom")

_decoder = msgspec.json.Decoder()


class NamedModel(NamedTuple):
    """One model that a request names, and by which member: ``tools[0].model``."""

    member: str
    name: str


class AmbiguousMemberError(json_splice.JsonSpliceError):
    """A member that may name a model stands twice, or in escapes, so that parsers
    could disagree about it.

    Or there are more of them, or deeper ones, than are read.
    """


def find_named_models(body: bytes) -> list[NamedModel]:
    """Return the models that a JSON document names beside its own ``model``.

    Raise ``AmbiguousMemberError``.

    The document was validated before.

    >>> find_named_models(b'{"model": "a", "models": ["b"], "tools": [{"type": "image", "model":
    "c"}]}') [NamedModel(member='models[0]', name='b'), NamedModel(member='tools[0].model',
    name='c')]
    """
    outline = outline_request(body)
    body = outline.text
    members: Counter[bytes] = Counter()
    for start, end in pieces_of(body):
        members.update(_MEMBER.findall(body, start, end))
    count = sum(
        often for name, often in members.items() if may_name_model(name.decode(errors="replace"))
    )
    if contains(body, b"\\u") and contains_match(body, _ESCAPED_LETTER, _ESCAPE_BYTES):
        _check_escapes(body)
    if count == 0 or (count == members[b"model"] == 1 and _has_own_model(body)):
        return []

    try:
        document = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AmbiguousMemberError("the members that may name a model can't be read") from error

    walk = _Walk(outline.restore)
    try:
        found = [*islice(walk.read(document, ""), _MAX_NAMED + 1)]
    except RecursionError as error:
        raise AmbiguousMemberError(
            "a member that may name a model stands in too many levels of others"
        ) from error
    if len(found) > _MAX_NAMED:
        raise AmbiguousMemberError(f"the request names more than {_MAX_NAMED} models")
    if walk.count != count:
        raise AmbiguousMemberError("a member that may name a model stands twice in one object")
    return [NamedModel(member, outline.restore(name)) for member, name in found]


def _check_escapes(body: bytes) -> None:
    """Raise ``AmbiguousMemberError`` for a member that may name a model and is
    written with escapes, as no runner does.
    """
    for string in _STRING.finditer(body):
        name, colon = string.groups()
        if not colon or _ESCAPED_LETTER.search(name) is None:
            continue
        try:
            is_about_model = may_name_model(_decoder.decode(b'"%b"' % name))
        except (msgspec.DecodeError, UnicodeDecodeError):
            is_about_model = True  # Half a surrogate: parsers differ
        if is_about_model:
            raise AmbiguousMemberError("a member that may name a model is written with escapes")


def find_models_in_query(path: str) -> list[NamedModel]:
    """Return the models that a path's query names."""
    if "?" not in path:
        return []
    return [
        NamedModel(f"?{name}", value) for name, value in read_query(path) if may_name_model(name)
    ]


def find_models_in_text(text: bytes) -> list[NamedModel]:
    """Return the models that a form's field names, if a server reads its value as JSON.

    Raise ``AmbiguousMemberError`` or ``TooManyValuesError``.
    """
    if text.lstrip()[:1] not in (b"{", b"["):
        return []
    try:
        json_splice.check_utf8(text)
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()  # As a lenient server reads it
    try:
        _decoder.decode(outline_request(text).text)
    except TooManyValuesError:
        raise
    except (msgspec.DecodeError, RecursionError, json_splice.JsonSpliceError):
        return []  # Text that only begins so
    return find_named_models(b'{"extra_body":%b}' % text)


def find_model_headers(headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of all headers by which a gateway would ask another model,
    or another provider for it.
    """
    names = {name.lower() for name, _ in headers}
    return tuple(name for name in names if _WORDS.search(name) is not None or name in _HEADERS)


def may_name_model(member: str) -> bool:
    """Return whether a member of that name may name a model, ``model`` itself included."""
    plain = member.casefold()
    if _WORDS.search(plain) is not None:
        return plain not in _HARMLESS
    return _TOP_LEVEL.fullmatch(plain) is not None


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
    """One reading of a document.

    ``count``: how many members it has that may name a model, wherever they stand.
    """

    def __init__(self, restore: Callable[[str], str]) -> None:
        """``restore`` returns the document's text of one in its outline."""
        self.count = 0
        self._restore = restore

    def read(self, value: Any, place: str, *, is_users: bool = False) -> Iterator[NamedModel]:
        if isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, (dict, list)):
                    yield from self.read(element, _join(place, f"[{index}]"), is_users=is_users)
        elif isinstance(value, dict):
            is_top = place in _TOP
            hidden = _USERS_AT_TOP if is_top else _USERS | _own_members(value)
            for name, member in value.items():
                where = _join(place, f".{name}") if place else name
                # Deeper, such a name may be anything's.
                is_elsewhere = not is_top and _WORDS.search(name.casefold()) is None
                is_hidden = is_users or name in hidden
                yield from self._read_member(
                    name,
                    member,
                    where,
                    is_named=not (is_elsewhere or is_hidden),
                    is_users=is_hidden,
                )

    def _read_member(
        self, name: str, member: Any, where: str, *, is_named: bool, is_users: bool
    ) -> Iterator[NamedModel]:
        is_container = isinstance(member, (dict, list))
        can_hold_name = is_container or isinstance(member, str)
        if can_hold_name and may_name_model(name) and len(name.encode()) <= _MAX_NAME:
            self.count += 1
            is_own = where == "model" and isinstance(member, str)
            if is_named and not is_own:
                text_or_container = self._restore(member) if isinstance(member, str) else member
                yield from _names_in(name.casefold(), text_or_container, where)
        if is_container:
            yield from self.read(member, where, is_users=is_users)


def _join(place: str, step: str) -> str:
    """Return a place one step deeper; of a long one, its end."""
    whole = place + step
    return whole if len(whole) <= _MAX_PLACE else f"…{whole[-_MAX_PLACE:]}"


def _own_members(value: dict[str, Any]) -> frozenset[str]:
    """Return the members of an object that hold what its user writes, by the kind of the object."""
    kind = value.get("type")
    if isinstance(kind, str) and _CALL_TYPE.fullmatch(kind):
        return frozenset({"input"})
    if kind in _FUNCTION_TYPES and ("parameters" in value or "function" in value):
        return frozenset({"parameters"})
    return frozenset()


def _names_in(name: str, member: Any, where: str) -> Iterator[NamedModel]:
    """Return the names of a member: a text, the texts of a list, or what an object
    says at its own top.
    """
    if isinstance(member, str):
        if member.strip():
            yield NamedModel(where, f"@preset/{member}" if name == "preset" else member)
        return

    elements = member if isinstance(member, list) else [member]
    for index, element in enumerate(elements):
        place = f"{where}[{index}]" if isinstance(member, list) else where
        texts = _texts_of_object(name, element) if isinstance(element, dict) else _texts(element)
        yield from (NamedModel(place, text) for text in texts)


def _texts_of_object(name: str, value: dict[str, Any]) -> Iterator[str]:
    """Yield the names that an object below a member holds: ``{"id": "b"}``, or
    LiteLLM's ``{"a": ["b"]}``.

    Members of its own that may name a model are read as any other. So is all that stands deeper.
    """
    if any(map(may_name_model, value)):
        # Such as Anthropic's fallbacks, whose other texts are settings.
        yield from (
            text
            for member in value.values()
            if isinstance(member, list)
            for text in _texts_in(member)
        )
        yield from (
            text
            for own, text in value.items()
            if own.casefold() in _NAMING and isinstance(text, str)
        )
    elif "fallback" in name:
        yield from _texts(value)
    else:
        yield from (text for text in value.values() if isinstance(text, str))


_NAMING: Final = frozenset({"id", "name", "slug", "ref"})


def _texts_in(value: list[Any]) -> Iterator[str]:
    yield from (each for each in value if isinstance(each, str))


def _texts(value: Any, levels: int = _MAX_NESTED) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)) and levels == 0:
        raise AmbiguousMemberError(
            f"a member that may name a model has more than {_MAX_NESTED} levels"
        )
    elif isinstance(value, list):
        for element in value:
            yield from _texts(element, levels - 1)
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member, levels - 1)
