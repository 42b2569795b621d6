"""The protocol of an API path (docs/spec/mediation.md section 1)."""

import posixpath
import re
from functools import lru_cache
from typing import Literal, NamedTuple, get_args
from urllib.parse import parse_qsl, quote, unquote

type Endpoint = Literal[
    "/chat/completions",
    "/messages",
    "/messages/count_tokens",
    "/responses",
    "/responses/compact",
    "/responses/input_tokens",
]
"""The end of a path whose protocol is a dialect."""

_ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint.__value__)
_OTHER_MESSAGES = re.compile(r"/(?:threads|chat/completions)/[^/]+/messages$")
"""OpenAI's messages of a thread, and of a stored chat completion. They ask no model."""
_BROKER = re.compile(r"/mcp(?:/(.*))?")
_SLASHES = re.compile(r"[/\\]+")
_QUERY = re.compile(r"[?#]")
_SEGMENT_END = re.compile(r"[/\\;]")
_PARAMETERS = re.compile(r";[^/]*")
# Characters. Longer paths are not cached: anybody may send them.
MAX_CACHED_LENGTH = 512


def normalize_path(path: str) -> str:
    """Return the path as a lenient provider would understand it, in lower case.

    So no spelling of a path bypasses the decision.

    >>> normalize_path("/v1/x/../Chat%2F/completions;a=b/?c")
    '/v1/chat/completions'
    """
    return resolve_path(path).lower()


def resolve_path(path: str) -> str:
    """Return the path as a lenient provider would understand it, in its own case."""
    without_query = _QUERY.split(unquote(path))[0]
    plain = _SLASHES.sub("/", without_query)
    return posixpath.normpath(_PARAMETERS.sub("", plain))


def is_ambiguous(path: str) -> bool:
    """Return True if a path has a ``..`` after an encoded ``?`` or ``#``.

    Some servers take that for a part of the path, and would reach another one.

    >>> paths = ("/v1/models%3F/../responses/resp_1", "/v1/models%3Fx", "/v1/models?x=/../y")
    >>> [is_ambiguous(path) for path in paths]
    [True, False, False]
    """
    without_query = unquote(path.partition("?")[0])
    after_encoded_mark = _QUERY.split(without_query, maxsplit=1)[1:]
    return any(".." in _SEGMENT_END.split(part) for part in after_encoded_mark)


def find_endpoint(path: str) -> Endpoint | None:
    """Return the endpoint in which a path ends; None if its protocol is no dialect."""
    if len(path) > MAX_CACHED_LENGTH:
        return _find_endpoint.__wrapped__(path)
    return _find_endpoint(path)


@lru_cache(maxsize=256)
def _find_endpoint(path: str) -> Endpoint | None:
    plain = normalize_path(path)
    if _OTHER_MESSAGES.search(plain):
        return None

    for endpoint in _ENDPOINTS:
        if plain.endswith(endpoint):
            return endpoint
    return None


type StoredKind = Literal["responses", "conversations"]


class KeptPath(NamedTuple):
    """The path of something that a provider keeps, in the one spelling in which it is sent."""

    prefix: str  # The part of the path before the kind
    kind: StoredKind
    id: str  # "" for the list of all
    part: str  # A part of the object, such as ``/input_items``; "" for the object itself
    query: str

    def target(self, provider_id: str, part: str | None = None, query: str | None = None) -> str:
        """Return path and query at a provider, which may know the object by another id.

        ``part`` and ``query`` replace those of the request; None: as they are.
        """
        part = self.part if part is None else part
        query = self.query if query is None else query
        path = quote(f"{self.prefix}/{self.kind}/{provider_id}{part}")
        return f"{path}?{query}" if query else path


_STORED = re.compile(r"(.*?)/(responses|conversations)(?:/([^/]+)(.*))?", re.IGNORECASE | re.DOTALL)


def find_kept(path: str) -> KeptPath | None:
    """Return the object of a provider's that a path names; None for other paths.

    Ids keep their case.

    >>> find_kept("/v1/x/../Responses/resp%5FA//input_items?limit=1")
    KeptPath(prefix='/v1', kind='responses', id='resp_A', part='/input_items', query='limit=1')
    >>> find_kept("/v1/chat/completions")
    """
    match = _STORED.fullmatch(resolve_path(path))
    if match is None:
        return None

    prefix, kind_as_sent, object_id, part = match.groups("")
    # By the first letter, because the expression also takes a long s for an s.
    kind: StoredKind = "responses" if kind_as_sent[0] in "rR" else "conversations"
    return KeptPath(prefix, kind, object_id, part, query=path.partition("?")[2])


def creates_object(method: str, path: str) -> bool:
    """Return True if the provider keeps a new object under the id in its answer.

    This is about paths of no dialect.
    """
    found = find_kept(path) if method.upper() == "POST" else None
    return found is not None and found.kind == "conversations" and not found.id


def is_batch(path: str) -> bool:
    """Return True if a POST to a path begins a batch whose requests are in a file.

    >>> [is_batch(path) for path in ("/v1/batches", "/v1//Batches/?x=1", "/v1/messages/batches")]
    [True, True, False]
    """
    plain = normalize_path(path)

    # A batch of Anthropic's has its requests in the body.
    is_anthropics = plain.endswith("/messages/batches")
    return plain.endswith("/batches") and not is_anthropics


def read_query(path: str) -> list[tuple[str, str]]:
    """Return the pairs of a path's query, in every way in which a server may read them.

    Some servers take semicolons for separators, and some decode twice.

    >>> read_query("/v1/models?a=1;b=2&c%2564=3")
    [('a', '1'), ('b', '2'), ('c%64', '3'), ('a', '1'), ('b', '2'), ('cd', '3')]
    """
    query = path.partition("?")[2].replace(";", "&")
    pairs = parse_qsl(query, errors="surrogateescape")
    if "%25" not in query:
        return pairs

    twice = unquote(query).replace(";", "&")
    return pairs + parse_qsl(twice, errors="surrogateescape")


def find_broker(path: str) -> str | None:
    """Return the agent whose MCP broker a path of the proxy's own listener names.

    "" if it names no agent, None for other paths.

    >>> paths = ("/mcp/analyst", "//mcp/./analyst/?x=1", "/mcp", "/v1/mcp/analyst")
    >>> [find_broker(path) for path in paths]
    ['analyst', 'analyst', '', None]
    """
    # Most paths are settled here; "%" may encode a letter of it.
    if "mcp" not in path.lower() and "%" not in path:
        return None

    match = _BROKER.fullmatch(normalize_path(path))
    return None if match is None else match[1] or ""


def is_anthropic(path: str) -> bool:
    """Return True if the path's errors have Anthropic's shape."""
    if find_endpoint(path) in {"/messages", "/messages/count_tokens"}:
        return True
    return "/messages/batches" in path
