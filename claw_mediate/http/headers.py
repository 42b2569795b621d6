"""What of a runner's headers may go on to a provider, and of a provider's back to the runner (spec section 2)."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import Provider

type Headers = list[tuple[str, str]]
type RawHeaders = list[tuple[bytes, bytes]]

_ACCOUNTS = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
CREDENTIALS = _ACCOUNTS | {"authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
"""Every header that may carry the agent's credential, or say whose account the provider's key is of: a wrong account is a 401
too, and an agent could kill the pod's key with it.
"""
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"}
)
_MESSAGE = frozenset({"host", "content-length", "content-encoding", "accept-encoding", "expect"})


def in_ascii(headers: Headers) -> RawHeaders:
    """Headers of our own. Raises ``UnicodeError`` for what is none, as a credential may be."""
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]


def as_read(headers: Headers) -> RawHeaders:
    """A runner's headers, which may hold any bytes: mitmproxy shows them as surrogates."""
    return [(name.encode(errors="surrogateescape"), value.encode(errors="surrogateescape")) for name, value in headers]


def holding(headers: Iterable[tuple[str, str]], secret: Secret) -> tuple[str, ...]:
    """The names of headers whose value holds the secret, whatever they are called, as it is or packed."""
    named = [*headers]
    if not tells("\n".join(value for _, value in named), secret):
        return ()
    return tuple(name for name, value in named if tells(value, secret))


def tells(text: str, secret: Secret) -> bool:
    """Whether a text holds the secret in a form that a peer could read."""
    return secret.reveal() in text or Redactor([secret]).text(text) != text


def for_provider(headers: Headers, secret: Secret) -> Headers:
    """The runner's headers without its credentials, and without those that belong to its own connection and message."""
    left_out = CREDENTIALS | _HOP_BY_HOP | _MESSAGE | {name.lower() for name in holding(headers, secret)}
    return [(name, value) for name, value in headers if name.lower() not in left_out]


def provider_auth(provider: Provider, key: Secret | None) -> Headers:
    """The provider's credential in the provider's scheme."""
    if key is None or provider.auth == "none":
        return []
    return [("x-api-key", key.reveal())] if provider.auth == "x-api-key" else [bearer(key)]


def bearer(token: Secret) -> tuple[str, str]:
    return "authorization", f"Bearer {token.reveal()}"


def basic(username: str, password: Secret) -> tuple[str, str]:
    token = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
    return "authorization", f"Basic {token}"
