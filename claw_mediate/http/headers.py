"""Headers of requests to providers and services (docs/spec/mediation.md section 2)."""

import base64
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

import httpx2

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import Provider

type Headers = list[tuple[str, str]]
type RawHeaders = list[tuple[bytes, bytes]]


def _spellings(name: str) -> frozenset[str]:
    """Return a header's name with a dash or an underscore at the place of each of its dashes.

    CGI and WSGI take both for one.

    >>> sorted(_spellings("api-key"))
    ['api-key', 'api_key']
    """
    first, *others = name.split("-")
    spellings = [first]
    for word in others:
        spellings = [f"{each}{mark}{word}" for each in spellings for mark in "-_"]
    return frozenset(spellings)


_ACCOUNTS = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
_KEYS = frozenset(
    {
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "proxy-authorization",
        "cookie",
        # LiteLLM and Azure read these before ours.
        "x-litellm-api-key",
        "ocp-apim-subscription-key",
    }
)
CREDENTIALS = frozenset(chain.from_iterable(map(_spellings, _ACCOUNTS | _KEYS)))
"""Headers that may carry the agent's credential, or name the account of the provider's key.

A wrong account is a 401 too, and an agent could disable the pod's key with it.
"""
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    }
)
_MESSAGE = frozenset({"host", "content-length", "content-encoding", "accept-encoding", "expect"})


_OVERRIDES = (
    "x-http-method-override", "x-http-method", "x-method-override",
    "x-method", "method-override", "x-original-method", "x-forwarded-method",
    "x-original-url", "x-original-uri", "x-original-path", "x-rewrite-url", "x-override-url",
    "x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix",
    "x-envoy-original-path", "x-real-path",
    "forwarded", "x-forwarded-host", "x-forwarded-server",
    "x-original-host", "x-http-host-override", "x-host",
)  # fmt: skip
OVERRIDES = frozenset(chain.from_iterable(map(_spellings, _OVERRIDES)))
"""Headers by which a server takes a request for another one, which nobody decided about.

They name another method, path or host.
"""
_NOT_END_TO_END = _HOP_BY_HOP | _MESSAGE
_NEVER_SENT = CREDENTIALS | OVERRIDES | _NOT_END_TO_END


JSON: Final = "application/json"
_SOUND_JSON = re.compile(r'application/json(?:; ?charset="?utf-8"?)?', re.IGNORECASE)


def json_type(values: Sequence[str]) -> str | None:
    """Return the content type to send with a body that was read as JSON.

    None if the runner's own says just that, or if there is none. A server that took the body for a
    form, or for text in UTF-7, would find another request in the same bytes.
    """
    is_sound = all(_SOUND_JSON.fullmatch(value.strip()) for value in values)
    if is_sound and len(values) <= 1:
        return None
    return JSON


def of_json(headers: Headers) -> Headers:
    """Return the headers of a message of our own, whose body is JSON."""
    values = [value for name, value in headers if name.lower() == "content-type"]
    if values and json_type(values) is None:
        return headers

    others = [pair for pair in headers if pair[0].lower() != "content-type"]
    return [*others, ("content-type", JSON)]


class ResponseHeaders:
    """The headers of a response as text; names in lower case."""

    def __init__(self, pairs: Headers) -> None:
        self._pairs = pairs

    def get[D](self, name: str, default: D) -> str | D:
        """Return a header's values, joined by commas; ``default`` if there is none."""
        values = self.get_list(name)
        if not values:
            return default
        return ", ".join(values)

    def get_list(self, name: str) -> list[str]:
        return [value for known, value in self._pairs if known == name]

    def multi_items(self) -> Headers:
        """Return the headers as they came: a repeated one several times."""
        return self._pairs

    def items(self) -> Headers:
        """Return the headers, a repeated one once, its values joined by commas."""
        names = {name for name, _ in self._pairs}
        if len(names) == len(self._pairs):
            return self._pairs

        in_order = dict.fromkeys(name for name, _ in self._pairs)
        return [(name, self.get(name, "")) for name in in_order]


def decode_headers(fields: RawHeaders) -> Headers:
    """Return the headers of a response as text; names in lower case."""
    try:
        return [(name.decode("ascii").lower(), value.decode("ascii")) for name, value in fields]
    except UnicodeDecodeError:
        return httpx2.Headers(fields).multi_items()


TURN_STATE = "x-codex-turn-state"
"""A response's header that OpenAI's provider for Codex wants back with later requests of a turn."""
_FOR_RUNNER = frozenset({"x-request-id", "x-reasoning-included", "x-models-etag"})
_FOR_RUNNER_PREFIXES = ("openai-", "x-ratelimit-", "x-codex-")
"""The beginnings of more names of headers that the runner gets with a mediated response.

They are ids for the provider's support, limits, and what Codex reads.
"""
_MAX_VALUE = 4096  # Characters


def runner_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers of a provider's response that the runner gets; names in lower case."""
    shown: Headers = []
    for name, value in headers:
        known = name.lower()
        if known not in _FOR_RUNNER and not known.startswith(_FOR_RUNNER_PREFIXES):
            continue
        if len(value) <= _MAX_VALUE and value.isascii():
            shown.append((known, value))
    return tuple(shown)


def ascii_headers(headers: Headers) -> RawHeaders:
    """Encode headers of our own.

    Raise ``UnicodeError`` if one is not ASCII, as a configured credential may be.
    """
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]


def raw_headers(headers: Headers) -> RawHeaders:
    """Return the original bytes of a runner's headers.

    mitmproxy decodes bytes that are not UTF-8 as surrogates.
    """
    return [
        (name.encode(errors="surrogateescape"), value.encode(errors="surrogateescape"))
        for name, value in headers
    ]


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return a message's headers without those of its connection and of its body's form."""
    return [(name, value) for name, value in headers if name.lower() not in _NOT_END_TO_END]


def names_containing(headers: Iterable[tuple[str, str]], secret: Secret) -> tuple[str, ...]:
    """Return the names of all headers whose value contains the secret, plain or encoded."""
    pairs = [*headers]
    all_values = "\n".join(value for _, value in pairs)
    if not contains_secret(all_values, secret):
        return ()
    return tuple(name for name, value in pairs if contains_secret(value, secret))


def contains_secret(text: str, secret: Secret) -> bool:
    """Return whether a text contains the secret, plain or in an encoding known to the redactor."""
    return secret.reveal() in text or _redactor_of(secret).text(text) != text


@lru_cache(maxsize=1024)
def _redactor_of(secret: Secret) -> Redactor:
    """Return the redactor of one secret.

    It is kept, because each request of an agent is searched for the same secrets.
    """
    return Redactor([secret])


def provider_headers(headers: Headers, secret: Secret) -> Headers:
    """Return the runner's headers for a provider.

    They are without credentials, overrides, and those of the runner's own connection and message;
    and without any that contains ``secret``, which is the agent's own.
    """
    rest = [(name, value) for name, value in headers if name.lower() not in _NEVER_SENT]
    hidden = {name.lower() for name in names_containing(rest, secret)}
    if not hidden:
        return rest
    return [(name, value) for name, value in rest if name.lower() not in hidden]


def provider_auth(provider: Provider, key: Secret | None) -> Headers:
    """Return the provider's key as a header of its scheme; [] if it takes none."""
    if key is None or provider.auth == "none":
        return []
    if provider.auth == "x-api-key":
        return [("x-api-key", key.reveal())]
    return [bearer(key)]


def bearer(token: Secret) -> tuple[str, str]:
    return "authorization", f"Bearer {token.reveal()}"


def basic(username: str, password: Secret) -> tuple[str, str]:
    token = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
    return "authorization", f"Basic {token}"
