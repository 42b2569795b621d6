"""The protocol of an API path (docs/spec/mediation.md section 1)."""

import posixpath
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

type Endpoint = Literal["/chat/completions", "/messages", "/messages/count_tokens"]
"""The end of a path whose protocol is a dialect."""

_ENDPOINTS: tuple[Endpoint, ...] = ("/chat/completions", "/messages", "/messages/count_tokens")
_THREAD_MESSAGES = re.compile(r"/threads/[^/]+/messages$")
"""OpenAI's Assistants: a message is added to a thread, and no model is asked."""
type ModelLocation = Literal["nowhere", "optional", "required", "hidden"]
"""The place of the model's name in a POST of no dialect: none, the body or none, the body, or out of the proxy's sight."""
_NO_MODEL = re.compile(r"/(?:files|uploads/[^/]+/parts|skills|skills/[^/]+/versions)$")
_MODEL_REQUIRED = re.compile(
    r"/(?:responses|responses/(?:compact|input_tokens)|embeddings|completions|complete|rerank|videos"
    r"|images/[^/]+|audio/[^/]+|assistants|threads/runs|threads/[^/]+/runs|fine_tuning/jobs)$"
)
_MODEL_HIDDEN = re.compile(
    # In the path; in the entries of a batch, or in a file; within a session that bypasses the proxy.
    r"/models?/[^/:]+[/:]|/(?:engines|deployments|tunedmodels)/|/batches$"
    r"|/(?:realtime|evals|chatkit)(?:/|$)"
)
_BROKER = re.compile(r"/mcp(?:/(.*))?")
_SLASHES = re.compile(r"[/\\]+")
_QUERY = re.compile(r"[?#]")
_PARAMETERS = re.compile(r";[^/]*")
_MAX_CACHED_LENGTH = 512  # Longer paths are not cached: anybody may send them


def normalize_path(path: str) -> str:
    """Return the path as a lenient provider would understand it: no spelling must bypass governance.

    >>> normalize_path("/v1/x/../Chat%2F/completions;a=b/?c")
    '/v1/chat/completions'
    """
    plain = _SLASHES.sub("/", _QUERY.split(unquote(path))[0])
    return posixpath.normpath(_PARAMETERS.sub("", plain)).lower()


def find_endpoint(path: str) -> Endpoint | None:
    """Return the endpoint that a path ends in; None where its protocol is no dialect."""
    return _find_endpoint(path) if len(path) <= _MAX_CACHED_LENGTH else _find_endpoint.__wrapped__(path)


@lru_cache(maxsize=256)
def _find_endpoint(path: str) -> Endpoint | None:
    plain = normalize_path(path)
    return next((end for end in _ENDPOINTS if plain.endswith(end) and not _THREAD_MESSAGES.search(plain)), None)


def find_broker(path: str) -> str | None:
    """Return the agent whose MCP broker a path of the proxy's own listener names, "" if it names none; None for other paths.

    >>> [find_broker(path) for path in ("/mcp/analyst", "//mcp/./analyst/?x=1", "/mcp", "/v1/mcp/analyst")]
    ['analyst', 'analyst', '', None]
    """
    match = _BROKER.fullmatch(normalize_path(path)) if "mcp" in path.lower() or "%" in path else None
    return None if match is None else match[1] or ""


def locate_model(path: str) -> ModelLocation:
    """Return where a POST to a path of no dialect names its model.

    >>> [locate_model(path) for path in ("/v1/files", "/v1/conversations", "/v1/embeddings", "/v1/models/m:embed")]
    ['nowhere', 'optional', 'required', 'hidden']
    """
    plain = normalize_path(path)
    if _MODEL_HIDDEN.search(plain):
        return "hidden"
    if _NO_MODEL.search(plain):
        return "nowhere"
    return "required" if _MODEL_REQUIRED.search(plain) else "optional"


def is_anthropic(path: str) -> bool:
    """Return True if the path's protocol is Anthropic's."""
    return find_endpoint(path) in {"/messages", "/messages/count_tokens"}
