"""Which protocol a path speaks (spec/mediation.md section 1)."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

type End = Literal["/chat/completions", "/messages", "/messages/count_tokens"]
"""The end of a path that speaks a protocol of ours."""

_ENDS: tuple[End, ...] = ("/chat/completions", "/messages", "/messages/count_tokens")
_THREAD = re.compile(r"/threads/[^/]+/messages$")
"""OpenAI's Assistants: a message is added to a thread, and no model is asked."""
_SLASHES = re.compile(r"[/\\]+")
_QUERY = re.compile(r"[?#]")
_PARAMETERS = re.compile(r";[^/]*")
_LONGEST_KEPT = 512
"""Of a path, which anybody may send."""


def meant(path: str) -> str:
    """What a lenient provider would make of a path: its spelling must not be a way round.

    >>> meant("/v1/x/../Chat%2F/completions;a=b/?c")
    '/v1/chat/completions'
    """
    plain = _SLASHES.sub("/", _QUERY.split(unquote(path))[0])
    return posixpath.normpath(_PARAMETERS.sub("", plain)).lower()


def end_of(path: str) -> End | None:
    """The end by which a path's protocol is known; None where it speaks none of ours."""
    return _known_end(path) if len(path) <= _LONGEST_KEPT else _end(path)


@lru_cache(maxsize=256)
def _known_end(path: str) -> End | None:
    return _end(path)


def _end(path: str) -> End | None:
    plain = meant(path)
    return next((end for end in _ENDS if plain.endswith(end) and not _THREAD.search(plain)), None)


def is_anthropic(path: str) -> bool:
    """Whether Anthropic's protocol is spoken there."""
    return end_of(path) in {"/messages", "/messages/count_tokens"}
