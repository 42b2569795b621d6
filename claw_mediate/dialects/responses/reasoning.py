"""Reasoning in OpenAI Responses, which only its maker accepts in a request.

docs/spec/responses.md section 4.

    reasoning of a hidden round          what happens to it
    ───────────────────────────────────  ─────────────────────────────────────────────────────────
    encrypted, or (in its turn) kept by  it is sent back to the provider and model that made it
      the provider
    made by another provider or model    it leaves the transcript
    neither encrypted nor kept           it leaves the transcript, and later requests ask for
                                           encrypted reasoning

If reasoning leaves, the items that it led to lose their ``id``: by the ids, the API would notice
that something is missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from claw_mediate.core import json_splice
from claw_mediate.core.http import read_error_message
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.types import Round
from claw_mediate.dialects.base import ReplayRules
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.responses.channels import DONE
from claw_mediate.dialects.responses.items import IMAGE, REASONING, Item, read_item, split_items

# The member of a stored reasoning item that names its provider and model; it is never sent
_MAKER: Final = "claw_maker"
_LONELY: Final = "of type 'reasoning' was provided without its required following item"
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
    """Return True if the provider can read its reasoning again without having kept it."""
    return all(item.encrypted_content for item in items if item.kind == REASONING)


def without_reasoning(items: Sequence[bytes]) -> Iterator[bytes]:
    """Yield items without reasoning, and without the ids by which the API would notice that."""
    for item in items:
        view = read_item(item)
        if view.kind != REASONING:
            yield item if view.id is None else json_splice.edit(item, {"id": None})


def sign(items: Iterable[bytes], maker: str) -> Iterator[bytes]:
    """Yield items to be stored, in which reasoning names its maker."""
    for item in items:
        if maker and read_item(item).kind == REASONING:
            yield json_splice.edit(item, {_MAKER: encode(maker)})
        else:
            yield item


class ReasoningRules(ReplayRules):
    """The rules above, as the core asks for them."""

    def adapt(self, messages: bytes, maker: str) -> bytes:
        """Return stored hidden items without the reasoning of other makers (``ReplayRules``)."""
        # Most have no reasoning.
        if maker and _MAKER.encode() not in messages:
            return messages

        items = split_items(b"[%b]" % messages)
        makers = [_read_maker(item) for item in items if read_item(item).kind == REASONING]
        # Without a maker, the request may go to anybody. Reasoning that names none is taken along.
        is_refused = any(not maker or made_by not in {"", maker} for made_by in makers)
        if is_refused:
            return b",".join(without_reasoning(items))

        if not any(makers):
            return messages
        return b",".join(
            json_splice.edit(item, {_MAKER: None}) if _read_maker(item) else item for item in items
        )

    def unseal(self, closing: ReplyEvent) -> ReplyEvent:
        """Return the end of a reasoning item without its encrypted content (``ReplayRules``).

        An item without it is left out of every later request whose provider keeps nothing.
        """
        item = closing.data.get("item")
        if closing.channel != DONE or not isinstance(item, msgspec.Raw):
            return closing

        bare = json_splice.edit(bytes(item), {"encrypted_content": None})
        return replace(closing, data={**closing.data, "item": msgspec.Raw(bare)})

    def find_losses(self, rounds: Sequence[Round], *, replayed: bool) -> tuple[str, ...]:
        """Return the interventions for images or reasoning that are left out (``ReplayRules``)."""
        for past in rounds:
            items = [read_item(item) for item in split_items(past.response.message)]
            if replayed:
                if any(item.kind == IMAGE for item in items):
                    return ("hidden_output_dropped",)
            elif not past.response.is_kept and not is_replayable(items):
                return ("reasoning_not_replayable",)

        return ()

    def ask_for_replayable(self, body: bytes) -> bytes:
        """Return a request that asks for encrypted reasoning, unless the provider keeps it."""
        parsed = json_splice.Object(body)
        try:
            include = msgspec.json.decode(parsed.value("include") or b"null", type=list[str] | None)
        except msgspec.DecodeError:
            return body

        names = include or []
        if parsed.value("store") != b"false" or _ENCRYPTED in names:
            return body

        return parsed.edit({"include": encode([*names, _ENCRYPTED])})

    def refuses_replayable(self, error: bytes) -> bool:
        """Return True if an error says that reasoning can't be encrypted."""
        try:
            details = msgspec.json.decode(error, type=_ErrorBody).error
        except (msgspec.DecodeError, RecursionError):
            return False

        # This is about an item that was sent, and not about what was asked for.
        if details.code == "invalid_encrypted_content":
            return False

        return (
            "include" in str(details.param) or "encrypted content" in str(details.message).lower()
        )

    def refuses_reasoning(self, error: bytes) -> bool:
        """Return True if an error says that reasoning came without the item after it.

        An error about encrypted content is the runner's own to hear.
        """
        return _LONELY in read_error_message(error)


def _read_maker(item: bytes) -> str:
    """Return the maker that ``sign`` wrote into an item; "" if there is none."""
    maker = msgspec.json.decode(item, type=_MadeBy).claw_maker
    return maker if isinstance(maker, str) else ""
