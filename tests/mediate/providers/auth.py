"""An auth directory, and the real registry that reads it, with a clock of the test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claw_contract.log import COMMON
from claw_mediate.core.model_policy import PoolKey, Provider
from claw_mediate.providers.registry import AuthPaths as AuthDirectories
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known


class Auth:
    """The directory, the log's events, and the time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[dict[str, Any]] = []
        self.clock = 1_800_000_000.0

    def write(self, document: Any) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        staged = self.directory / "staged"
        staged.write_text(text, encoding="utf-8")
        staged.rename(self.directory / "providers.json")

    def registry(
        self,
        env: dict[str, str] | None = None,
        hosts: dict[str, str] | None = None,
        look_seconds: float = 0.0,
    ) -> ProviderRegistry:
        return ProviderRegistry(
            AuthDirectories(self.directory, self.directory / "key-states"),
            hosts or {},
            EventLog(lambda line: self.events.append(known(line))),
            env or {},
            lambda: self.clock,
            look_seconds,
        )

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of that type, without the members that every line has."""
        return [
            {name: value for name, value in event.items() if name not in COMMON}
            for event in self.events
            if event["type"] == kind
        ]


def keys(provider: Provider) -> list[str]:
    return [key.secret.reveal() for key in provider.keys]


def ready(registry: ProviderRegistry, name: str = "openai", model: str = "gpt") -> list[str]:
    return [
        key.secret.reveal()
        for key in registry.ready(registry.all()[name], model)
        if key is not None
    ]


def key(registry: ProviderRegistry, secret: str, name: str = "openai") -> tuple[Provider, PoolKey]:
    provider = registry.all()[name]
    return provider, next(key for key in provider.keys if key.secret.reveal() == secret)
