"""Editing a request on the wire, for every dialect: what is added goes in by splicing, and all else stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from claw_mediate.core import json_splice
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import ProviderRequest

type Changes = dict[str, bytes | None]


def encode(value: object) -> bytes:
    """JSON as we write it: the same value gives the same bytes, so that a provider's prompt cache holds."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def array_member(body: json_splice.Object, name: str) -> bytes:
    """The array of that name; an absent one is empty."""
    value = body.value(name)
    return b"[]" if value in (None, b"null") else value or b"[]"


def insert_messages(messages: bytes, woven: Mapping[int, bytes], *cuts: tuple[int, int, bytes]) -> bytes:
    """Hidden messages go right before the message at their index; ``cuts`` are other edits of the same array."""
    places = json_splice.element_spans(messages) if woven else []
    return json_splice.splice(
        messages, [*((places[i][0], places[i][0], hidden + b",") for i, hidden in woven.items()), *cuts]
    )


def append_text(content: bytes, text: str) -> bytes:
    """Text behind a content of either form: a string grows, a list of blocks gets one more."""
    if content[:1] == b"[":
        return json_splice.append(content, [encode({"type": "text", "text": text})])
    if content[:1] != b'"':
        return encode(text)
    separator = b"" if content == b'""' else b"\\n\\n"
    return content[:-1] + separator + encode(text)[1:]


def request_variants(
    body: json_splice.Object, changes: Changes, choice: Callable[[ToolUse], Changes]
) -> Callable[[ToolUse], ProviderRequest]:
    """The edited request for each use of tools, made when it is asked for: bodies may be large."""
    made: dict[ToolUse, ProviderRequest] = {}

    def offer(use: ToolUse) -> ProviderRequest:
        if use not in made:
            made[use] = ProviderRequest(*body.split(changes | choice(use), "messages"))
        return made[use]

    return offer
