"""The known paths of each provider.

A table says which paths may be asked for, how each names its model, and whether budgets count it.
Deny by default (docs/spec/mediation.md section 1): what is not in these tables is refused, unless
the operator opened it. The columns of a row:

    methods           of the requests that the row is about
    pattern           the path below the provider's base path (``/v1``, ``/api/v1``); a path that
                        begins with ``//`` is below the host's root
    model             where a request names its model, see ``ModelLocation``
    counted           True if budgets count it, though nobody can see the model that it names, if
                        any
    creates, lists    the kind of object that the provider makes and answers with, or of which it
                        answers with a list

A placeholder that is named after an ``ObjectKind`` is the id of an object that a provider keeps.
All others begin with an underscore and have no owner of their own. One that ends in ``*`` stands
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
"""Providers whose APIs have the same paths.

A known provider has a family of its own, and any other is in the one that its format is named
after.
"""

type ModelLocation = Literal["nowhere", "optional", "required", "hidden"]
"""The place of the model's name.

There is none, it may be in the body, it must be in the body, or the proxy can't see it.
"""

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
    # True if it begins any number of model calls, which are in a file or at the provider
    hides_cost: bool = False

    @property
    def is_from_root(self) -> bool:
        return self.pattern.startswith("//")


class PathMatch(NamedTuple):
    """A known path, as one request names it."""

    family: Family
    row: KnownPath
    ids: Mapping[ObjectKind, str]  # Of the objects that the path names, in its order
    path: str
    """The path in the one spelling in which it is sent, without a query.

    It is below the provider's base path, or (``row.is_from_root``) below the host's root.
    """
    prefix: str = ""  # The base path below which the request's path was found

    def below(self, base_path: str) -> str:
        """Return the path below a provider's base path.

        If that is "", the path has the ``/v1`` that the request had.
        """
        if base_path or self.row.is_from_root or not self.prefix:
            return self.path
        return f"/v1{self.path}"


class ApiBase(NamedTuple):
    """The place of an API: the family of its paths, and the base paths below which they are."""

    family: Family | None
    """None for the proxy's own listener, where the provider is not known yet.

    Then all families are searched, in the order of ``FAMILIES``.
    """
    prefixes: tuple[str, ...]
    """The base paths, without the slash at the end; "" if the API begins at the root."""


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
    """Return the row of a POST that begins any number of model calls, which we can't see."""
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
    # Before the next row, whose id may have any number of slashes
    _row("GET", "/files/{file*}/content"),
    _row("GET DELETE", "/files/{file*}"),
)
_UPLOADS = (
    _row("POST", "/uploads", creates="upload"),
    _row("POST", "/uploads/{upload}/parts"),
    _row("POST", "/uploads/{upload}/complete", creates="file"),
    _row("POST", "/uploads/{upload}/cancel"),
)
_BATCHES = (
    # The models, and the number of requests, are in a file.
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
    # Answers with the run, which names its thread
    _row("POST", "/threads/runs", "required", counted=True, creates="thread"),
    _row("GET POST DELETE", "/threads/{thread}"),
    _row("GET POST", "/threads/{thread}/messages"),
    _row("GET POST DELETE", "/threads/{thread}/messages/{_message}"),
    _row("GET", "/threads/{thread}/runs"),
    _row("POST", "/threads/{thread}/runs", "required", counted=True),
    _row("GET POST", "/threads/{thread}/runs/{_run}"),
    _row("POST", "/threads/{thread}/runs/{_run}/cancel"),
    # The model of the run goes on.
    _row("POST", "/threads/{thread}/runs/{_run}/submit_tool_outputs", "hidden", counted=True),
    _row("GET", "/threads/{thread}/runs/{_run}/steps"),
    _row("GET", "/threads/{thread}/runs/{_run}/steps/{_step}"),
)
_EVALS = (
    # Graders and data sources name models.
    _row("POST", "/evals", "hidden", counted=True, creates="eval"),
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
    # The model is that of the first video.
    _row("POST", "/videos/{video}/remix", "hidden", counted=True, creates="video"),
)

_GEMINI_VERBS = (
    "generateContent",
    "streamGenerateContent",
    "countTokens",
    "embedContent",
    "batchEmbedContents",
)


def _gemini(version: str) -> tuple[KnownPath, ...]:
    """Return the rows of one version of Gemini's own protocol: gemini-cli.

    It is at the root, and names the model in the path.
    """
    models = f"//{version}/models"
    asks = [
        _row("POST", f"{models}/{{_model}}:{verb}", "hidden", counted=True)
        for verb in _GEMINI_VERBS
    ]
    return (_row("GET", models), _row("GET", f"{models}/{{_model}}"), *asks)


def _xai_models(kind: str) -> tuple[KnownPath, ...]:
    """Return the rows of xAI's list of the models of one kind."""
    models = f"/{kind}-models"
    return (_row("GET", models), _row("GET", f"{models}/{{_model*}}"))


def _ai_sdk(version: str) -> tuple[KnownPath, ...]:
    """Return the rows of one version of the AI SDK's own protocol.

    It is at the root, and names the model in a header.
    """
    kinds = ("language", "embedding", "image", "video", "reranking")
    asks = [_row("POST", f"//{version}/ai/{kind}-model", "hidden", counted=True) for kind in kinds]
    return (_row("GET", f"//{version}/ai/config"), *asks)


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
    # OpenAI's Agents SDK reports its runs there. Nothing can be read there.
    _row("POST", "/traces/ingest"),
)

_ANTHROPIC: Final = (
    *_MESSAGES,
    _asks_model("/complete"),
    *_MODELS,
    *_FILES,
    # Each request of the batch names a model.
    _row("POST", "/messages/batches", "hidden", counted=True, creates="message_batch"),
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
    *_gemini("v1"),
    *_gemini("v1beta"),
    *_gemini("v1alpha"),
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
    *_xai_models("language"),
    *_xai_models("embedding"),
    *_xai_models("image-generation"),
    *_xai_models("video-generation"),
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
    *_ai_sdk("v1"),
    *_ai_sdk("v2"),
    *_ai_sdk("v3"),
    *_ai_sdk("v4"),
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
    """Return the family of a provider's paths.

    A provider that we don't know is in the family of its format.
    """
    for family in FAMILIES:
        if family == provider:
            return family
    return api_format


def find_known_path(base: ApiBase, method: str, path: str) -> PathMatch | None:
    """Return the row of a request's path, which may have a query; None for an unknown path.

    All spellings that a lenient server would understand as one path are one path. Ids keep their
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
        # A server that decodes twice would read another path.
        return None

    # Slashes within a value stay escaped if the runner wrote them so.
    slash = "" if "%2f" in path.lower() else "/"

    families = FAMILIES if base.family is None else (base.family,)
    for family in families:
        table = _TABLES[family]
        for prefix in _prefixes_of(resolved, base.prefixes):
            match = table.find(method, resolved[len(prefix) :], "", slash)
            if match is not None:
                return match._replace(prefix=prefix)

        match = table.find(method, resolved, "/", slash)
        if match is not None:
            return match

    return None


_find_cached = lru_cache(maxsize=1024)(_find)


def _prefixes_of(path: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return those of the prefixes below which a path is."""
    return [prefix for prefix in prefixes if path[: len(prefix) + 1].lower() == f"{prefix}/"]


_SAFE = ":@~+=,!$'()*&"
_PLACEHOLDER = re.compile(r"\{(\w+)(\*?)\}")
# ASCII only: a server could decode anything else in another way.
_ONE_SEGMENT = r"([!-.0-~]+)"
_SEGMENTS = r"([!-~]+)"


class _CompiledRow(NamedTuple):
    """A row, and the expression of the paths that are in it."""

    row: KnownPath
    regex: re.Pattern[str]
    names: tuple[str, ...]  # Of the placeholders, one for each group of the expression

    @classmethod
    def of(cls, row: KnownPath) -> "_CompiledRow":
        names: list[str] = []
        regex = ""
        position = 0
        for placeholder in _PLACEHOLDER.finditer(row.pattern):
            name, has_star = placeholder.groups()
            literal = row.pattern[position : placeholder.start()]
            regex += re.escape(literal) + (_SEGMENTS if has_star else _ONE_SEGMENT)
            names.append(name)
            position = placeholder.end()
        regex += re.escape(row.pattern[position:])

        return cls(row, re.compile(regex, re.IGNORECASE), tuple(names))

    def match(self, family: Family, path: str, slash: str) -> PathMatch | None:
        """Return the match; None if the path is not in this row.

        ``slash`` is "/" unless the slashes within a value must stay escaped.
        """
        found = self.regex.fullmatch(path)
        if found is None:
            return None

        values = found.groups()
        ids: dict[ObjectKind, str] = {}
        for name, value in zip(self.names, values, strict=True):
            for kind in OBJECT_KINDS:  # A search, because a name is a text and a kind a literal
                if kind == name:
                    ids[kind] = value

        rest = iter(values)
        written = _PLACEHOLDER.sub(
            lambda _: quote(next(rest), safe=_SAFE + slash), self.row.pattern
        )
        if self.row.is_from_root:
            written = written.removeprefix("/")
        return PathMatch(family, self.row, ids, written)


class _Table:
    """The rows of one family, by method.

    Rows without a placeholder come first: ``/threads/runs`` is no thread.
    """

    def __init__(self, family: Family, rows: Sequence[KnownPath]) -> None:
        self._family: Family = family
        self._by_method: dict[str, list[_CompiledRow]] = {}
        for row in sorted(rows, key=lambda row: "{" in row.pattern):
            for method in row.methods:
                self._by_method.setdefault(method, []).append(_CompiledRow.of(row))

    def find(self, method: str, path: str, root: str, slash: str) -> PathMatch | None:
        """Return the match of a path. ``root``: "/" for the rows below the host's root, else ""."""
        for compiled in self._by_method.get(method.upper(), ()):
            if compiled.row.is_from_root != bool(root):
                continue
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
"""The proxy's own listener.

A runner's base URL may end in the base path of any provider, or have none.
"""
