"""Paths of providers that an operator opens, besides the known ones (docs/settings.md).

An entry is ``METHOD /path``, or ``METHOD /prefix*``. ``claw_mediate.core.known_paths`` denies by
default; this is the grammar of the exceptions, which the compiler and the proxy share. A path that
mints or lists credentials can't be opened, whatever the entry says: an agent would get a credential
that is not its own token.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
EXAMPLE: Final = "POST /v1/fine_tuning/*"

_ENTRY = re.compile(r"([A-Z]+) (/[!-~]*)")
_ODD = re.compile(r"[%?#;\\*,]|//|/\.\.?(?:/|$)")
"""Text that no path has once it is normalized, as paths are compared."""

_STEM = re.compile(
    r"secret|credential|passw|oauth|vault|organi[sz]ation|certificat|webhook|federation|enrol|identity"
    r"|service[_-]?accounts?|api[_-]?keys?|(?:auth|access|refresh|ephemeral|bearer|session|client)[_-]?tokens?"
)
"""Parts of a segment that name credentials, or the administration of an account."""
_WORDS: Final = frozenset(
    {
        *("key", "keys", "token", "auth", "admin", "login", "signin", "sso", "saml", "scim"),
        *("invite", "invites", "invitations", "accounts", "members", "roles", "byok"),
    }
)
"""Words that do so: a segment is split into words at every other character."""
_SEGMENTS: Final = frozenset({"tokens", "personal_access"})
"""Whole segments that do so: ``tokens`` does, ``count_tokens`` does not."""
_LIVE = re.compile(r"/(?:realtime|chatkit|live)/(?:[^/]+/)*[^/]*sessions?(?:/|$)")
"""Sessions of protocols that bypass the proxy: the answer has an ephemeral credential for one."""


class OpenedPathError(ValueError):
    """An entry that is malformed, or names a path that can't be opened.

    ``reason`` does not quote the entry, whose text may come from a variable.
    """

    def __init__(self, entry: str, reason: str) -> None:
        super().__init__(f"{entry!r}: {reason}")
        self.reason = reason


class OpenedPath(NamedTuple):
    """One entry. ``path`` is in lower case, as paths are compared."""

    method: str
    path: str
    is_prefix: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``METHOD /prefix*``. Raise ``OpenedPathError``."""
        match = _ENTRY.fullmatch(text.strip())
        if match is None or match[1] not in METHODS:
            methods = ", ".join(METHODS)
            raise OpenedPathError(
                text, f"this is no METHOD /prefix* such as {EXAMPLE!r}; the methods are {methods}"
            )

        is_prefix = match[2].endswith("*")
        path = match[2].removesuffix("*")
        if _ODD.search(path):
            raise OpenedPathError(
                text, "a path is written plainly, without escapes and a query, '*' only at its end"
            )

        if (named := find_credentials(path)) is not None:
            raise OpenedPathError(
                text, f"{named!r} mints or lists credentials, which can't be opened"
            )

        plain = path if is_prefix else path.rstrip("/") or "/"
        return cls(match[1], plain.lower(), is_prefix)

    def opens(self, method: str, path: str) -> bool:
        """Return whether this entry opens a request; its path is normalized, and in lower case."""
        if method != self.method:
            return False
        if self.is_prefix:
            return path.startswith(self.path)
        return path == self.path


def parse_opened_paths(text: str) -> tuple[OpenedPath, ...]:
    """Parse a list that is separated by commas. Raise ``OpenedPathError``.

    >>> parse_opened_paths("POST /v1/Skills*")
    (OpenedPath(method='POST', path='/v1/skills', is_prefix=True),)
    """
    return tuple(OpenedPath.parse(part) for part in text.split(",") if part.strip())


def write_opened_paths(entries: Iterable[str]) -> str:
    """Return the value of ``CLLAMA_PATHS`` for entries that were parsed before."""
    return ", ".join(dict.fromkeys(entry.strip() for entry in entries))


def find_credentials(path: str) -> str | None:
    """Return the segment by which a path mints or lists credentials, or administers an account.

    Return None for a path without one.

    >>> find_credentials("/v1/organization/costs"), find_credentials("/v1/keys")
    ('organization', 'keys')
    >>> find_credentials("/v1/chat/keywords"), find_credentials("/v1/x/count_tokens")
    (None, None)
    >>> find_credentials("/v1/realtime/transcription_sessions")
    'transcription_sessions'
    >>> find_credentials("/v1alpha/authTokens")
    'authtokens'
    """
    lowered = path.lower()
    for segment in lowered.split("/"):
        words = re.split(r"[^a-z0-9]+", segment)
        has_word = not _WORDS.isdisjoint(words)
        if _STEM.search(segment) or has_word or segment in _SEGMENTS:
            return segment

    live = _LIVE.search(lowered)
    if live is None:
        return None
    return live[0].strip("/").rpartition("/")[2]
