"""providers.json: the model providers whose keys the pod gives its proxy (spec/contract.md "providers.json").

Rules. A key comes by ``cllama-env``, and goes into this file, which is the proxy's alone; the rest is its environment.
"""

from __future__ import annotations

from collections.abc import Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.grammar.pod import Setting
from claw_contract.known_providers import KNOWN_PROVIDERS, provider_of
from claw_contract.manifest import checked_base_url
from claw_contract.providers import ProviderEntry, ProviderKey, Providers
from claw_contract.secret import Secret


def without_keys(environment: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """The proxy's environment: what is no key of a provider."""
    return {name: setting for name, setting in environment.items() if provider_of(name) is None}


def model_providers(environment: Mapping[str, Setting], found: list[Diagnostic]) -> Providers | None:
    """Version 2 of the file; None when the pod gives no key and names no keyless provider. An empty value is no key."""
    entries: dict[str, ProviderEntry] = {}
    for name, known in KNOWN_PROVIDERS.items():
        keys = tuple(
            ProviderKey(id=f"seed:{variable}", label=variable, secret=Secret(setting.value), source="seed")
            for variable, setting in sorted(environment.items())
            if provider_of(variable) == name and setting.value
        )
        url = _base_url(environment.get(f"{known.env}_BASE_URL"), found)
        if keys or (known.auth == "none" and url is not None):
            entries[name] = ProviderEntry(
                base_url=known.base_url if url is None else url,
                auth=known.auth,
                api_format=known.api_format,
                keys=keys,
                active_key_id=keys[0].id if keys else None,
            )
    return Providers(version=2, providers=entries) if entries else None


def _base_url(setting: Setting | None, found: list[Diagnostic]) -> str | None:
    if setting is None or not setting.value:
        return None
    try:
        return checked_base_url(setting.value)
    except ValueError as error:
        found.append(codes.BAD_BASE_URL.at(setting.key, str(error)))
        return None
