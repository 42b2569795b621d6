"""The model providers that need no entry in providers.json, and the variables that hold their keys (spec/contract.md).

The proxy reaches them; the compiler makes sure that no agent holds one of these variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from claw_contract.providers import ApiFormat, ProviderAuth


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A provider as it is without a word of the operator's. ``keys`` are variables, each also with ``_1``, ``_2``, …"""

    base_url: str | None
    auth: ProviderAuth
    api_format: ApiFormat
    env: str
    """What its environment names begin with: ``<env>_BASE_URL``."""
    keys: tuple[str, ...] = ()


_GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
_ANTHROPIC = "https://api.anthropic.com/v1"
_GATEWAY = "https://ai-gateway.vercel.sh/v1"
KNOWN_PROVIDERS: Final[dict[str, KnownProvider]] = {
    "openai": KnownProvider("https://api.openai.com/v1", "bearer", "openai", "OPENAI", ("OPENAI_API_KEY",)),
    "anthropic": KnownProvider(_ANTHROPIC, "x-api-key", "anthropic", "ANTHROPIC", ("ANTHROPIC_API_KEY",)),
    "openrouter": KnownProvider(
        "https://openrouter.ai/api/v1", "bearer", "openai", "OPENROUTER", ("OPENROUTER_API_KEY",)
    ),
    "google": KnownProvider(_GOOGLE, "bearer", "openai", "GOOGLE", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "xai": KnownProvider("https://api.x.ai/v1", "bearer", "openai", "XAI", ("XAI_API_KEY",)),
    "ai-gateway": KnownProvider(_GATEWAY, "bearer", "openai", "AI_GATEWAY", ("AI_GATEWAY_API_KEY",)),
    "ollama": KnownProvider(None, "none", "openai", "OLLAMA"),
}
KEY_VARIABLES: Final = tuple(name for known in KNOWN_PROVIDERS.values() for name in known.keys)


def provider_of(variable: str) -> str | None:
    """The provider whose key a variable holds: ``OPENAI_API_KEY``, ``OPENAI_API_KEY_1``, …

    >>> provider_of("OPENAI_API_KEY_2"), provider_of("OPENAI_API_KEYS")
    ('openai', None)
    """
    for name, known in KNOWN_PROVIDERS.items():
        for key in known.keys:
            number = variable.removeprefix(f"{key}_")
            if variable == key or (number != variable and number.isdecimal() and number.isascii()):
                return name
    return None
