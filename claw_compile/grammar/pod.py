"""A pod file as values: what it says, with places, before any default is applied.

Rules. Absent is ``None``; ``[]`` and ``null`` are there and empty (spec/compile.md: absent inherits, empty suppresses).
What Compose owns (``environment``, ``expose``, ``ports``) stays a tree: it is read when a grant needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.reading.node import Node, ScalarNode
from claw_contract.manifest import Policy


@dataclass(frozen=True)
class Spread:
    """``...``: the pod's defaults belong here."""

    span: Span


@dataclass(frozen=True)
class All:
    """``allow: all``."""

    span: Span


@dataclass(frozen=True)
class Grant:
    """One entry of ``tools``."""

    service: ScalarNode
    allow: All | tuple[ScalarNode, ...]
    deny: tuple[ScalarNode, ...]
    span: Span


@dataclass(frozen=True)
class Surface:
    """One entry of ``surfaces``: ``service://target``."""

    scheme: str
    target: str
    span: Span


@dataclass(frozen=True)
class Listed[T]:
    """A list that is there; ``key`` is the place of its key."""

    key: Span
    entries: tuple[T | Spread, ...]


@dataclass(frozen=True)
class Cllama:
    """Which proxies stand before the agent; none when ``cllama`` is ``null`` or ``[]``."""

    key: Span
    proxies: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """``tool-policy``, replaced whole."""

    key: Span
    policy: Policy


@dataclass(frozen=True)
class ProviderAuth:
    """``x-claw.auth`` of a provider: the credential is in its environment, or in the proxy's secrets directory."""

    type: Literal["none", "bearer", "header"]
    span: Span
    env: ScalarNode | None = None
    secret: ScalarNode | None = None
    header: ScalarNode | None = None


@dataclass(frozen=True)
class ServiceSpec:
    """One Compose service, with its ``x-claw``. It is an agent when it has ``agent``.

    ``names_descriptor`` without ``describe_file``: the name could not be read, which is reported already.
    """

    name: ScalarNode
    agent: ScalarNode | None = None
    runner: str = "generic"
    cllama: Cllama | None = None
    tools: Listed[Grant] | None = None
    surfaces: Listed[Surface] | None = None
    limits: Limits | None = None
    describe_file: ScalarNode | None = None
    names_descriptor: bool = False
    base_url: ScalarNode | None = None
    auth: ProviderAuth | None = None
    wraps_stdio: bool = False
    environment: Node | None = None
    expose: Node | None = None
    ports: Node | None = None


@dataclass(frozen=True)
class PodSpec:
    """The whole pod file."""

    file: str
    name: ScalarNode | None
    cllama: Cllama | None
    tools: Listed[Grant] | None
    surfaces: Listed[Surface] | None
    limits: Limits | None
    strict_surfaces: bool
    services: tuple[ServiceSpec, ...]

    def service(self, name: str) -> ServiceSpec | None:
        return next((service for service in self.services if service.name.text == name), None)

    @property
    def agents(self) -> tuple[ServiceSpec, ...]:
        """By name, so that no output depends on the order of the file."""
        agents = (service for service in self.services if service.agent is not None)
        return tuple(sorted(agents, key=lambda service: service.name.text))
