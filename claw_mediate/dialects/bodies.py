"""The bodies of requests, for every dialect: they are read for their view, and edited by splicing.

Members that no rule of ours needs are left for the provider to judge, and stay byte for byte.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, assert_never

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import Evidence, Transcript
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.json_pieces import copy_span
from claw_mediate.core.shown import signature_digest
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import Insert, Replace, Weaves
from claw_mediate.dialects.base import MAX_MESSAGES, UnreadableRequestError, WriteRequest
from claw_state.continuity import Anchor

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
type Changes = dict[str, bytes | None]
"""The changes of an object (``json_splice.edit``): None removes a member."""


def encode(value: object) -> bytes:
    """Return compact JSON.

    The same value gives the same bytes, which a provider finds in its prompt cache.
    """
    return _encoder.encode(value).encode(errors="surrogatepass")


def array_member(body: json_splice.Object, name: str) -> bytes:
    """Return the array of that name; b"[]" if it is absent or null."""
    value = body.value(name)
    if value is None or value == b"null":
        return b"[]"
    return value


def insert_messages(messages: bytes, weaves: Weaves, *cuts: json_splice.Cut) -> bytes:
    """Put hidden messages into an array, each at the message with its index.

    ``cuts`` are other edits of the array, each of one message. Those of replaced ones are left out.
    """
    if not weaves:
        return json_splice.splice(messages, cuts)

    spans = json_splice.element_spans(messages)
    all_cuts: list[json_splice.Cut] = []
    removed: set[int] = set()

    for index, weave in weaves.items():
        start, end = spans[index]
        match weave:
            case Insert(hidden=hidden):
                all_cuts.append((start, start, hidden + b","))
            case Replace() if weave.messages:
                all_cuts.append((start, end, weave.messages))
            case Replace():
                removed.add(index)
            case _:
                assert_never(weave)

    replaced = {spans[index] for index, weave in weaves.items() if isinstance(weave, Replace)}
    all_cuts += [cut for cut in cuts if (cut[0], cut[1]) not in replaced]
    return json_splice.splice(messages, [*all_cuts, *_removals(spans, removed)])


def _removals(spans: Sequence[tuple[int, int]], removed: Collection[int]) -> list[json_splice.Cut]:
    """Return the cuts that remove elements of an array, with the commas that would be left over."""
    last_kept = len(spans) - 1
    while last_kept in removed:
        last_kept -= 1

    # Before the last element that stays, each goes with the comma after it. Those at the end go
    # together, with the comma before them.
    cuts: list[json_splice.Cut] = [
        (spans[index][0], spans[index + 1][0], b"") for index in removed if index < last_kept
    ]
    if last_kept < len(spans) - 1:
        start = spans[last_kept][1] if last_kept >= 0 else spans[0][0]
        cuts.append((start, spans[-1][1], b""))
    return cuts


def insert_hidden_rounds(body: bytes, transcript: str, weaves: Weaves) -> bytes:
    """Return a request with hidden messages in the array ``transcript``, and otherwise as it was.

    Raises ``JsonSpliceError``.
    """
    if not weaves:
        return body

    parsed = json_splice.Object(body)
    messages = array_member(parsed, transcript)
    return parsed.edit({transcript: insert_messages(messages, weaves)})


def transcript_messages(body: bytes, transcript: str) -> list[bytes]:
    """Return the messages of a request, each in its own bytes. Raises ``JsonSpliceError``."""
    messages = array_member(json_splice.Object(body), transcript)
    if messages[:1] != b"[":
        return []
    return [copy_span(messages, start, end) for start, end in json_splice.element_spans(messages)]


def append_text(content: bytes, text: str) -> bytes:
    """Append text to a content of either form: a string grows, a list of blocks gets one more."""
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "text", "text": text})])
    if content[:1] != b'"':
        return encode(text)

    separator = b"" if content == b'""' else b"\\n\\n"
    end = len(content) - 1
    return json_splice.splice(content, [(end, end + 1, separator + encode(text)[1:])])


type SplitRequest = tuple[bytes, bytes]
"""A request in two parts: up to the end of its last message, and from there on."""


def add_messages(request: SplitRequest, messages: Sequence[bytes]) -> list[bytes]:
    """Return the pieces of a request with further messages after its own."""
    head, tail = request
    if not messages:
        return [head, tail]

    separator = b"" if head.endswith(b"[") else b","
    return [head, separator, b",".join(messages), tail]


def request_writer(
    body: json_splice.Object,
    changes: Changes,
    choices: Mapping[ToolUse, Changes],
    transcript: str = "messages",
    add: Callable[[SplitRequest, Sequence[bytes]], list[bytes]] = add_messages,
) -> WriteRequest:
    """Return the writer of an edited request.

    For each use of tools it is edited when it is needed, and once: bodies may be large.
    ``choices``: the changes of the tool choice. The member ``transcript`` holds the messages;
    ``add`` puts hidden ones after them.
    """

    @cache
    def split(use: ToolUse) -> SplitRequest:
        return body.split(changes | choices[use], transcript)

    def write(use: ToolUse, hidden: Sequence[bytes] = ()) -> list[bytes]:
        return add(split(use), hidden)

    return write


ABSENT = msgspec.Raw(b"null")
_RESULT_ROLES = ("tool", "function")


class _Request(Protocol):
    @property
    def messages(self) -> Sequence[Any]: ...


class _Message(Protocol):
    @property
    def role(self) -> Any: ...


def decode_request[R: _Request](decoder: msgspec.json.Decoder[R], body: bytes, name: str) -> R:
    """Return a request's view.

    Raises ``UnreadableRequestError``, with a sentence that says that the request is not a ``name``.
    """
    try:
        json_splice.check_utf8(body)
        view = decode_request_outline(decoder, body)
    except UnicodeDecodeError as error:
        raise UnreadableRequestError(f"the request is not a {name}: it is not UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableRequestError(f"the request is not a {name}: {error}") from error

    if len(view.messages) > MAX_MESSAGES:
        raise UnreadableRequestError(f"the request has more than {MAX_MESSAGES} messages")
    return view


def seed_of(body: bytes) -> str:
    """Return the text of which the ids are made that a response lacks."""
    return hashlib.sha256(body).hexdigest()[:16]


def unique_ids(ids: Iterable[object], make_prefix: Callable[[], str]) -> list[str]:
    """Return an id of its own for each call.

    For one that is missing or repeated, a new one is made of the call's index and a prefix, which
    is made only then, and once: it may be the digest of a large body.
    """
    unique: dict[str, None] = {}
    prefix = ""
    for index, own in enumerate(ids):
        if isinstance(own, str) and own and own not in unique:
            unique[own] = None
        else:
            prefix = prefix or make_prefix()
            unique[f"{prefix}{index}"] = None
    return [*unique]


def decode_or_none[T](decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    """Return a member in a form that we know; None for any other."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def evidence_reader[M: _Message](
    messages: Sequence[M],
    parts_of: Callable[[M], Sequence[str]],
    key_of: Callable[[M, str], str],
    signatures_of: Callable[[M], Sequence[str]] = lambda _: (),
) -> Callable[[], Evidence]:
    """Return a function that reads the evidence once.

    ``parts_of`` returns the visible texts of a message, ``key_of`` the key of an assistant's
    message with its text, ``signatures_of`` the signatures of its reasoning.
    """

    @cache
    def evidence() -> Evidence:
        anchors: dict[int, Anchor] = {}
        gaps: dict[int, Anchor] = {}
        signed: dict[int, tuple[str, ...]] = {}
        transcript = Transcript()
        is_unanswered = False  # True if nobody has answered the messages so far

        for index, message in enumerate(messages):
            if message.role in _RESULT_ROLES:
                is_unanswered = True
            elif message.role == "user":
                gap = transcript.add_user(*parts_of(message))
                if is_unanswered and gap is not None:
                    gaps[index] = gap
                is_unanswered = True
            elif message.role == "assistant":
                text = "".join(parts_of(message))
                anchors[index] = transcript.add_assistant(key_of(message, text), text)
                transcript.add_text(text)
                is_unanswered = False
                if signatures := signatures_of(message):
                    signed[index] = tuple(map(signature_digest, signatures))

        return Evidence(anchors, gaps, transcript.before, transcript.earlier, signed=signed)

    return evidence
