"""Hidden rounds belong to the conversation: where they are found again (spec/mediation.md section 7).

An anchor names the assistant message that hidden rounds led to. Of a handoff it is the set of native call ids, compared by
their alphanumerics (runners strip the rest); of a final answer the visible text, with the user's last words before it, so
that equal answers of two conversations are told apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

MOST_REINJECTED = 256 * 1024
"""Bytes of hidden messages in one request."""
_EVIDENCE = 3
"""How many of the user's messages before an answer tell it from an equal one."""
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")


def calls_anchor(ids: Iterable[str]) -> str:
    """The anchor of an assistant message with calls, in any order of them."""
    return "calls:" + _digest(sorted(_NOT_ALPHANUMERIC.sub("", call_id) for call_id in ids))


def call_anchor(name: str, arguments: str, said: Sequence[str]) -> str:
    """The anchor of a handoff that has no id: a call by its canonical arguments; ``said`` as below."""
    return "call:" + _digest([name, arguments, *map(_plain, said[-_EVIDENCE:])])


def text_anchor(text: str, said: Sequence[str]) -> str:
    """The anchor of an answer; ``said``: the user's messages before it, oldest first."""
    return "text:" + _digest([_plain(text), *map(_plain, said[-_EVIDENCE:])])


def bounded(hidden: Mapping[int, bytes], most: int = MOST_REINJECTED) -> dict[int, bytes]:
    """Of hidden messages by their place, the latest ones that fit into ``most`` bytes: an old gap, never a new one."""
    kept: dict[int, bytes] = {}
    for index in sorted(hidden, reverse=True):
        most -= len(hidden[index])
        if most < 0:
            break
        kept[index] = hidden[index]
    return kept


def _plain(text: str) -> str:
    """Without white space: runners join the parts of a text with and without line breaks."""
    return "".join(text.split())


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()
