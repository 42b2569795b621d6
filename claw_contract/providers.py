"""providers.json v1 and v2: model providers and their keys.

Specification: docs/spec/contract.md "providers.json".

providers.json belongs to the operator and is only read. The proxy stores the state of a key in a
file of its own.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from claw_contract.base import Contract
from claw_contract.manifest import BaseUrl
from claw_contract.secret import Secret

type KeyState = Literal["ready", "cooldown", "dead", "disabled"]
type ProviderAuth = Literal["bearer", "x-api-key", "none"]
type ApiFormat = Literal["openai", "anthropic"]


class ProviderKey(Contract):
    """One key of a provider's pool."""

    id: str
    label: str = ""
    secret: Secret
    source: str = "file"
    state: KeyState = "ready"
    cooldown_until: str | None = None
    last_error_code: int | None = None
    added_at: str | None = None


class ProviderEntry(Contract):
    """One provider. Version 1 has ``api_key``, version 2 ``keys`` and ``active_key_id``."""

    base_url: BaseUrl | None = None
    auth: ProviderAuth | None = None
    api_format: ApiFormat | None = None
    api_key: Secret | None = None
    keys: tuple[ProviderKey, ...] = ()
    active_key_id: str | None = None


class Providers(Contract):
    """All of providers.json. A missing ``version`` is 1, as the original system writes it."""

    version: Literal[1, 2] = 1
    providers: Annotated[dict[str, ProviderEntry], Field(default_factory=dict)]


class KeyRecord(Contract):
    """One file of ``<auth dir>/key-states/``: a key that a provider rejected or throttled.

    The key is identified by its digest. ``retry_at``: when a dead key is tried again. ``scope``:
    the model, and the way of using it, for which the key is not used; None for all.
    """

    version: Literal[1] = 1
    provider: str
    key_id: str
    secret_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    state: Literal["dead", "cooldown"]
    scope: str | None = None
    cooldown_until: str | None = None
    retry_at: str | None = None
    last_error_code: int
    at: str
