"""The text of a stream without the secrets that it says in pieces, a few characters with each event.

No piece is a secret, and whoever puts them together has one: a transcript, or a reader of history. What belongs together goes
by the name of its member, in all dialects.
"""

from __future__ import annotations

import json
import re

from claw_contract.redaction.redactor import Redactor

_MEMBER = re.compile(
    rb'"(content|refusal|arguments|reasoning|reasoning_content|text|thinking|partial_json)"'
    rb'\s*+:\s*+"((?:[^"\\]++|\\.)*+)"',
    re.DOTALL,
)
"""What a model says, in each event a little."""


def redact_stream(stream: bytes, redactor: Redactor) -> bytes:
    """The stream, with dots in the pieces of secrets. Secrets that stand in one piece are left to ``Redactor.document``."""
    said: dict[bytes, list[re.Match[bytes]]] = {}
    for member in _MEMBER.finditer(stream):
        said.setdefault(member[1], []).append(member)
    edits = sorted(edit for members in said.values() if len(members) > 1 for edit in _edits(members, redactor))
    parts, told = [], 0
    for start, end, clear in edits:
        parts += [stream[told:start], clear]
        told = end
    return b"".join([*parts, stream[told:]])


def _edits(members: list[re.Match[bytes]], redactor: Redactor) -> list[tuple[int, int, bytes]]:
    """(from, to, what is there instead) for each piece in which a part of a secret is."""
    whole = b'"%b"' % b"".join([member[2] for member in members])
    if redactor.document(whole) == whole:
        return []
    try:
        pieces = [json.loads(b'"%b"' % member[2], strict=False).encode(errors="surrogatepass") for member in members]
    except ValueError:  # it was no JSON
        pieces = [member[2] for member in members]
    return [
        (*member.span(2), json.dumps(clear.decode(errors="replace"), ensure_ascii=False)[1:-1].encode(errors="replace"))
        for member, piece, clear in zip(members, pieces, redactor.pieces(pieces), strict=True)
        if clear != piece
    ]
