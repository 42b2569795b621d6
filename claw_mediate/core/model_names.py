"""Other models that a request names, besides its ``model``.

Fallbacks, routers and presets name models, and so do a provider's own tools. Each is a way to
another model, so a model policy decides about each of them (docs/spec/mediation.md section 8):

    models, fallbacks, preset, agent       OpenRouter, LiteLLM, Anthropic, Google
    agent_id, deployment_id, engine        Mistral, LiteLLM, Azure: at the top only, or in
                                             ``extra_body``
    providerOptions.gateway.models         Vercel's AI gateway
    plugins[].allowedModels, tools[].model, tools[].parameters.analysis_models
    extra_body.model, grader.model         and any other member whose name says "model",
                                             "fallback" or "preset", at any depth
    Model, MODELS                          servers in Go read members in any case
    ?model=…                               a LiteLLM server reads the query
    x-model-provider, helicone-fallbacks   headers of gateways, which are not sent

Members that are the user's own are not looked at, because no provider reads them: schemas, the
arguments of calls, metadata. At the top of a request, only metadata is the user's.
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
# Levels of a member in which names are searched. Each may be read again for each one above it.
_MAX_NESTED: Final = 8
# Characters of a place. Names of members may be long, and nested a thousand times.
_MAX_PLACE: Final = 200
_WORDS = re.compile(r"model|fallback|preset")
_HARMLESS: Final = frozenset({"fallback_credit_token"})
_TOP_LEVEL = re.compile(r"(?:agent|deployment|engine)[_-]?(?:id)?")
"""Members that name a model at the top of a request.

Deeper, an agent is only a name for people, and an engine one of a search.
"""

_TOP: Final = ("", "extra_body")
_HEADERS: Final = frozenset({"x-portkey-config"})
"""Headers of gateways that hold a whole configuration of routes."""

_MEMBER = re.compile(rb'"([^"\\]{1,64}+)"[ \t\r\n]*+:[ \t\r\n]*+["\[{]')
"""A member whose value can hold a name. It is never found in a text, whose quotes are escaped."""
_ESCAPED_LETTER = re.compile(rb"\\u(?:00[02-7]|017[fF]|212[aA])")
"""An escape with which a name that we search for could be written.

That is one of ASCII, NUL included, or of the two other letters that ``casefold`` turns into ASCII.
"""
_ESCAPE_BYTES = 6
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"([ \t\r\n]*+:)?', re.DOTALL)
"""A string; the second group is there if it is the name of a member."""

_USER_MEMBERS: Final = frozenset(
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
"""Members that hold what the user writes."""
_USER_MEMBERS_AT_TOP: Final = frozenset({"client_metadata", "metadata"})
_CALL_TYPE = re.compile(r".{0,40}tool_use", re.DOTALL)
_FUNCTION_TYPES: Final = (None, "function", "custom")

_decoder = msgspec.json.Decoder()


class NamedModel(NamedTuple):
    """One model that a request names, and by which member: ``tools[0].model``."""

    member: str
    name: str


class AmbiguousMemberError(json_splice.JsonSpliceError):
    """Two parsers could disagree about the models that a request names.

    A member that may name one stands twice, or is written with escapes. Or there are more of them,
    or deeper ones, than are read.
    """


def find_named_models(body: bytes) -> list[NamedModel]:
    """Return the models that a JSON document names besides its own ``model``.

    The document must have been validated. Raise ``AmbiguousMemberError``.

    >>> body = b'{"model": "a", "models": ["b"], "tools": [{"type": "image", "model": "c"}]}'
    >>> [tuple(named) for named in find_named_models(body)]
    [('models[0]', 'b'), ('tools[0].model', 'c')]
    """
    outline = outline_request(body)
    body = outline.text

    # Most requests name one model, in ``model``. They are recognized without decoding the body.
    members: Counter[bytes] = Counter()
    for start, end in pieces_of(body):
        members.update(_MEMBER.findall(body, start, end))
    count = 0
    for member, occurrences in members.items():
        if may_name_model(member.decode(errors="replace")):
            count += occurrences

    if contains(body, b"\\u") and contains_match(body, _ESCAPED_LETTER, _ESCAPE_BYTES):
        _check_escapes(body)

    names_own_only = count == members[b"model"] == 1 and _has_own_model(body)
    if count == 0 or names_own_only:
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

    # The decoder keeps only the last of two equal members, so the walk met fewer than are there.
    if walk.count != count:
        raise AmbiguousMemberError("a member that may name a model stands twice in one object")

    return [NamedModel(member, outline.restore(name)) for member, name in found]


def _check_escapes(body: bytes) -> None:
    """Raise ``AmbiguousMemberError`` for a member that may name a model and has escapes.

    No runner writes one.
    """
    for string in _STRING.finditer(body):
        name, colon = string.groups()
        if not colon or _ESCAPED_LETTER.search(name) is None:
            continue

        try:
            is_about_model = may_name_model(_decoder.decode(b'"%b"' % name))
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Half a surrogate pair: parsers differ.
            is_about_model = True
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
    """Return the models that the value of a form's field names, if a server reads it as JSON.

    Raise ``AmbiguousMemberError`` or ``TooManyValuesError``.
    """
    if text.lstrip()[:1] not in (b"{", b"["):
        return []

    try:
        json_splice.check_utf8(text)
    except UnicodeDecodeError:
        # As a lenient server reads it
        text = text.decode(errors="replace").encode()

    try:
        _decoder.decode(outline_request(text).text)
    except TooManyValuesError:
        raise
    except (msgspec.DecodeError, RecursionError, json_splice.JsonSpliceError):
        # It only begins like JSON.
        return []

    return find_named_models(b'{"extra_body":%b}' % text)


def find_model_headers(headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of the headers that could make a gateway ask another model or provider."""
    names = {name.lower() for name, _ in headers}
    return tuple(name for name in names if _WORDS.search(name) is not None or name in _HEADERS)


def may_name_model(member: str) -> bool:
    """Return True if a member of that name may name a model. ``model`` itself is one."""
    plain = member.casefold()
    if _WORDS.search(plain) is not None:
        return plain not in _HARMLESS
    return _TOP_LEVEL.fullmatch(plain) is not None


def names_model(field: str) -> bool:
    """Return True if a form's field of that name may name a model, besides ``model`` itself."""
    return field != "model" and may_name_model(field)


class _BodyWithModel(msgspec.Struct):
    model: Any = None


_own_decoder = msgspec.json.Decoder(_BodyWithModel)


def _has_own_model(body: bytes) -> bool:
    """Return True if a document that has one member ``model`` has it at its top level."""
    try:
        return isinstance(_own_decoder.decode(body).model, str)
    except (msgspec.DecodeError, RecursionError):
        return False


class _Walk:
    """One reading of a document."""

    def __init__(self, restore: Callable[[str], str]) -> None:
        """``restore`` returns the document's own text, given one of its outline."""
        self.count = 0  # Of the members that may name a model, the user's own included
        self._restore = restore

    def read(self, value: Any, place: str, *, is_users: bool = False) -> Iterator[NamedModel]:
        """Yield the models that a value at ``place`` names.

        ``is_users``: the user wrote it, so its members are only counted.
        """
        if isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, (dict, list)):
                    yield from self.read(element, _join(place, f"[{index}]"), is_users=is_users)
            return
        if not isinstance(value, dict):
            return

        is_top = place in _TOP
        user_members = _USER_MEMBERS_AT_TOP if is_top else _USER_MEMBERS | _own_members(value)

        for name, member in value.items():
            member_place = _join(place, f".{name}") if place else name
            is_member_users = is_users or name in user_members

            # Below the top, "agent" and the like may mean anything: only these words count there.
            has_meaning = is_top or _WORDS.search(name.casefold()) is not None
            yield from self._read_member(
                name,
                member,
                member_place,
                is_named=has_meaning and not is_member_users,
                is_users=is_member_users,
            )

    def _read_member(
        self, name: str, member: Any, place: str, *, is_named: bool, is_users: bool
    ) -> Iterator[NamedModel]:
        """Yield the models that a member names.

        ``is_named``: its texts are models, if its name is one that may name them. Otherwise a
        member with such a name is only counted.
        """
        is_text = isinstance(member, str)
        is_container = isinstance(member, (dict, list))

        # The same condition as that of ``_MEMBER``, whose matches are counted.
        can_hold_name = is_text or is_container
        if can_hold_name and may_name_model(name) and len(name.encode()) <= _MAX_NAME:
            self.count += 1
            is_own = place == "model" and is_text
            if is_named and not is_own:
                text_or_container = self._restore(member) if is_text else member
                yield from _names_in(name.casefold(), text_or_container, place)

        if is_container:
            yield from self.read(member, place, is_users=is_users)


def _join(place: str, step: str) -> str:
    """Return a place one step deeper; if it is long, its end."""
    whole = place + step
    return whole if len(whole) <= _MAX_PLACE else f"…{whole[-_MAX_PLACE:]}"


def _own_members(value: dict[str, Any]) -> frozenset[str]:
    """Return the members that hold what the user writes, in an object of this kind."""
    kind = value.get("type")
    if isinstance(kind, str) and _CALL_TYPE.fullmatch(kind):
        return frozenset({"input"})

    if kind in _FUNCTION_TYPES and ("parameters" in value or "function" in value):
        return frozenset({"parameters"})

    return frozenset()


def _names_in(name: str, member: Any, place: str) -> Iterator[NamedModel]:
    """Yield the models that a member names: its text, the texts of its list, or of its object."""
    if isinstance(member, str):
        if member.strip():
            yield NamedModel(place, f"@preset/{member}" if name == "preset" else member)
        return

    elements = member if isinstance(member, list) else [member]
    for index, element in enumerate(elements):
        element_place = f"{place}[{index}]" if isinstance(member, list) else place
        texts = _texts_of_object(name, element) if isinstance(element, dict) else _texts(element)
        for text in texts:
            yield NamedModel(element_place, text)


def _texts_of_object(name: str, value: dict[str, Any]) -> Iterator[str]:
    """Yield the names in a member's object: ``{"id": "b"}``, or LiteLLM's ``{"a": ["b"]}``.

    The walk reads those of its own members that may name a model, and everything deeper.
    """
    if any(map(may_name_model, value)):
        # Such as one of Anthropic's fallbacks, whose other texts are settings.
        for member in value.values():
            if isinstance(member, list):
                yield from _texts_in(member)
        for own, text in value.items():
            if own.casefold() in _NAMING and isinstance(text, str):
                yield text
    elif "fallback" in name:
        yield from _texts(value)
    else:
        yield from _texts_in(value.values())


_NAMING: Final = frozenset({"id", "name", "slug", "ref"})


def _texts_in(values: Iterable[Any]) -> Iterator[str]:
    for each in values:
        if isinstance(each, str):
            yield each


def _texts(value: Any, levels: int = _MAX_NESTED) -> Iterator[str]:
    """Yield all texts in a value, and the names of its members."""
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
