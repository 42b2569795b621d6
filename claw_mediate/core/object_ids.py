"""The ids of what providers keep, in requests and in answers (docs/spec/mediation.md section 2).

    find_named_objects   the ids in a request: members of these names at any depth, also if one
                           stands twice
    find_given_objects   the ids in an answer: at the places where a provider puts them, and
                           nowhere else

The two differ on purpose. A request is refused for an id that nobody may name, so every place
counts that a provider may read. An agent becomes the owner of the ids in its answers, so no place
counts that repeats what a model, a runner or a service has written.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from claw_mediate.core.json_outline import (
    JsonSpliceError,
    TooManyValuesError,
    is_digest,
    outline_request,
)
from claw_mediate.core.json_pieces import contains, contains_match, pieces_of
from claw_mediate.core.known_paths import KnownPath, ObjectKind, PathMatch

MAX_NAMED: Final = 2000  # Objects that one request may name

_DIALECT_MEMBERS: Final[Mapping[str, ObjectKind]] = {
    "file_id": "file",
    "file_ids": "file",
    "vector_store_id": "vector_store",
    "vector_store_ids": "vector_store",
    "collection_ids": "vector_store",  # xAI's
    "container": "container",
    "container_id": "container",
    "previous_response_id": "response",
    "conversation": "conversation",
}
"""Members that name an object in chat completions, Responses and Messages.

The dialect itself decides about the last two in the places where it reads them. Here they count
everywhere else.
"""

MEMBERS: Final[Mapping[str, ObjectKind]] = {
    **{name: kind for name, kind in _DIALECT_MEMBERS.items() if name != "conversation"},
    "file_uri": "file",  # Google's
    "input_file_id": "file",
    "training_file": "file",
    "validation_file": "file",
    "upload_id": "upload",
    "batch_id": "batch",
    "assistant_id": "assistant",
    "thread_id": "thread",
    "eval_id": "eval",
    "video_id": "video",
}
"""Members that name an object on all other paths.

In a dialect's requests, some of these are words of the runner's own.
"""

_OPAQUE: Final = frozenset(
    {
        "metadata", "client_metadata", "attributes", "headers", "env",
        "parameters", "input_schema", "schema", "input_examples",
        "functionCall", "functionResponse",
    }
)  # fmt: skip
"""Members whose value is data of the runner's, in which no provider reads an id."""

_EVAL_OPAQUE: Final = _OPAQUE | {"item", "sample", "item_schema"}
_OPAQUE_OBJECTS: Final = frozenset({"arguments", "args"})
"""Members that are data if they are an object: the arguments of a call."""

_NAMED_BY_RUNNER: Final = frozenset({"variables"})
"""Members whose own members have names of the runner's, but values that a provider reads.

They are the variables of a stored prompt.
"""

_STORED_SOURCES: Final[Mapping[str, ObjectKind]] = {
    "responses": "response",
    "stored_completions": "stored_completion",
    "logs": "stored_completion",
}
"""Sources of an eval that have what all agents of an account have stored."""

_FUNCTION_TYPES: Final = ("function", "custom")
"""Types of tools whose ``parameters`` are a schema of the runner's.

A provider reads those of any other tool.
"""

_CALL_TYPE = re.compile(r"\w{0,40}tool_use")
_ESCAPED_NAME = re.compile(
    rb"\\u(?:00(?:2[dD]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])|017[fF])"
)
"""An escape with which the name of a member could be written.

That is one of a letter, of the long s, of an underscore or of a dash.
"""
_ESCAPE_BYTES = 6
_GOOGLE_FILE = re.compile(r"(?:(?i:https?)://[^/?#]*/(?:[\w.-]+/)*)?(files/[^/?#:]+).*", re.DOTALL)
"""A file of Google's, by its name or address. All other addresses are of the web."""
# Characters. A longer address counts as a file that nobody has, so that it is refused.
_MAX_ADDRESS: Final = 8192
_ADDRESS = re.compile(r"https?://|files/", re.IGNORECASE)
_CHAIN_KINDS: Final = frozenset({"response", "conversation"})
"""Kinds that a dialect reads by itself."""
_TOP: Final = ("", "extra_body")
"""Objects in which ``conversation`` names one: the request itself, and its ``extra_body``.

Elsewhere it is a plain word.
"""


def fold_member(name: str) -> str:
    """Return a member's name as the most lenient server reads it.

    Servers in Go read names in any case, and Google's also in camel case.

    >>> fold_member("File_ID") == fold_member("fileId") == fold_member("file_id")
    True
    """
    return name.casefold().replace("_", "").replace("-", "")


class NamedObject(NamedTuple):
    """An id in a request, and the member that holds it."""

    kind: ObjectKind
    id: str
    member: str


class UnreadableObjectsError(ValueError):
    """Ids that can't be read for sure, or too many. The message is one sentence, for the runner."""


class MemberRules:
    """The members of one API that name objects, and those that never do."""

    def __init__(
        self,
        members: Mapping[str, ObjectKind],
        opaque: Collection[str],
        *,
        reads_sources: bool = False,
    ) -> None:
        self._members = {fold_member(name): kind for name, kind in members.items()}
        self.opaque = opaque
        self.reads_sources = reads_sources
        self._marks = _member_heads(members)

    def kind_of(self, name: str) -> ObjectKind | None:
        """Return the kind of object that a member of that name names, in any spelling.

        None for any other member.
        """
        return self._members.get(fold_member(name))

    def may_name(self, body: bytes, expected: int = 0) -> bool:
        """Return True if a body may name an object. Most name none, and need not be decoded.

        ``expected``: how many members of ``_CHAIN_KINDS`` the dialect has read in it by itself.
        """
        if self.reads_sources:
            return bool(body.strip())

        for start, end in pieces_of(body):
            for mark in self._marks.finditer(body, start, end):
                if mark["chain"] is None or expected == 0:
                    return True
                expected -= 1

        return contains(body, b"\\u0") and contains_match(body, _ESCAPED_NAME, _ESCAPE_BYTES)


def _member_heads(members: Mapping[str, ObjectKind]) -> re.Pattern[bytes]:
    """Return an expression that finds members of these names in any spelling.

    It finds them with the first byte of a value that may be an id, and never in a text, whose
    quotes are escaped. Any of the first letters may begin any of the names, so it finds a few names
    more; but a search for one set of bytes is fast.
    """
    chain = {name for name, kind in members.items() if kind in _CHAIN_KINDS}
    chain_names = _any_of(chain)
    other_names = _any_of(members.keys() - chain)
    container = _any_spelling("container")

    letters = {name[0] for name in members}
    firsts = "".join(sorted(letters | {letter.upper() for letter in letters}))
    space = r"[ \t\r\n]*+"
    alternatives = (
        # The properties of a schema have such names, too, but there the value is an object.
        rf'(?:{other_names})"{space}:{space}[^{{ \t\r\n]',
        # Of these, only a container may be an object, which has an id then.
        rf'{container}"{space}:',
        # Null names nothing.
        rf'(?P<chain>{chain_names})"{space}:{space}[^n \t\r\n]',
    )
    expression = rf'"[{firsts}](?i:{"|".join(alternatives)})'
    return re.compile(expression.encode("latin-1"))


def _any_of(names: Iterable[str]) -> str:
    """Return an expression for one of the names, without its first letter."""
    return "|".join(sorted(map(_any_spelling, names), key=len, reverse=True))


def _any_spelling(name: str) -> str:
    """Return an expression for a name without its first letter.

    There may be any of the usual marks between its words.
    """
    long_s = "(?:s|\xc5\xbf)"  # In UTF-8. ``casefold`` makes it an s.
    return name[1:].replace("s", long_s).replace("_", "[_-]?")


DIALECT_RULES: Final = MemberRules(_DIALECT_MEMBERS, _OPAQUE)
OTHER_RULES: Final = MemberRules(MEMBERS, _OPAQUE)
EVAL_RULES: Final = MemberRules(MEMBERS, _EVAL_OPAQUE, reads_sources=True)


def rules_for(row: KnownPath | None) -> MemberRules:
    """Return the rules for the body of a request on a path of no dialect."""
    return EVAL_RULES if row is not None and row.pattern.startswith("/evals") else OTHER_RULES


class _Members(list[tuple[str, Any]]):
    """The members of an object, repeated ones too: a provider may read either."""


def _collect(members: list[tuple[str, Any]]) -> _Members:
    """Return the members of an object.

    It is a function of Python, and no type of C, so that other threads run in between: a body may
    have a million objects.
    """
    return _Members(members)


_decoder = json.JSONDecoder(object_pairs_hook=_collect, parse_int=str, parse_float=str)


def find_named_objects(
    body: bytes, rules: MemberRules, chain: Collection[str] = ()
) -> tuple[NamedObject, ...]:
    """Return the objects that a JSON body names, each once.

    ``chain``: the ids of a response and a conversation that the dialect has read in the body by
    itself. Raise ``UnreadableObjectsError`` or ``TooManyValuesError``.
    """
    if not rules.may_name(body, len(chain)):
        return ()

    try:
        outline = outline_request(body)
        if not outline.is_whole and not rules.may_name(outline.text, len(chain)):
            return ()
        document = _decoder.decode(outline.text.decode())
    except TooManyValuesError:
        raise
    except (ValueError, RecursionError, JsonSpliceError) as error:
        raise UnreadableObjectsError("the body is not one JSON document") from error

    found: dict[NamedObject, None] = {}
    for named in _walk(document, rules, outline.restore):
        is_read_by_dialect = named.kind in _CHAIN_KINDS and named.id in chain
        if is_read_by_dialect:
            continue

        found[named] = None
        if len(found) > MAX_NAMED:
            raise UnreadableObjectsError(f"the request names more than {MAX_NAMED} objects")

    return tuple(found)


def _walk(
    document: Any, rules: MemberRules, restore: Callable[[str], str]
) -> Iterator[NamedObject]:
    """Yield the objects that a document names, at any depth.

    ``restore`` returns the document's own text, given one of its outline.
    """
    top = {id(members) for members in _top_members(document)}

    # A stack, and no recursion, which a document could make too deep.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Members):
            yield from _objects_of(value, rules, restore, is_top=id(value) in top)
            waiting += _parts_to_read(value, rules)
        elif isinstance(value, list):
            waiting += [each for each in value if isinstance(each, list)]


def _top_members(document: Any) -> Iterator[_Members]:
    """Yield the objects of a document whose members are the request's own.

    They are the document itself, and what a gateway merges into it.
    """
    if not isinstance(document, _Members):
        return

    yield document
    for name, value in document:
        if name in _TOP and isinstance(value, _Members):
            yield value


def _objects_of(
    members: _Members, rules: MemberRules, restore: Callable[[str], str], *, is_top: bool
) -> Iterator[NamedObject]:
    """Yield the objects that an object's own members name.

    ``restore`` returns the document's own text, given one of its outline.
    """
    for name, value in members:
        kind = rules.kind_of(name)
        if kind is not None and (kind != "conversation" or is_top):
            folded = fold_member(name)
            is_other_object = isinstance(value, _Members) and folded not in _MAY_BE_OBJECTS
            texts = () if is_other_object else _texts_of(value)
            for object_id in _ids_of(folded, map(restore, texts)):
                yield NamedObject(kind, object_id, name)

        # What is left is a source of an eval, which its ``type`` tells.
        if name.casefold() != "type" or not isinstance(value, str):
            continue

        # ``{"type": "file_id", "id": …}``
        if value == "file_id":
            for other_name, own in members:
                if other_name.casefold() == "id":
                    for text in _texts_of(own):
                        yield NamedObject("file", restore(text), "id")

        # A source that needs no id, such as all stored completions
        if rules.reads_sources and value in _STORED_SOURCES:
            yield NamedObject(_STORED_SOURCES[value], value, name)


_MAY_BE_OBJECTS: Final = frozenset({"container", "conversation"})
"""Members, folded, whose value may be an object with an ``id``."""


def _ids_of(member: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the ids in the texts of a member, whose name is folded.

    An address that is too long yields its beginning, which is no object's id and so is refused.
    """
    if member != "fileuri":
        yield from texts
        return

    for text in texts:
        is_too_long = len(text) > _MAX_ADDRESS or is_digest(text)
        if is_too_long:
            if _ADDRESS.match(text):
                yield text[:_MAX_ADDRESS]
            continue

        file = _GOOGLE_FILE.fullmatch(text)
        if file is not None:
            yield file[1]


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the ids of a member's value: a text, a list of texts, or an object with an ``id``."""
    if isinstance(value, _Members):
        for name, own in value:
            if name.casefold() == "id":
                yield from _texts_of(own)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, str) and each:
                yield each
    elif isinstance(value, str) and value:
        yield value


def _parts_to_read(members: _Members, rules: MemberRules) -> Iterator[Any]:
    """Yield the values below an object in which a provider may read ids."""
    types = [value for name, value in members if name == "type"]
    is_call = any(isinstance(kind, str) and _CALL_TYPE.fullmatch(kind) for kind in types)
    is_other_tool = bool(types) and not any(kind in _FUNCTION_TYPES for kind in types)

    for name, value in members:
        if not isinstance(value, list):
            continue

        reads_parameters = name == "parameters" and is_other_tool
        if name in rules.opaque and not reads_parameters:
            continue

        is_object = isinstance(value, _Members)
        if is_object and (name in _OPAQUE_OBJECTS or (is_call and name == "input")):
            continue

        if is_object and name in _NAMED_BY_RUNNER:
            for _, member in value:
                if isinstance(member, list):
                    yield member
        else:
            yield value


type _Step = str
"""A member's name, or ``*`` for each element of an array."""
type _Place = tuple[tuple[_Step, ...], ObjectKind]
"""The way to an id in an answer, and the kind of its object."""


class AnswerShape(NamedTuple):
    """The places of an answer at which a provider gives ids."""

    places: tuple[_Place, ...]
    needles: tuple[bytes, ...]  # Every document that gives an id has one of these

    def may_give(self, document: bytes | bytearray) -> bool:
        """Return True if a document may give an id. Others need not be decoded."""
        return any(needle in document for needle in self.needles)


class GivenObject(NamedTuple):
    """An id in an answer."""

    kind: ObjectKind
    id: str


def _shape(places: Mapping[ObjectKind, Sequence[str]]) -> AnswerShape:
    """Return the shape with these places, which are written like ``output.*.container_id``."""
    compiled: list[_Place] = []
    for kind, own_places in places.items():
        compiled += [(tuple(place.split(".")), kind) for place in own_places]

    rare_members = sorted({_rare_step(steps) for steps, _ in compiled})
    needles = tuple(f'"{member}"'.encode() for member in rare_members)
    return AnswerShape(tuple(compiled), needles)


def _rare_step(steps: Sequence[_Step]) -> _Step:
    """Return the last member on the way to an id that few documents have.

    Nearly all of them have an ``id``.
    """
    names = [step for step in steps if step != "*"]
    return names[-2] if names[-1] == "id" and len(names) > 1 else names[-1]


def _nested(places: Sequence[str], prefixes: Sequence[str]) -> list[str]:
    return [f"{prefix}{place}" for prefix in prefixes for place in places]


_ITEM_CONTAINERS = (
    "container_id",
    "environment.container_id",
    "content.*.annotations.*.container_id",
)
_ITEM_FILES = ("content.*.annotations.*.file_id", "results.*.file_id")
_ITEM_PLACES = ("output.*.", "response.output.*.", "item.")
_PART_PLACES = ("annotation.", "part.annotations.*.")
RESPONSE_SHAPE: Final = _shape(
    {
        "container": [
            *_nested(_ITEM_CONTAINERS, _ITEM_PLACES),
            *_nested(["container_id"], _PART_PLACES),
        ],
        "file": [*_nested(_ITEM_FILES, _ITEM_PLACES), *_nested(["file_id"], _PART_PLACES)],
    }
)
"""A response, or an event of its stream.

It gives the containers that hosted tools opened, the files that they made, and those that are
cited.
"""

_MESSAGE_FILE = "content.content.*.file_id"
MESSAGE_SHAPE: Final = _shape(
    {
        "container": ["container.id", "message.container.id", "delta.container.id"],
        "file": _nested([_MESSAGE_FILE], ["content.*.", "message.content.*.", "content_block."]),
    }
)
"""A message of Anthropic's, or an event of its stream.

It gives the container of code execution, and the files that were made in it.
"""

_BATCH_RESULT_SHAPE: Final = _shape(
    {
        "container": ["result.message.container.id"],
        "file": [f"result.message.content.*.{_MESSAGE_FILE}"],
    }
)
_BATCH_FILES = ("output_file_id", "error_file_id")
# ``batch_id`` is xAI's.
_BATCH_SHAPE: Final = _shape({"batch": ["id", "batch_id"], "file": _BATCH_FILES})
_OWN_BATCH_SHAPE: Final = _shape({"file": _BATCH_FILES})
_THREAD_STORES = ("tool_resources.file_search.vector_store_ids.*",)
_THREAD_FILES = (
    "content.*.image_file.file_id",
    "content.*.text.annotations.*.file_path.file_id",
    "content.*.text.annotations.*.file_citation.file_id",
    "step_details.tool_calls.*.code_interpreter.outputs.*.image.file_id",
)
_THREAD_PART_SHAPE: Final = _shape(
    {
        "thread": ["thread_id"],
        "file": _nested(_THREAD_FILES, ["", "data.*."]),
        "vector_store": _THREAD_STORES,
    }
)
_SHAPES: Final[Mapping[str, AnswerShape]] = {
    "/uploads/{upload}/complete": _shape({"file": ["file.id"]}),  # ``id`` is the upload's
    "/threads/runs": _THREAD_PART_SHAPE,  # ``id`` is the run's
    "/batches": _BATCH_SHAPE,
    "/batches/{batch}": _OWN_BATCH_SHAPE,
    "/batches/{batch}/cancel": _OWN_BATCH_SHAPE,
    "/messages/batches/{message_batch}/results": _BATCH_RESULT_SHAPE,
    "/threads": _shape({"thread": ["id"], "vector_store": _THREAD_STORES}),
    "/assistants": _shape({"assistant": ["id"], "vector_store": _THREAD_STORES}),
}
"""The shapes of answers, by the pattern of the path.

Other paths that create something answer with it. Answers below an assistant or thread of the
agent's give what its model made, and what the provider made of its attachments.
"""

_OWN_THREAD = re.compile(r"/(?:threads/\{thread\}|assistants/\{assistant\})")
_CREATABLE: Final[tuple[ObjectKind, ...]] = (
    "file", "upload", "message_batch", "vector_store", "container", "eval", "video",
)  # fmt: skip
_CREATED: Final[Mapping[ObjectKind, AnswerShape]] = {
    **{kind: _shape({kind: ["id"]}) for kind in _CREATABLE},
    "video": _shape({"video": ["id", "request_id"]}),  # ``request_id`` is xAI's
}


def shape_of_answer(match: PathMatch) -> AnswerShape | None:
    """Return the shape of the answer to a request on a path of no dialect.

    None if it gives no id.
    """
    row = match.row
    shape = _SHAPES.get(row.pattern.replace("*}", "}"))
    if shape is not None:
        return shape

    if _OWN_THREAD.match(row.pattern):
        return _THREAD_PART_SHAPE

    return None if row.creates is None else _CREATED.get(row.creates)


def find_given_objects(document: bytes | bytearray, shape: AnswerShape) -> tuple[GivenObject, ...]:
    """Return the objects that a JSON document of a provider's gives, each once.

    Anything else gives none.
    """
    if not shape.may_give(document):
        return ()

    try:
        value = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()

    found: dict[GivenObject, None] = {}
    for steps, kind in shape.places:
        for object_id in _follow(value, steps):
            found[GivenObject(kind, object_id)] = None
    return tuple(found)


def _follow(value: Any, steps: Sequence[_Step]) -> Iterator[str]:
    """Yield the ids to which the steps lead."""
    if not steps:
        if isinstance(value, str) and value:
            yield value
    elif steps[0] == "*":
        for each in value if isinstance(value, list) else ():
            yield from _follow(each, steps[1:])
    elif isinstance(value, dict) and steps[0] in value:
        yield from _follow(value[steps[0]], steps[1:])
