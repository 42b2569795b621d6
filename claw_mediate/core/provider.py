"""A provider as it is configured, and one of its models: values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from claw_contract.providers import ApiFormat, ProviderAuth
from claw_contract.secret import Secret

type KeyState = Literal["ready", "cooldown", "dead"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a pool. ``rests_until``: what the operator's file says of it, POSIX time; for ever where it is dead."""

    id: str
    secret: Secret
    rests_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider as configured now."""

    name: str
    base_url: str
    auth: ProviderAuth
    api_format: ApiFormat
    keys: tuple[Key, ...]

    @property
    def host(self) -> str:
        return (urlsplit(self.base_url).hostname or "").lower()

    @property
    def usable(self) -> bool:
        """Whether there is anything to ask it with."""
        return self.auth == "none" or any(key.rests_until < math.inf for key in self.keys)

    def below(self, path: str) -> str:
        """Path and query below the base URL, which ends in its own prefix (``/v1``, ``/api/v1``) or has none."""
        own = urlsplit(self.base_url).path
        for prefix in (own, "/v1") if own else ():
            if path.startswith((f"{prefix}/", f"{prefix}?")):
                return path.removeprefix(prefix)
        return path


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that a request may be asked of. ``model``: its name there."""

    provider: Provider
    model: str

    @property
    def place(self) -> tuple[str, str]:
        return self.provider.name, self.model
