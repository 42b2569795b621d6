"""What ``CLAW_STATE`` names: nothing (memory), a file (SQLite), or a server (``redis://`` or ``rediss://``: Valkey or Redis).

A server's URL may hold its password, so the whole of it is a secret; ``shown`` is what may be printed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from claw_contract.secret import Secret

_SCHEMES = ("redis", "rediss")
_TAKES = "a file, or redis://[USER:PASSWORD@]HOST[:PORT][/DB] (rediss:// for TLS)"


class StoreError(Exception):
    """The state can't be read or written now. It costs the memory of earlier turns, never the turn."""


@dataclass(frozen=True, slots=True)
class File:
    """A database of SQLite; without a path, in memory. Never the name of a link to it: what belongs to it stands beside it."""

    path: str

    @property
    def shown(self) -> str:
        return self.path or "memory"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that several proxies share."""

    url: Secret
    shown: str
    secrets: tuple[Secret, ...] = ()
    """What of the URL no line of ours may hold."""


type Place = File | Server


def parse_place(text: str) -> Place:
    """Raises ``ValueError`` with one line, which never holds what may be a password.

    >>> place("redis://:hush-hush@cache:6380/2").shown
    'redis://cache:6380/2'
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return File(os.path.realpath(text) if text else "")
    try:
        parts = urlsplit(text)
        port = parts.port or 6379
    except ValueError:
        raise ValueError(f"the port of the state's URL is no number; the state is {_TAKES}") from None
    database = parts.path.removeprefix("/") or "0"
    if scheme.lower() not in _SCHEMES or not parts.hostname or not database.isdecimal() or parts.query:
        raise ValueError(f"the state is {_TAKES}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    told = (text, *((parts.password, unquote(parts.password)) if parts.password else ()))
    return Server(
        Secret(text), f"{scheme.lower()}://{host}:{port}/{database}", tuple(Secret(value) for value in set(told))
    )
