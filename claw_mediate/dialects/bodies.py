"""Bodies of requests on the wire, for every dialect: read for their view, and edited by splicing.

Members that no rule of ours needs are left for the provider to judge, and stay byte for byte.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import Evidence, Transcript
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import MAX_MESSAGES, ProviderRequest, UnreadableRequestError
from claw_state.continuity import Anchor

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
type Changes = dict[str, bytes | None]


def encode(value: object) -> bytes:
    """Return compact JSON: the same value gives the same bytes, so that a
    provider's prompt cache holds.
    """
    return _encoder.encode(value).encode(errors="surrogatepass")


def array_member(body: json_splice.Object, name: str) -> bytes:
    """Return the array of that name; an absent one is empty."""
    value = body.value(name)
    return b"[]" if value in (None, b"null") else value or b"[]"


def insert_messages(
    messages: bytes, insertions: Mapping[int, bytes], *cuts: tuple[int, int, bytes]
) -> bytes:
    """Insert hidden messages right before the message at their index; ``cuts`` are
    other edits of the same array.
    """
    places = json_splice.element_spans(messages) if insertions else []
    return json_splice.splice(
        messages,
        [*((places[i][0], places[i][0], hidden + b",") for i, hidden in insertions.items()), *cuts],
    )


def insert_hidden_rounds(body: bytes, transcript: str, insertions: Mapping[int, bytes]) -> bytes:
    """Return a request with hidden messages in the array of that name, and else as it was.

    Raises ``JsonSpliceError``.
    """
    if not insertions:
        return body
    parsed = json_splice.Object(body)
    return parsed.edit({transcript: insert_messages(array_member(parsed, transcript), insertions)})


def append_text(content: bytes, text: str) -> bytes:
    """Append text to a content of either form: a string grows, a list of blocks gets one more."""
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "text", "text": text})])
    if content[:1] != b'"':
        return encode(text)
    separator = b"" if content == b'""' else b"\\n\\n"
    end = len(content) - 1
    return json_splice.splice(content, [(end, end + 1, separator + encode(text)[1:])])


def request_variants(
    body: json_splice.Object,
    changes: Changes,
    choice: Callable[[ToolUse], Changes],
    transcript: str = "messages",
) -> Callable[[ToolUse], ProviderRequest]:
    """Return the edited request for each use of tools, made when it is needed: bodies may be large.

    ``transcript``: the member whose end hidden rounds are put to.
    """
    built: dict[ToolUse, ProviderRequest] = {}

    def build(use: ToolUse) -> ProviderRequest:
        if use not in built:
            built[use] = ProviderRequest(*body.split(changes | choice(use), transcript))
        return built[use]

    return build


ABSENT = msgspec.Raw(b"null")
_RESULTS = ("tool", "function")


class _Request(Protocol):
    @property
    def messages(self) -> Sequence[Any]: ...


class _Message(Protocol):
    @property
    def role(self) -> Any: ...


def decode_request[R: _Request](decoder: msgspec.json.Decoder[R], body: bytes, name: str) -> R:
    """Return a request's view.

    Raises ``UnreadableRequestError`` with a sentence that says that it is no ``name``.
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


def unique_ids(ids: Iterable[object], prefix: str) -> list[str]:
    """Return an id of its own for each call: one that is missing or taken is
    minted, of letters and digits only.
    """
    unique: dict[str, None] = {}
    for index, own in enumerate(ids):
        unique[
            own if isinstance(own, str) and own and own not in unique else f"{prefix}{index}"
        ] = None
    return [*unique]


def decode_or_none[T](decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    """Return a member in a form that we know; None for any other."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def evidence_reader[M: _Message](
    messages: Sequence[M], parts_of: Callable[[M], Sequence[str]], key_of: Callable[[M, str], str]
) -> Callable[[], Evidence]:
    """Return a function that reads the evidence once.

    ``key_of``: the key of an assistant's message with its text.
    """

    @cache
    def evidence() -> Evidence:
        anchors: dict[int, Anchor] = {}
        gaps: dict[int, Anchor] = {}
        transcript = Transcript()
        is_unanswered = False
        for index, message in enumerate(messages):
            if message.role in _RESULTS:
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
        return Evidence(anchors, gaps, transcript.before, transcript.earlier)

    return evidence
