"""The model providers that need no entry in providers.json, and the variables that hold their keys.

Specification: docs/spec/contract.md.

The proxy reaches these providers; the compiler checks that no agent has one of their variables.
"""

import re
from dataclasses import dataclass
from typing import Final

from claw_contract.providers import ApiFormat, ProviderAuth


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """The defaults of a provider."""

    base_url: str | None
    auth: ProviderAuth
    api_format: ApiFormat
    env: str
    """The prefix of its variables, such as ``<env>_BASE_URL``."""
    keys: tuple[str, ...] = ()
    """Variables that hold a key. The name of each may be followed by ``_1``, ``_2``, …"""


_GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
_ANTHROPIC = "https://api.anthropic.com/v1"
_GATEWAY = "https://ai-gateway.vercel.sh/v1"
KNOWN_PROVIDERS: Final[dict[str, KnownProvider]] = {
    "openai": KnownProvider(
        "https://api.openai.com/v1", "bearer", "openai", "OPENAI", ("OPENAI_API_KEY",)
    ),
    "anthropic": KnownProvider(
        _ANTHROPIC, "x-api-key", "anthropic", "ANTHROPIC", ("ANTHROPIC_API_KEY",)
    ),
    "openrouter": KnownProvider(
        "https://openrouter.ai/api/v1", "bearer", "openai", "OPENROUTER", ("OPENROUTER_API_KEY",)
    ),
    "google": KnownProvider(
        _GOOGLE, "bearer", "openai", "GOOGLE", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "xai": KnownProvider("https://api.x.ai/v1", "bearer", "openai", "XAI", ("XAI_API_KEY",)),
    "ai-gateway": KnownProvider(
        _GATEWAY, "bearer", "openai", "AI_GATEWAY", ("AI_GATEWAY_API_KEY",)
    ),
    "ollama": KnownProvider(None, "none", "openai", "OLLAMA"),
}
KEY_VARIABLES: Final = tuple(name for known in KNOWN_PROVIDERS.values() for name in known.keys)
OTHER_KEY_VARIABLES: Final = (
    # Read by runners and SDKs in place of a key, and the seeds of the original system.
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_API_KEY",
    "CODEX_API_KEY",
    "PROVIDER_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "VERCEL_AI_GATEWAY_API_KEY",
    "OLLAMA_API_KEY",
    "GROK_API_KEY",
    # Clouds that sell the same models: Bedrock, Vertex, Azure, Foundry.
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_AD_TOKEN",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "VERTEX_API_KEY",
    # Providers that a runner reaches by itself.
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "COHERE_API_KEY",
    "CO_API_KEY",
    "TOGETHER_API_KEY",
    "FIREWORKS_API_KEY",
    "PERPLEXITY_API_KEY",
    "CEREBRAS_API_KEY",
    "MOONSHOT_API_KEY",
    "ZAI_API_KEY",
)
"""Variables that hold a credential of other model providers."""
_OTHERS: Final = frozenset(OTHER_KEY_VARIABLES)
_NUMBER = re.compile(r"_[0-9]+$")
KEY_SHAPE: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-(?:ant|or|proj)-[A-Za-z0-9_-]{4,}|sk-[A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{8,}"
    r"|xai-[A-Za-z0-9_-]{8,}|gsk_[A-Za-z0-9]{8,}|vck_[A-Za-z0-9]{8,}|AKIA[A-Z0-9]{12,})"
)
"""The form of keys of Anthropic, OpenAI, OpenRouter, Google, xAI, Groq, Vercel and AWS."""


def provider_of(variable: str) -> str | None:
    """Return the provider whose key a variable holds: ``OPENAI_API_KEY``, ``OPENAI_API_KEY_1``, …

    >>> provider_of("OPENAI_API_KEY_2"), provider_of("OPENAI_API_KEYS")
    ('openai', None)
    """
    for name, known in KNOWN_PROVIDERS.items():
        for key in known.keys:
            number = variable.removeprefix(f"{key}_")
            is_numbered = number != variable and number.isdecimal() and number.isascii()
            if variable == key or is_numbered:
                return name
    return None


def is_key_variable(variable: str) -> bool:
    """Return True if a variable of that name holds a credential of any model provider."""
    return provider_of(variable) is not None or _NUMBER.sub("", variable) in _OTHERS
