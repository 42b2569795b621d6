"""The ids of what providers keep, as requests name them and as answers give them
(docs/spec/mediation.md section 2).

    find_named_objects   the ids in a request: members of these names at any depth, also where one stands twice
    find_given_objects   the ids in an answer: at the places where a provider puts them, and nowhere else

The two differ on purpose. A request is refused for an id that nobody may name, so every place
counts that a provider may read. An answer makes its owner of the ids in it, so no place counts that
repeats what a model, a runner or a service has written.
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

The last two are the dialect's own to decide about where it reads them, and nowhere else.
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
"""The same on all other paths.

A dialect's requests have some of these as words of the runner's own.
"""

_OPAQUE: Final = frozenset(
    {
        "metadata", "client_metadata", "attributes", "headers", "env",
        "parameters", "input_schema", "schema", "input_examples",
        "functionCall", "functionResponse",
    }
)  # fmt: skip
"""Members whose value is data of the runner's: no provider reads an id in it."""

_EVAL_OPAQUE: Final = _OPAQUE | {"item", "sample", "item_schema"}
_OPAQUE_OBJECTS: Final = frozenset({"arguments", "args"})
"""Members that are data where they are an object: the arguments of a call."""

_NAMED_BY_RUNNER: Final = frozenset({"variables"})
"""Members whose own members the runner names, while a provider reads the values:
the variables of a stored prompt.
"""

_STORED_SOURCES: Final[Mapping[str, ObjectKind]] = {
    "responses": "response",
    "stored_completions": "stored_completion",
    "logs": "stored_completion",
}
"""Sources of an eval that hold what all agents of an account have stored."""

_FUNCTION_TYPES: Final = ("function", "custom")
"""Tools whose ``parameters`` are a schema of the runner's.

Of any other kind of tool they are the provider's to read.
"""

_CALL_TYPE = re.compile(r"\w{0,40}tool_use")
_ESCAPED_NAME = re.compile(
    rb"\\u(?:00(?:2[dD]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])|017[fF])"
)
"""A letter, an underscore or a dash in an escape, as it may stand in the name of a
member; and the long s.
"""
_ESCAPE_BYTES = 6
_GOOGLE_FILE = re.compile(r"(?:(?i:https?)://[^/?#]*/(?:[\w.-]+/)*)?(files/[^/?#:]+).*", re.DOTALL)
"""A file of Google's by its name or address: all other addresses are of the web."""
_MAX_ADDRESS: Final = (
    8192  # Characters: a longer address is taken for a file that nobody has, so that it is refused
)
_ADDRESS = re.compile(r"https?://|files/", re.IGNORECASE)
_OF_CHAIN: Final = frozenset({"response", "conversation"})
"""Kinds that a dialect reads by itself."""
_TOP: Final = ("", "extra_body")
"""Objects in which ``conversation`` names one: the request itself, and its ``extra_body``.

Elsewhere it is a plain word.
"""


def fold_member(name: str) -> str:
    """Return a member's name as the most lenient server reads it: servers in Go in
    any case, Google's in camel case too.

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
    """Ids that can't be told, or too many of them. The message is one sentence, for the runner."""


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
        """Return the kind of object that a member of that name names, in any
        spelling; None for any other member.
        """
        return self._members.get(fold_member(name))

    def may_name(self, body: bytes, expected: int = 0) -> bool:
        """Return whether a body has to be read: most name nothing.

        Text matches nowhere: its quotes are escaped.

        ``expected``: how many members of a chain the dialect has read in the body by itself.
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
    """Return what finds members of these names in any spelling, with the first byte
    of a value that may be an id.

    Only the first letter is looked for byte by byte, which is what makes the search fast: it may
    find a few names more.
    """
    chain = {name for name, kind in members.items() if kind in _OF_CHAIN}
    firsts = "".join(sorted({letter for name in members for letter in (name[0], name[0].upper())}))
    others, of_chain = (
        "|".join(sorted(map(_any_spelling, names), key=len, reverse=True))
        for names in (members.keys() - chain, chain)
    )
    # The properties of a schema have such names, too. Their value is an object, and only a
    # container's has an id.
    value = r'"[ \t\r\n]*+:[ \t\r\n]*+'
    container = _any_spelling("container")
    found = rf'"[{firsts}](?i:(?:{others}){value}[^{{ \t\r\n]|{container}"[ \t\r\n]*+:|(?P<chain>{of_chain}){value}[^n \t\r\n])'
    return re.compile(found.encode("latin-1"))


def _any_spelling(name: str) -> str:
    """Return an expression for a name without its first letter, in any case and with any of the
    usual marks between words.
    """
    long_s = "(?:s|\xc5\xbf)"  # Which is folded to an s, as UTF-8
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

    A function of Python lets other threads on; a body may have a million objects.
    """
    return _Members(members)


_decoder = json.JSONDecoder(object_pairs_hook=_collect, parse_int=str, parse_float=str)


def find_named_objects(
    body: bytes, rules: MemberRules, chain: Collection[str] = ()
) -> tuple[NamedObject, ...]:
    """Return the objects that a JSON body names, each once.

    Raise ``UnreadableObjectsError`` or ``TooManyValuesError``.

    ``chain``: the ids of a response and a conversation that the dialect has read in the body by
    itself.
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
    top = {id(each) for each in _top_members(document)}
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Members):
            named = _objects_of(value, rules, outline.restore, is_top=id(value) in top)
            found |= dict.fromkeys(
                each for each in named if each.kind not in _OF_CHAIN or each.id not in chain
            )
            waiting += _parts_to_read(value, rules)
        elif isinstance(value, list):
            waiting += [each for each in value if isinstance(each, list)]

        if len(found) > MAX_NAMED:
            raise UnreadableObjectsError(f"the request names more than {MAX_NAMED} objects")

    return tuple(found)


def _top_members(document: Any) -> Iterator[_Members]:
    """Yield the objects of a document whose members are the request's own: itself,
    and what is merged into it.
    """
    if isinstance(document, _Members):
        yield document
        yield from (
            value for name, value in document if name in _TOP and isinstance(value, _Members)
        )


def _objects_of(
    members: _Members, rules: MemberRules, restore: Callable[[str], str], *, is_top: bool
) -> Iterator[NamedObject]:
    """Yield the objects that an object's own members name.

    ``restore`` returns the document's text of one in its outline.
    """
    for name, value in members:
        kind = rules.kind_of(name)
        if kind is not None and (kind != "conversation" or is_top):
            plain = fold_member(name)
            is_bare = isinstance(value, _Members) and plain not in _HAVE_IDS
            texts = () if is_bare else _texts_of(value)
            yield from (
                NamedObject(kind, each, name) for each in _ids_of(plain, map(restore, texts))
            )

        word = name.casefold()
        if (
            word == "type" and value == "file_id"
        ):  # ``{"type": "file_id", "id": …}``, a source of an eval
            ids = (
                text
                for other, own in members
                if other.casefold() == "id"
                for text in _texts_of(own)
            )
            yield from (NamedObject("file", restore(each), "id") for each in ids)

        if (
            rules.reads_sources
            and word == "type"
            and isinstance(value, str)
            and value in _STORED_SOURCES
        ):
            yield NamedObject(_STORED_SOURCES[value], value, name)


_HAVE_IDS: Final = frozenset({"container", "conversation"})
"""Members whose value may be an object with an ``id``."""


def _ids_of(member: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the ids in the texts of a member, whose name is folded."""
    if member != "fileuri":
        yield from texts
        return

    for text in texts:
        is_too_long = len(text) > _MAX_ADDRESS or is_digest(text)
        if is_too_long and _ADDRESS.match(text):
            yield text[:_MAX_ADDRESS]
        elif not is_too_long and (file := _GOOGLE_FILE.fullmatch(text)):
            yield file[1]


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the ids of a member's value: a text, a list of texts, or an object with an ``id``."""
    if isinstance(value, _Members):
        yield from (
            each for name, own in value if name.casefold() == "id" for each in _texts_of(own)
        )
    elif isinstance(value, list):
        yield from (each for each in value if isinstance(each, str) and each)
    elif isinstance(value, str) and value:
        yield value


def _parts_to_read(members: _Members, rules: MemberRules) -> Iterator[Any]:
    """Yield the values below an object in which a provider may read ids."""
    is_call = any(
        name == "type" and isinstance(value, str) and _CALL_TYPE.fullmatch(value)
        for name, value in members
    )
    is_function = any(name == "type" and value in _FUNCTION_TYPES for name, value in members)
    is_typed = any(name == "type" for name, _ in members)
    for name, value in members:
        is_read = name == "parameters" and is_typed and not is_function
        if not isinstance(value, list) or (name in rules.opaque and not is_read):
            continue

        is_object = isinstance(value, _Members)
        if is_object and (name in _OPAQUE_OBJECTS or (is_call and name == "input")):
            continue

        if is_object and name in _NAMED_BY_RUNNER:
            yield from (each for _, each in value if isinstance(each, list))
        else:
            yield value


type _Step = str  # A member's name, or ``*`` for each element of an array
type _Place = tuple[tuple[_Step, ...], ObjectKind]


class AnswerShape(NamedTuple):
    """The places of an answer at which a provider gives ids."""

    places: tuple[_Place, ...]
    needles: tuple[bytes, ...]  # One of these stands in every document that gives an id

    def may_give(self, document: bytes | bytearray) -> bool:
        """Return whether a document has to be read."""
        return any(needle in document for needle in self.needles)


class GivenObject(NamedTuple):
    """An id in an answer."""

    kind: ObjectKind
    id: str


def _shape(places: Mapping[ObjectKind, Sequence[str]]) -> AnswerShape:
    compiled = tuple(
        (tuple(place.split(".")), kind) for kind, own in places.items() for place in own
    )
    words = sorted({_telling_step(steps) for steps, _ in compiled})
    return AnswerShape(compiled, tuple(f'"{word}"'.encode() for word in words))


def _telling_step(steps: Sequence[_Step]) -> _Step:
    """Return the last member on the way to an id that is rare: nearly every
    document has an ``id``.
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
"""A response, or an event of its stream: what the model's own tools opened and
made, and what it cites.
"""

_MESSAGE_FILE = "content.content.*.file_id"
MESSAGE_SHAPE: Final = _shape(
    {
        "container": ["container.id", "message.container.id", "delta.container.id"],
        "file": _nested([_MESSAGE_FILE], ["content.*.", "message.content.*.", "content_block."]),
    }
)
"""A message of Anthropic's, or an event of its stream: the container of code
execution, and the files that it made.
"""

_BATCH_RESULT_SHAPE: Final = _shape(
    {
        "container": ["result.message.container.id"],
        "file": [f"result.message.content.*.{_MESSAGE_FILE}"],
    }
)
_BATCH_FILES = ("output_file_id", "error_file_id")
_BATCH_SHAPE: Final = _shape(
    {"batch": ["id", "batch_id"], "file": _BATCH_FILES}
)  # The second is xAI's
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
    "/uploads/{upload}/complete": _shape({"file": ["file.id"]}),  # Its own ``id`` is the upload's
    "/threads/runs": _THREAD_PART_SHAPE,  # Its own ``id`` is the run's
    "/batches": _BATCH_SHAPE,
    "/batches/{batch}": _OWN_BATCH_SHAPE,
    "/batches/{batch}/cancel": _OWN_BATCH_SHAPE,
    "/messages/batches/{message_batch}/results": _BATCH_RESULT_SHAPE,
    "/threads": _shape({"thread": ["id"], "vector_store": _THREAD_STORES}),
    "/assistants": _shape({"assistant": ["id"], "vector_store": _THREAD_STORES}),
}
"""By the pattern of the path.

Other paths that create something answer with it; those below an assistant or thread of the agent's
have what its model made, and what the provider made of its attachments.
"""

_OWN_THREAD = re.compile(r"/(?:threads/\{thread\}|assistants/\{assistant\})")
_CREATABLE: Final[tuple[ObjectKind, ...]] = (
    "file", "upload", "message_batch", "vector_store", "container", "eval", "video",
)  # fmt: skip
_CREATED: Final[Mapping[ObjectKind, AnswerShape]] = {
    **{kind: _shape({kind: ["id"]}) for kind in _CREATABLE},
    "video": _shape({"video": ["id", "request_id"]}),  # The second is xAI's
}


def shape_of_answer(match: PathMatch) -> AnswerShape | None:
    """Return the places of the answer to a request on a path of no dialect; None
    where it gives no id.
    """
    row = match.row
    if (shape := _SHAPES.get(row.pattern.replace("*}", "}"))) is not None:
        return shape

    if _OWN_THREAD.match(row.pattern):
        return _THREAD_PART_SHAPE

    return None if row.creates is None else _CREATED.get(row.creates)


def find_given_objects(document: bytes | bytearray, shape: AnswerShape) -> tuple[GivenObject, ...]:
    """Return the objects that a JSON document of a provider's gives, each once;
    none of what is no document.
    """
    if not shape.may_give(document):
        return ()

    try:
        value = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()

    found = {
        GivenObject(kind, each): None
        for steps, kind in shape.places
        for each in _follow(value, steps)
    }
    return tuple(found)


def _follow(value: Any, steps: Sequence[_Step]) -> Iterator[str]:
    if not steps:
        if isinstance(value, str) and value:
            yield value
    elif steps[0] == "*":
        for each in value if isinstance(value, list) else ():
            yield from _follow(each, steps[1:])
    elif isinstance(value, dict) and steps[0] in value:
        yield from _follow(value[steps[0]], steps[1:])
