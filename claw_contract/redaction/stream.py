"""Redaction of a stream whose events contain a secret in pieces of a few characters.

No piece is a secret by itself, but a transcript or a reader of history joins them. In all dialects,
pieces that belong together are in members of the same name.
"""

import json
import re
from typing import NamedTuple

from claw_contract.redaction.redactor import Redactor

_MEMBER = re.compile(
    rb'"(content|refusal|arguments|reasoning|reasoning_content|text|thinking|partial_json)"'
    rb'\s*+:\s*+"((?:[^"\\]++|\\.)*+)"',
    re.DOTALL,
)
"""A member that contains a piece of the model's output."""


class _Edit(NamedTuple):
    """The bytes from ``start`` to ``end`` of a stream are replaced."""

    start: int
    end: int
    replacement: bytes


def redact_stream(stream: bytes, redactor: Redactor) -> bytes:
    """Return the stream without the secrets that are spread over several of its events.

    ``Redactor.document`` handles those within one event.
    """
    members_by_name: dict[bytes, list[re.Match[bytes]]] = {}
    for member in _MEMBER.finditer(stream):
        members_by_name.setdefault(member[1], []).append(member)

    edits: list[_Edit] = []
    for members in members_by_name.values():
        if len(members) > 1:
            edits += _edits(members, redactor)
    edits.sort()

    parts: list[bytes] = []
    copied = 0
    for edit in edits:
        parts += [stream[copied : edit.start], edit.replacement]
        copied = edit.end
    return b"".join([*parts, stream[copied:]])


def _edits(members: list[re.Match[bytes]], redactor: Redactor) -> list[_Edit]:
    """Return an edit for each piece that contains a part of a secret."""
    # Most streams have no secret, and their pieces need not be decoded.
    whole = b'"%b"' % b"".join([member[2] for member in members])
    if redactor.document(whole) == whole:
        return []

    try:
        pieces = [
            json.loads(b'"%b"' % member[2], strict=False).encode(errors="surrogatepass")
            for member in members
        ]
    except ValueError:  # not JSON
        pieces = [member[2] for member in members]

    edits: list[_Edit] = []
    for member, piece, clear in zip(members, pieces, redactor.pieces(pieces), strict=True):
        if clear != piece:
            text = json.dumps(clear.decode(errors="replace"), ensure_ascii=False)[1:-1]
            edits.append(_Edit(*member.span(2), text.encode(errors="replace")))
    return edits
