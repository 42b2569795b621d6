"""The value of ``CLAW_STATE``: where the state is.

It is empty (memory), a file (SQLite), or a ``redis://`` or ``rediss://`` URL (Valkey or Redis). A
URL may contain a password, so all of it is a secret; only ``shown`` is printed.
"""

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from claw_contract.secret import Secret
from claw_contract.whole_numbers import whole_number

_SCHEMES = ("redis", "rediss")
_SYNTAX = "a file, or redis://[USER:PASSWORD@]HOST[:PORT][/DB] (rediss:// for TLS)"


class StoreError(Exception):
    """The state can't be read or written now.

    A turn goes on nevertheless, without its memory of earlier turns.
    """


@dataclass(frozen=True, slots=True)
class File:
    """A SQLite database; in memory if the path is empty."""

    path: str
    """Never that of a symbolic link, because the log and the locks are next to the real file."""

    @property
    def shown(self) -> str:
        return self.path or "memory"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server that several proxies share."""

    url: Secret
    shown: str
    secrets: tuple[Secret, ...] = ()
    """The parts of its URL to redact from our messages."""


type Place = File | ServerAddress


def parse_place(text: str) -> Place:
    """Parse the value of ``CLAW_STATE``.

    Raise ``ValueError`` with one line that contains no password.

    >>> parse_place("redis://:hush-hush@cache:6380/2").shown
    'redis://cache:6380/2'
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return File(os.path.realpath(text) if text else "")

    try:
        parts = urlsplit(text)
        port = parts.port or 6379
    except ValueError:
        raise ValueError(
            f"the port of the state's URL is not a number; the state is {_SYNTAX}"
        ) from None

    database = parts.path.removeprefix("/") or "0"
    is_known_scheme = scheme.lower() in _SCHEMES
    is_database = whole_number(database) is not None
    if not is_known_scheme or not parts.hostname or not is_database or parts.query:
        raise ValueError(f"the state is {_SYNTAX}")

    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    secrets = {text}
    if parts.password:
        secrets |= {parts.password, unquote(parts.password)}
    return ServerAddress(
        url=Secret(text),
        shown=f"{scheme.lower()}://{host}:{port}/{database}",
        secrets=tuple(Secret(secret) for secret in secrets),
    )
