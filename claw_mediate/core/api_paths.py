"""Which protocol a path speaks (spec/mediation.md section 1)."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

type Endpoint = Literal["/chat/completions", "/messages", "/messages/count_tokens"]
"""The end of a path that speaks a protocol of ours."""

_ENDPOINTS: tuple[Endpoint, ...] = ("/chat/completions", "/messages", "/messages/count_tokens")
_THREAD_MESSAGES = re.compile(r"/threads/[^/]+/messages$")
"""OpenAI's Assistants: a message is added to a thread, and no model is asked."""
type ModelLocation = Literal["nowhere", "optional", "required", "hidden"]
"""Where a POST of no dialect names its model: in its body or not at all, in its body, or where nobody reads it."""
_NO_MODEL = re.compile(r"/(?:files|uploads/[^/]+/parts|skills|skills/[^/]+/versions)$")
_MODEL_REQUIRED = re.compile(
    r"/(?:responses|responses/(?:compact|input_tokens)|embeddings|completions|complete|rerank|videos"
    r"|images/[^/]+|audio/[^/]+|assistants|threads/runs|threads/[^/]+/runs|fine_tuning/jobs)$"
)
_MODEL_HIDDEN = re.compile(
    # In the path; in the entries of a batch, or in a file; within a session that is spoken to past the proxy.
    r"/models?/[^/:]+[/:]|/(?:engines|deployments|tunedmodels)/|/batches$"
    r"|/(?:realtime|evals|chatkit)(?:/|$)"
)
_SLASHES = re.compile(r"[/\\]+")
_QUERY = re.compile(r"[?#]")
_PARAMETERS = re.compile(r";[^/]*")
_MAX_CACHED_LENGTH = 512
"""Of a path, which anybody may send."""


def normalize_path(path: str) -> str:
    """What a lenient provider would make of a path: its spelling must not be a way round.

    >>> meant("/v1/x/../Chat%2F/completions;a=b/?c")
    '/v1/chat/completions'
    """
    plain = _SLASHES.sub("/", _QUERY.split(unquote(path))[0])
    return posixpath.normpath(_PARAMETERS.sub("", plain)).lower()


def find_endpoint(path: str) -> Endpoint | None:
    """The end by which a path's protocol is known; None where it speaks none of ours."""
    return _find_cached(path) if len(path) <= _MAX_CACHED_LENGTH else _find_endpoint(path)


@lru_cache(maxsize=256)
def _find_cached(path: str) -> Endpoint | None:
    return _find_endpoint(path)


def _find_endpoint(path: str) -> Endpoint | None:
    plain = normalize_path(path)
    return next((end for end in _ENDPOINTS if plain.endswith(end) and not _THREAD_MESSAGES.search(plain)), None)


def locate_model(path: str) -> ModelLocation:
    """Return where a POST to a path of no dialect names its model.

    >>> [model_place(path) for path in ("/v1/files", "/v1/conversations", "/v1/embeddings", "/v1/models/m:embed")]
    ['nowhere', 'optional', 'required', 'hidden']
    """
    plain = normalize_path(path)
    if _MODEL_HIDDEN.search(plain):
        return "hidden"
    if _NO_MODEL.search(plain):
        return "nowhere"
    return "required" if _MODEL_REQUIRED.search(plain) else "optional"


def is_anthropic(path: str) -> bool:
    """Whether Anthropic's protocol is spoken there."""
    return find_endpoint(path) in {"/messages", "/messages/count_tokens"}
