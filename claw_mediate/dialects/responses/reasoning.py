"""Reasoning in OpenAI Responses, which only its maker takes back
(docs/spec/responses.md section 4).

reasoning of a hidden round                        what happens to it
─────────────────────────────────────────────────
─────────────────────────────────────────────────────────── encrypted, or kept by the provider (in
its turn)   it goes back, to the provider and model that made it made by another provider or model
it leaves the transcript neither encrypted nor kept                         the same, and later
requests ask for the encrypted content

Where reasoning leaves, what it led to loses its ``id``: by that the API knows that something is
missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.types import Round
from claw_mediate.dialects.base import ReplayRules
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.responses.items import IMAGE, REASONING, Item, read_item, split_items

# The member of a stored reasoning item that names its provider and model; it is never sent
_MAKER: Final = "claw_maker"
_ENCRYPTED: Final = "reasoning.encrypted_content"


class _Error(msgspec.Struct):
    message: Any = None
    code: Any = None
    param: Any = None


class _ErrorBody(msgspec.Struct):
    error: _Error


class _MadeBy(msgspec.Struct):
    claw_maker: Any = None


def is_replayable(items: Iterable[Item]) -> bool:
    """Return whether the provider knows its own reasoning again, without having kept it."""
    return all(item.encrypted_content for item in items if item.kind == REASONING)


def without_reasoning(items: Sequence[bytes]) -> Iterator[bytes]:
    """Yield items without reasoning, and without the ids by which the API would miss it."""
    for item in items:
        view = read_item(item)
        if view.kind != REASONING:
            yield item if view.id is None else json_splice.edit(item, {"id": None})


def sign(items: Iterable[bytes], maker: str) -> Iterator[bytes]:
    """Yield items for the store, in which reasoning names who made it."""
    for item in items:
        signed = maker and read_item(item).kind == REASONING
        yield json_splice.edit(item, {_MAKER: encode(maker)}) if signed else item


class ReasoningRules(ReplayRules):
    """The rules above, as the core asks for them."""

    def adapt(self, messages: bytes, maker: str) -> bytes:
        if maker and _MAKER.encode() not in messages:
            return messages
        items = split_items(b"[%b]" % messages)
        makers = [_read_maker(item) for item in items if read_item(item).kind == REASONING]
        if any(not maker or made_by not in {"", maker} for made_by in makers):
            return b",".join(without_reasoning(items))
        if not any(makers):
            return messages
        return b",".join(
            json_splice.edit(item, {_MAKER: None}) if _read_maker(item) else item for item in items
        )

    def find_losses(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[str, ...]:
        views = [
            (past.response, [read_item(item) for item in split_items(past.response.message)])
            for past in rounds
        ]
        if replayed:
            return (
                ("hidden_output_dropped",)
                if any(view.kind == IMAGE for _, items in views for view in items)
                else ()
            )
        return (
            ()
            if all(response.is_kept or is_replayable(items) for response, items in views)
            else ("reasoning_not_replayable",)
        )

    def ask_for_replayable(self, body: bytes) -> bytes:
        parsed = json_splice.Object(body)
        named = parsed.value("include") or b"null"
        try:
            own = msgspec.json.decode(named, type=list[str] | None) or []
        except msgspec.DecodeError:
            return body
        if parsed.value("store") != b"false" or _ENCRYPTED in own:
            return body
        return parsed.edit({"include": encode([*own, _ENCRYPTED])})

    def refuses_replayable(self, error: bytes) -> bool:
        try:
            told = msgspec.json.decode(error, type=_ErrorBody).error
        except (msgspec.DecodeError, RecursionError):
            return False
        if told.code == "invalid_encrypted_content":  # of an item, and not of what was asked for
            return False
        return "include" in str(told.param) or "encrypted content" in str(told.message).lower()


def _read_maker(item: bytes) -> str:
    maker = msgspec.json.decode(item, type=_MadeBy).claw_maker
    return maker if isinstance(maker, str) else ""
