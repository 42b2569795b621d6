"""The known paths of each provider: what may be asked for, how it names its model,
and whether a budget counts it.

Deny by default (docs/spec/mediation.md section 1): what is not in these tables is refused, unless
the operator opened it. A row of a table is read by columns:

    methods        of the requests that the row is about
    pattern        the path below the provider's base path (``/v1``, ``/api/v1``); behind ``//`` it is from the host's root
    model          where a request names its model, see ``ModelLocation``
    counted        whether budgets count it, though the model that it names (if any) can't be seen
    creates, lists the kind of object that the provider makes and answers with, or of which it answers with a list

A placeholder that is named after an ``ObjectKind`` is the id of an object that a provider keeps.
All others begin with an underscore and have no owner of their own; one that ends in ``*`` stands
for one or several segments.

The sources are the providers' API references of November 2026 and what runners were seen to send.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import quote

from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_mediate.core.api_paths import MAX_CACHED_LENGTH, Endpoint, resolve_path

type Family = Literal["openai", "anthropic", "openrouter", "google", "xai", "ai-gateway", "ollama"]
"""Providers whose API has the same paths: a known provider, or (others) that after
which its format is named.
"""

type ModelLocation = Literal["nowhere", "optional", "required", "hidden"]
"""The place of the model's name: none, the body or none, the body, or out of the proxy's sight."""

type ObjectKind = Literal[
    "response", "conversation", "stored_completion", "file", "upload", "batch", "message_batch",
    "vector_store", "container", "assistant", "thread", "eval", "video",
]  # fmt: skip
"""The kinds of objects that a provider keeps under an id."""

OBJECT_KINDS: Final[tuple[ObjectKind, ...]] = get_args(ObjectKind.__value__)
FAMILIES: Final[tuple[Family, ...]] = get_args(Family.__value__)


class KnownPath(NamedTuple):
    """One row of a table."""

    methods: tuple[str, ...]
    pattern: str
    model: ModelLocation = "nowhere"
    is_counted: bool = False
    creates: ObjectKind | None = None
    lists: ObjectKind | None = None
    endpoint: Endpoint | None = None  # The dialect's, for a request that is mediated
    hides_cost: bool = (
        False  # Begins any number of model calls, which stand in a file or at the provider
    )

    @property
    def is_from_root(self) -> bool:
        return self.pattern.startswith("//")


class PathMatch(NamedTuple):
    """A known path, as one request names it."""

    family: Family
    row: KnownPath
    ids: Mapping[ObjectKind, str]  # What a provider keeps and the path names, in its order
    path: str
    """The path in the one spelling in which it is sent: below the provider's base path, or
    (``row.is_from_root``) the host's root. Without a query.
    """
    prefix: str = ""  # The base path that the request was found below

    def below(self, base_path: str) -> str:
        """Return the path below a provider's base path; where that is "", with the
        ``/v1`` that the request had.
        """
        if base_path or self.row.is_from_root or not self.prefix:
            return self.path
        return f"/v1{self.path}"


class ApiBase(NamedTuple):
    """The place of an API: the family of its paths, and the paths below which they are looked for.

    ``family`` is None for the proxy's own listener, where the provider is not known yet: then all
    families are looked through, in the order of ``FAMILIES``. ``prefixes``: without the slash at
    the end; "" where the API begins at the root.
    """

    family: Family | None
    prefixes: tuple[str, ...]


def _row(
    methods: str,
    pattern: str,
    model: ModelLocation = "nowhere",
    *,
    counted: bool = False,
    creates: ObjectKind | None = None,
    lists: ObjectKind | None = None,
) -> KnownPath:
    return KnownPath(tuple(methods.split()), pattern, model, counted, creates, lists)


def _hides_cost(pattern: str, *, creates: ObjectKind | None = None) -> KnownPath:
    """Return the row of a POST that begins any number of model calls, which are out
    of the proxy's sight.
    """
    row = _row("POST", pattern, "hidden", counted=True, creates=creates)
    return row._replace(hides_cost=True)


def _dialect(
    endpoint: Endpoint, *, counted: bool = True, creates: ObjectKind | None = None
) -> KnownPath:
    return KnownPath(("POST",), endpoint, "required", counted, creates, None, endpoint)


def _asks_model(pattern: str, *, creates: ObjectKind | None = None) -> KnownPath:
    """Return the row of a POST that names its model in its body."""
    return _row("POST", pattern, "required", counted=True, creates=creates)


_CHAT = _dialect("/chat/completions")
_RESPONSES = _dialect("/responses", creates="response")
_MESSAGES = (_dialect("/messages"), _dialect("/messages/count_tokens", counted=False))
_COMPLETIONS = _asks_model("/completions")
_EMBEDDINGS = _asks_model("/embeddings")
_RERANK = _asks_model("/rerank")
_MODELS = (_row("GET HEAD", "/models"), _row("GET HEAD", "/models/{_model*}"))
_IMAGES = (_asks_model("/images/generations"), _asks_model("/images/edits"))
_AUDIO = (
    _asks_model("/audio/speech"),
    _asks_model("/audio/transcriptions"),
    _asks_model("/audio/translations"),
)

_FILES = (
    _row("POST", "/files", creates="file"),
    _row("GET", "/files", lists="file"),
    _row("GET DELETE", "/files/{file}"),
    _row("GET", "/files/{file}/content"),
)
_NAMED_FILES = (
    # Google's ids have a slash: ``files/abc``, ``batches/abc``.
    *_FILES[:2],
    _row(
        "GET", "/files/{file*}/content"
    ),  # Before the next one, whose id may have any number of slashes
    _row("GET DELETE", "/files/{file*}"),
)
_UPLOADS = (
    _row("POST", "/uploads", creates="upload"),
    _row("POST", "/uploads/{upload}/parts"),
    _row("POST", "/uploads/{upload}/complete", creates="file"),
    _row("POST", "/uploads/{upload}/cancel"),
)
_BATCHES = (
    # The models, and the number of requests, stand in a file.
    _hides_cost("/batches", creates="batch"),
    _row("GET", "/batches", lists="batch"),
    _row("GET", "/batches/{batch}"),
    _row("POST", "/batches/{batch}/cancel"),
)
_NAMED_BATCHES = (
    *_BATCHES[:2],
    _row("GET", "/batches/{batch*}"),
    _row("POST", "/batches/{batch*}/cancel"),
)
_STORED_RESPONSES = (
    _row("GET", "/responses", lists="response"),
    _row("GET DELETE", "/responses/{response}"),
    _row("POST", "/responses/{response}/cancel"),
    _row("GET", "/responses/{response}/input_items"),
)
_CONVERSATIONS = (
    _row("POST", "/conversations", "optional", creates="conversation"),
    _row("GET", "/conversations", lists="conversation"),
    _row("GET POST DELETE", "/conversations/{conversation}"),
    _row("GET POST", "/conversations/{conversation}/items"),
    _row("GET DELETE", "/conversations/{conversation}/items/{_item}"),
)
_STORED_COMPLETIONS = (
    _row("GET", "/chat/completions", lists="stored_completion"),
    _row("GET POST DELETE", "/chat/completions/{stored_completion}"),
    _row("GET", "/chat/completions/{stored_completion}/messages"),
)
_VECTOR_STORES = (
    _row("POST", "/vector_stores", "optional", creates="vector_store"),
    _row("GET", "/vector_stores", lists="vector_store"),
    _row("GET POST DELETE", "/vector_stores/{vector_store}"),
    _row("POST", "/vector_stores/{vector_store}/search", "optional"),
    _row("GET POST", "/vector_stores/{vector_store}/files"),
    _row("GET POST DELETE", "/vector_stores/{vector_store}/files/{_file}"),
    _row("GET", "/vector_stores/{vector_store}/files/{_file}/content"),
    _row("POST", "/vector_stores/{vector_store}/file_batches"),
    _row("GET", "/vector_stores/{vector_store}/file_batches/{_file_batch}"),
    _row("GET", "/vector_stores/{vector_store}/file_batches/{_file_batch}/files"),
    _row("POST", "/vector_stores/{vector_store}/file_batches/{_file_batch}/cancel"),
)
_CONTAINERS = (
    _row("POST", "/containers", "optional", creates="container"),
    _row("GET", "/containers", lists="container"),
    _row("GET DELETE", "/containers/{container}"),
    _row("GET POST", "/containers/{container}/files"),
    _row("GET DELETE", "/containers/{container}/files/{_file}"),
    _row("GET", "/containers/{container}/files/{_file}/content"),
)
_ASSISTANTS = (
    _row("POST", "/assistants", "required", counted=True, creates="assistant"),
    _row("GET", "/assistants", lists="assistant"),
    _row("GET DELETE", "/assistants/{assistant}"),
    _row("POST", "/assistants/{assistant}", "optional"),
    _row("POST", "/threads", "optional", creates="thread"),
    _row(
        "POST", "/threads/runs", "required", counted=True, creates="thread"
    ),  # Answers with the run, which names its thread
    _row("GET POST DELETE", "/threads/{thread}"),
    _row("GET POST", "/threads/{thread}/messages"),
    _row("GET POST DELETE", "/threads/{thread}/messages/{_message}"),
    _row("GET", "/threads/{thread}/runs"),
    _row("POST", "/threads/{thread}/runs", "required", counted=True),
    _row("GET POST", "/threads/{thread}/runs/{_run}"),
    _row("POST", "/threads/{thread}/runs/{_run}/cancel"),
    _row(
        "POST", "/threads/{thread}/runs/{_run}/submit_tool_outputs", "hidden", counted=True
    ),  # The run's model goes on
    _row("GET", "/threads/{thread}/runs/{_run}/steps"),
    _row("GET", "/threads/{thread}/runs/{_run}/steps/{_step}"),
)
_EVALS = (
    _row(
        "POST", "/evals", "hidden", counted=True, creates="eval"
    ),  # Graders and data sources name models
    _row("GET", "/evals", lists="eval"),
    _row("GET DELETE", "/evals/{eval}"),
    _row("POST", "/evals/{eval}"),
    _row("GET", "/evals/{eval}/runs"),
    _hides_cost("/evals/{eval}/runs"),
    _row("GET DELETE", "/evals/{eval}/runs/{_run}"),
    _hides_cost("/evals/{eval}/runs/{_run}"),
    _row("POST", "/evals/{eval}/runs/{_run}/cancel"),
    _row("GET", "/evals/{eval}/runs/{_run}/output_items"),
    _row("GET", "/evals/{eval}/runs/{_run}/output_items/{_item}"),
)
_VIDEOS = (
    _asks_model("/videos", creates="video"),
    _row("GET", "/videos", lists="video"),
    _row("GET DELETE", "/videos/{video}"),
    _row("GET", "/videos/{video}/content"),
    _row(
        "POST", "/videos/{video}/remix", "hidden", counted=True, creates="video"
    ),  # The model of the first video
)

_OPENAI: Final = (
    _CHAT,
    *_STORED_COMPLETIONS,
    _RESPONSES,
    _dialect("/responses/compact"),
    _dialect("/responses/input_tokens", counted=False),
    *_STORED_RESPONSES,
    *_CONVERSATIONS,
    *_MODELS,
    _COMPLETIONS,
    _EMBEDDINGS,
    _RERANK,  # Not OpenAI's own; servers of its format have it
    _row("POST", "/moderations", "optional"),
    _asks_model("/decisions"),
    *_IMAGES,
    _asks_model("/images/variations"),
    *_AUDIO,
    *_FILES,
    *_UPLOADS,
    *_BATCHES,
    *_VECTOR_STORES,
    *_CONTAINERS,
    *_ASSISTANTS,
    *_EVALS,
    *_VIDEOS,
    _row("POST", "/traces/ingest"),  # What OpenAI's Agents SDK tells of its runs; nothing is read
)

_ANTHROPIC: Final = (
    *_MESSAGES,
    _asks_model("/complete"),
    *_MODELS,
    *_FILES,
    _row(
        "POST", "/messages/batches", "hidden", counted=True, creates="message_batch"
    ),  # Each of its requests names one
    _row("GET", "/messages/batches", lists="message_batch"),
    _row("GET DELETE", "/messages/batches/{message_batch}"),
    _row("POST", "/messages/batches/{message_batch}/cancel"),
    _row("GET", "/messages/batches/{message_batch}/results"),
    # Claude Code's own, from the root of its host: settings, limits, telemetry, feature flags, the
    # check of a fetched domain.
    _row("GET", "//api/hello"),
    _row("GET", "//api/claude_code/{_part*}"),
    _row("GET", "//api/claude_cli/bootstrap"),
    _row("GET", "//api/web/domain_info"),
    _row("POST", "//api/claude_code/metrics", "optional"),
    _row("POST", "//api/event_logging/batch", "optional"),
    _row("POST", "//api/event_logging/v2/batch", "optional"),
    _row("POST", "//api/eval/{_key}", "optional"),
)

_OPENROUTER: Final = (
    _CHAT,
    _RESPONSES,  # Stateless: no stored ones
    *_MESSAGES,
    _COMPLETIONS,
    _EMBEDDINGS,
    _row("GET", "/embeddings/models"),
    _RERANK,
    *_AUDIO,
    *_IMAGES,
    *_MODELS,
    _row("GET", "/endpoints/zdr"),
    _row("GET", "/providers"),
    *_VIDEOS,
    _row("GET", "/videos/models"),
)

_GOOGLE: Final = (
    _CHAT,
    _EMBEDDINGS,
    _asks_model("/images/generations"),
    *_MODELS,
    *_NAMED_FILES,
    *_NAMED_BATCHES,
    *_VIDEOS,
    # Gemini's own protocol, from the root: gemini-cli.
    *(
        row
        for version in ("v1", "v1beta", "v1alpha")
        for row in (
            _row("GET", f"//{version}/models"),
            _row("GET", f"//{version}/models/{{_model}}"),
            *(
                _row("POST", f"//{version}/models/{{_model}}:{verb}", "hidden", counted=True)
                for verb in (
                    "generateContent",
                    "streamGenerateContent",
                    "countTokens",
                    "embedContent",
                    "batchEmbedContents",
                )
            ),
        )
    ),
)

_XAI: Final = (
    _CHAT,
    _RESPONSES,
    *_STORED_RESPONSES,
    *_MESSAGES,
    _COMPLETIONS,
    _asks_model("/complete"),
    _EMBEDDINGS,
    _asks_model("/tokenize-text"),
    _row("POST", "/tts", "hidden", counted=True),  # Its voices name no model
    _row("POST", "/stt", "hidden", counted=True),
    *_MODELS,
    *(
        _row("GET", path)
        for kind in ("language", "embedding", "image-generation", "video-generation")
        for path in (f"/{kind}-models", f"/{kind}-models/{{_model*}}")
    ),
    *_IMAGES,
    _asks_model("/videos/generations", creates="video"),
    _asks_model("/videos/edits", creates="video"),
    _asks_model("/videos/extensions", creates="video"),
    _row("GET", "/videos/{video}"),
    _row("GET", "/chat/deferred-completion/{stored_completion}"),
    *_FILES,
    *_BATCHES,
    _row("GET", "/batches/{batch}/requests"),
    _hides_cost("/batches/{batch}/requests"),
    _row("GET", "/batches/{batch}/results"),
    _row("POST", "/batches/{batch}:cancel"),
)

_AI_GATEWAY: Final = (
    _CHAT,
    _RESPONSES,
    *_MESSAGES,
    _COMPLETIONS,
    _EMBEDDINGS,
    _RERANK,
    *_IMAGES,
    *_MODELS,
    # The AI SDK's own protocol, from the root: a header names the model.
    *(
        row
        for version in ("v1", "v2", "v3", "v4")
        for row in (
            _row("GET", f"//{version}/ai/config"),
            *(
                _row("POST", f"//{version}/ai/{kind}-model", "hidden", counted=True)
                for kind in ("language", "embedding", "image", "video", "reranking")
            ),
        )
    ),
)

_OLLAMA: Final = (
    _CHAT,
    _RESPONSES,
    *_MESSAGES,
    _COMPLETIONS,
    _EMBEDDINGS,
    _asks_model("/images/generations"),
    *_MODELS,
    # Its own protocol, from the root; nothing that pulls, makes or deletes a model.
    *(_asks_model(f"//api/{verb}") for verb in ("chat", "generate", "embed", "embeddings", "show")),
    *(_row("GET HEAD", f"//api/{verb}") for verb in ("tags", "ps", "version")),
)

KNOWN_PATHS: Final[Mapping[Family, Sequence[KnownPath]]] = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "openrouter": _OPENROUTER,
    "google": _GOOGLE,
    "xai": _XAI,
    "ai-gateway": _AI_GATEWAY,
    "ollama": _OLLAMA,
}


def family_of(provider: str, api_format: Literal["openai", "anthropic"]) -> Family:
    """Return the family of a provider's paths: a provider of providers.json is of
    that of its format.
    """
    return next((family for family in FAMILIES if family == provider), api_format)


def find_known_path(base: ApiBase, method: str, path: str) -> PathMatch | None:
    """Return the row that a request's path, with or without a query, is in; None
    for an unknown path.

    Every spelling of a path that a lenient server would understand is the same path. Ids keep their
    case.

    >>> base = ApiBase("openai", ("/v1",))
    >>> find_known_path(base, "GET", "/v1/x/../Files/file-A//content?limit=1").path
    '/files/file-A/content'
    >>> find_known_path(base, "GET", "/files") is None
    True
    """
    if len(path) > MAX_CACHED_LENGTH:
        return _find(base, method, path)
    return _find_cached(base, method, path)


def _find(base: ApiBase, method: str, path: str) -> PathMatch | None:
    resolved = resolve_path(path)
    if "%" in resolved:
        return None  # A server that decodes twice would read another path

    slash = "" if "%2f" in path.lower() else "/"
    families = FAMILIES if base.family is None else (base.family,)
    for family in families:
        table = _TABLES[family]
        for prefix in _prefixes_of(resolved, base.prefixes):
            if (match := table.find(method, resolved[len(prefix) :], "", slash)) is not None:
                return match._replace(prefix=prefix)
        if (match := table.find(method, resolved, "/", slash)) is not None:
            return match
    return None


_find_cached = lru_cache(maxsize=1024)(_find)


def _prefixes_of(path: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the prefixes that a path is below."""
    return [prefix for prefix in prefixes if path[: len(prefix) + 1].lower() == f"{prefix}/"]


_SAFE = ":@~+=,!$'()*&"
_PLACEHOLDER = re.compile(r"\{(\w+)(\*?)\}")


class _CompiledRow(NamedTuple):
    row: KnownPath
    regex: re.Pattern[str]
    names: tuple[str, ...]

    @classmethod
    def of(cls, row: KnownPath) -> "_CompiledRow":
        names: list[str] = []
        regex, at = "", 0
        for found in _PLACEHOLDER.finditer(row.pattern):
            literal = row.pattern[at : found.start()]
            anything = (
                r"([!-~]+)" if found[2] else r"([!-.0-~]+)"
            )  # ASCII: another server could decode it otherwise
            regex += re.escape(literal) + anything
            names.append(found[1])
            at = found.end()
        regex += re.escape(row.pattern[at:])
        return cls(row, re.compile(regex, re.IGNORECASE), tuple(names))

    def match(self, family: Family, path: str, slash: str) -> PathMatch | None:
        """Return the match; ``slash`` is "/" unless the slashes within a value stay
        escaped, as its runner wrote them.
        """
        found = self.regex.fullmatch(path)
        if found is None:
            return None
        values = found.groups()
        ids = {
            kind: value
            for name, value in zip(self.names, values, strict=True)
            for kind in OBJECT_KINDS
            if kind == name
        }
        rest = iter(values)
        written = _PLACEHOLDER.sub(
            lambda _: quote(next(rest), safe=_SAFE + slash), self.row.pattern
        )
        return PathMatch(
            family, self.row, ids, written.removeprefix("/") if self.row.is_from_root else written
        )


class _Table:
    """The rows of one family, by method.

    Those without a placeholder come first: ``/threads/runs`` is no thread.
    """

    def __init__(self, family: Family, rows: Sequence[KnownPath]) -> None:
        self._family: Family = family
        self._by_method: dict[str, list[_CompiledRow]] = {}
        for row in sorted(rows, key=lambda row: "{" in row.pattern):
            for method in row.methods:
                self._by_method.setdefault(method, []).append(_CompiledRow.of(row))

    def find(self, method: str, path: str, root: str, slash: str) -> PathMatch | None:
        for compiled in self._by_method.get(method.upper(), ()):
            if compiled.row.is_from_root == bool(root):
                match = compiled.match(self._family, root + path, slash)
                if match is not None:
                    return match
        return None


_TABLES: Final = {family: _Table(family, rows) for family, rows in KNOWN_PATHS.items()}

_OWN_PATHS = {
    known.base_url.split("/", 3)[3] for known in KNOWN_PROVIDERS.values() if known.base_url
}
PROXY_BASE: Final = ApiBase(
    None, (*sorted((f"/{path}" for path in _OWN_PATHS), key=len, reverse=True), "")
)
"""The proxy's own listener: a runner's base URL may end in any provider's base
path, or have none.
"""
