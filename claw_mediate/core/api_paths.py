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
"""OpenAI's messages of a thread, and of a stored chat completion: no model is asked."""
_BROKER = re.compile(r"/mcp(?:/(.*))?")
_SLASHES = re.compile(r"[/\\]+")
_QUERY = re.compile(r"[?#]")
_SEGMENT_END = re.compile(r"[/\\;]")
_PARAMETERS = re.compile(r";[^/]*")
MAX_CACHED_LENGTH = 512  # Longer paths are not cached: anybody may send them


def normalize_path(path: str) -> str:
    """Return the path as a lenient provider would understand it: no spelling must
    bypass governance.

    >>> normalize_path("/v1/x/../Chat%2F/completions;a=b/?c")
    '/v1/chat/completions'
    """
    return resolve_path(path).lower()


def resolve_path(path: str) -> str:
    """Return the path as a lenient provider would understand it, in its own case."""
    plain = _SLASHES.sub("/", _QUERY.split(unquote(path))[0])
    return posixpath.normpath(_PARAMETERS.sub("", plain))


def is_ambiguous(path: str) -> bool:
    """Return whether a path goes up behind an encoded ``?`` or ``#``: some would
    read on there, and reach another path.

    >>> [is_ambiguous(path) for path in ("/v1/models%3F/../responses/resp_1", "/v1/models%3Fx",
    "/v1/models?x=/../y")] [True, False, False]
    """
    behind = _QUERY.split(unquote(path.partition("?")[0]), maxsplit=1)[1:]
    return any(".." in _SEGMENT_END.split(part) for part in behind)


def find_endpoint(path: str) -> Endpoint | None:
    """Return the endpoint that a path ends in; None where its protocol is no dialect."""
    return (
        _find_endpoint(path) if len(path) <= MAX_CACHED_LENGTH else _find_endpoint.__wrapped__(path)
    )


@lru_cache(maxsize=256)
def _find_endpoint(path: str) -> Endpoint | None:
    plain = normalize_path(path)
    return next(
        (end for end in _ENDPOINTS if plain.endswith(end) and not _OTHER_MESSAGES.search(plain)),
        None,
    )


type StoredKind = Literal["responses", "conversations"]


class KeptPath(NamedTuple):
    """The path of something that a provider keeps, in the one spelling in which it is sent."""

    prefix: str  # Up to the kind
    kind: StoredKind
    id: str  # "" for the list of all
    part: str  # Of the object, as ``/input_items``; "" for the object itself
    query: str

    def target(self, provider_id: str, part: str | None = None, query: str | None = None) -> str:
        """Return path and query at a provider, where the object may have another id."""
        own, asked = (self.part if part is None else part), (self.query if query is None else query)
        path = quote(f"{self.prefix}/{self.kind}/{provider_id}{own}")
        return f"{path}?{asked}" if asked else path


_STORED = re.compile(r"(.*?)/(responses|conversations)(?:/([^/]+)(.*))?", re.IGNORECASE | re.DOTALL)


def find_kept(path: str) -> KeptPath | None:
    """Return what a path names of what a provider keeps; None for other paths. Ids keep their case.

    >>> find_kept("/v1/x/../Responses/resp%5FA//input_items?limit=1")
    KeptPath(prefix='/v1', kind='responses', id='resp_A', part='/input_items', query='limit=1')
    >>> find_kept("/v1/chat/completions")
    """
    match = _STORED.fullmatch(resolve_path(path))
    if match is None:
        return None
    kind: StoredKind = "responses" if match[2].lower().startswith("r") else "conversations"
    return KeptPath(match[1], kind, match[3] or "", match[4] or "", path.partition("?")[2])


def creates_object(method: str, path: str) -> bool:
    """Return whether the provider keeps something new under the id that it answers
    with, on a path of no dialect.
    """
    found = find_kept(path) if method.upper() == "POST" else None
    return found is not None and found.kind == "conversations" and not found.id


def is_batch(path: str) -> bool:
    """Return whether a POST to a path begins a batch, whose requests stand in a file.

    >>> [is_batch(path) for path in ("/v1/batches", "/v1//Batches/?x=1", "/v1/messages/batches")]
    [True, True, False]
    """
    plain = normalize_path(path)
    return plain.endswith("/batches") and not plain.endswith(
        "/messages/batches"
    )  # Anthropic's, whose requests name nothing


def read_query(path: str) -> list[tuple[str, str]]:
    """Return the pairs of a path's query as any server would read them: also
    between semicolons, and decoded twice.

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
    """Return the agent whose MCP broker a path of the proxy's own listener names, "" if it names
    none; None for other paths.

    >>> [find_broker(path) for path in ("/mcp/analyst", "//mcp/./analyst/?x=1", "/mcp",
    "/v1/mcp/analyst")] ['analyst', 'analyst', '', None]
    """
    match = (
        _BROKER.fullmatch(normalize_path(path)) if "mcp" in path.lower() or "%" in path else None
    )
    return None if match is None else match[1] or ""


def is_anthropic(path: str) -> bool:
    """Return True if the path's errors have Anthropic's shape."""
    if find_endpoint(path) in {"/messages", "/messages/count_tokens"}:
        return True
    return "/messages/batches" in path
