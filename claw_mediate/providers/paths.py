"""The row of the known paths that a request is in, or its refusal.

docs/spec/mediation.md section 1. Deny by default.

At the proxy's own listener the host names no provider. There a path is first looked up in the
tables of all providers, and then in the table of the one that the request goes to.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.opened_paths import OpenedPath, find_credentials
from claw_contract.providers import ApiFormat
from claw_mediate.agents.directory import Agent
from claw_mediate.core.api_paths import find_kept, read_query, resolve_path
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.core.known_paths import (
    KNOWN_PATHS,
    PROXY_BASE,
    ApiBase,
    Family,
    KnownPath,
    PathMatch,
    family_of,
    find_known_path,
)
from claw_mediate.core.model_policy import Provider
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog

PATH_NOT_ALLOWED: Final = "path_not_allowed"
_MAX_SHOWN = 200  # Characters of a path in a message
BODYLESS: Final = frozenset({"GET", "HEAD"})
"""Methods whose body has no meaning (RFC 9110, 9.3).

A server that reads such a body would see another request than the one that was decided about.
"""
_OVERRIDE = re.compile(r"_method|x-http-method(?:-override)?|\$.*", re.IGNORECASE)
"""Members of a query by which a server reads another request than was decided about.

They are ``_method`` of Rails and PHP, and Google's ``$httpMethod``, ``$httpHeaders`` and ``$req``.
"""


_PLAIN_PATH = re.compile(r"[!-$&-~]*")  # Visible ASCII, without a percent sign

_SHARED_ROWS: Final = frozenset(KNOWN_PATHS["openai"]) & frozenset(KNOWN_PATHS["anthropic"])
"""Rows of both families, such as files and models.

At the proxy's own listener only the header ``anthropic-version`` tells whose they are.
"""


class PathTables:
    """The known paths of the configured providers, and those that the operator opened."""

    def __init__(
        self, registry: ProviderRegistry, opened: tuple[OpenedPath, ...], log: EventLog
    ) -> None:
        self._registry = registry
        self._opened = opened
        self._log = log

    def find(self, request: Request) -> PathMatch | None:
        """Return the row of a request at its host's provider; at the proxy's own listener, of any.

        None if it is in no row.
        """
        return self._find(self._base(request.host), request)

    def knows(self, request: Request) -> bool:
        """Return whether a request is in a row, or names a kept object.

        Every path of a kept object has an answer of its own.
        """
        if self.find(request) is not None:
            return True
        kept = find_kept(request.path)
        return kept is not None and kept.prefix.lower() in self._base(request.host).prefixes

    def _base(self, host: str | None) -> ApiBase:
        if host is None:
            return PROXY_BASE

        provider = self._registry.by_host_as_read(host)
        return PROXY_BASE if provider is None else _provider_base(provider)

    def find_at(self, provider: Provider, request: Request) -> PathMatch | None:
        """Return the row of a request at the provider that it goes to."""
        base = _provider_base(provider)
        if request.host is None:
            base = PROXY_BASE._replace(family=base.family)
        return self._find(base, request)

    def _find(self, base: ApiBase, request: Request) -> PathMatch | None:
        if "?" in request.path and _overrides_method(request.path):
            return None

        known = find_known_path(base, request.method.upper(), request.path)
        if known is None:
            return self._find_opened(base, request) if self._opened else None

        is_shared = base is PROXY_BASE and known.family == "openai" and known.row in _SHARED_ROWS
        return (self._find_of_anthropic(request) or known) if is_shared else known

    def _find_of_anthropic(self, request: Request) -> PathMatch | None:
        """Return Anthropic's row for a path that OpenAI has too.

        None if the request is not from a client of Anthropic's, or no such provider is usable.
        """
        if not request.header("anthropic-version"):
            return None

        providers = self._registry.all().values()
        if not any(each.is_usable for each in providers if each.api_format == "anthropic"):
            return None

        base = PROXY_BASE._replace(family="anthropic")
        return find_known_path(base, request.method.upper(), request.path)

    def _find_opened(self, base: ApiBase, request: Request) -> PathMatch | None:
        """Return a row of its own for a path that the operator opened."""
        method = request.method.upper()
        path = resolve_path(request.path)
        plain = path.lower()
        if not any(each.opens(method, plain) for each in self._opened):
            return None
        # Servers that decode a path twice, or cut it at a space, would see another one.
        if _PLAIN_PATH.fullmatch(path) is None:
            return None
        # No setting opens what mints credentials.
        if find_credentials(plain) is not None:
            return None

        asks_model = method not in BODYLESS and method != "DELETE"
        row = KnownPath((method,), path, "required" if asks_model else "nowhere", asks_model)
        family = base.family or "openai"
        if request.host is not None or plain.startswith("/api/"):
            # It is below the host's root, as a pattern that begins with two slashes says.
            return PathMatch(family, row._replace(pattern=f"/{path}"), {}, quote(path))

        # Any other path at the proxy's own listener is below the base path of a provider.
        prefix = next((each for each in base.prefixes if each and plain.startswith(f"{each}/")), "")
        return PathMatch(family, row, {}, quote(path[len(prefix) :]), prefix)

    def canonical(self, request: Request, match: PathMatch | None) -> Request:
        """Return the request with its path in the one spelling that is decided about and sent.

        ``match``: what ``find`` returned for it.
        """
        if match is None:
            return request

        # The base path has one spelling, too. The root and the provider's own base path stay. Any
        # other becomes ``/v1``; at the proxy's own listener, no provider is known.
        base = self._base(request.host)
        is_provider_known = base.family is not None
        own_base_path = base.prefixes[0] if is_provider_known else ""
        prefix = match.prefix if match.prefix in ("", own_base_path) else "/v1"

        _, mark, query = request.path.partition("?")
        path = f"{prefix}{match.path}{mark}{query}"
        return request if path == request.path else replace(request, path=path)

    def refuse(self, agent: Agent, request: Request) -> RunnerResponse:
        """Refuse a request that is in no row, naming the path and the remedy, and log it."""
        method = request.method.upper()
        path = resolve_path(request.path)[:_MAX_SHOWN]
        self._log.event(
            "intervention", agent, intervention=PATH_NOT_ALLOWED, reason=f"{method} {path}"
        )

        # The shape of the error is that of the host's dialect, whatever the path is.
        shape = request.path
        if request.host is not None:
            provider = self._registry.by_host_as_read(request.host)
            if provider is not None and provider.api_format == "anthropic":
                shape = "/messages"

        message = f"{method} {path} is not allowed here: {_remedy(request, path)}"
        return refuse(shape, 403, PATH_NOT_ALLOWED, message)

    def refuse_body(self, agent: Agent, request: Request) -> RunnerResponse:
        """Refuse a body of a method that has none (``BODYLESS``), and log it."""
        method = request.method.upper()
        reason = f"{method} {request.path[:_MAX_SHOWN]}"
        self._log.event("intervention", agent, intervention="body_not_allowed", reason=reason)
        return refuse(
            request.path,
            400,
            "invalid_request",
            f"a {method} has no body; send the request without one",
        )


def _remedy(request: Request, path: str) -> str:
    """Return why a path is not allowed, and what the operator can do."""
    if "?" in request.path and _overrides_method(request.path):
        return "its query would make it another request"

    named = find_credentials(path)
    if named is not None:
        return f"{named!r} mints or lists credentials, and no setting opens that"

    entry = f"{request.method.upper()} {path.lower()}"
    return (
        f"the operator can open it with cllama: {{paths: [{entry!r}]}} in the pod, or "
        f"CLLAMA_PATHS={entry!r}"
    )


def provider_target(provider: Provider, match: PathMatch, path: str) -> tuple[str, str]:
    """Return (the base URL that a request goes to, the path below it).

    The path is the row's, with the query of the request's own ``path``.
    """
    split = urlsplit(provider.base_url)
    _, mark, query = path.partition("?")
    target = f"{match.below(split.path)}{mark}{query}"
    if match.row.is_from_root:
        return split._replace(path="").geturl(), target
    return provider.base_url, target


def _overrides_method(path: str) -> bool:
    return any(_OVERRIDE.fullmatch(name) for name, _ in read_query(path))


def _provider_base(provider: Provider) -> ApiBase:
    return _base_of(provider.name, provider.api_format, provider.base_url)


@lru_cache(maxsize=64)
def _base_of(name: str, api_format: ApiFormat, base_url: str) -> ApiBase:
    """Return where a provider's API begins: its own base path, that of its name, or ``/v1``."""
    family: Family = family_of(name, api_format)
    own = urlsplit(base_url).path
    usual = ""
    known = KNOWN_PROVIDERS.get(name)
    if known is not None and known.base_url:
        usual = urlsplit(known.base_url).path

    if not own:
        # Without a base path of its own, a provider takes paths from the root, too.
        prefixes = [usual, "/v1", ""]
    elif usual:
        prefixes = [own, usual, "/v1"]
    else:
        prefixes = [own, "/v1"]
    return ApiBase(family, tuple(dict.fromkeys(prefixes)))
