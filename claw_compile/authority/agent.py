"""An agent as it is resolved: what it may do, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.grammar.pod import Delivery, Grant, Mode, ServiceSpec, Surface
from claw_contract.context_files import ContextBlock
from claw_contract.descriptor import DescriptorMemory, DescriptorTool
from claw_contract.manifest import Policy
from claw_contract.metadata import AllowedModel, Budget


@dataclass(frozen=True)
class GrantedTool:
    """A tool that an agent may use, and where its service stands."""

    service: str
    tool: DescriptorTool


@dataclass(frozen=True)
class ResolvedFeed:
    """A feed with its service; ``path`` has the agent's id filled in. ``ttl`` in seconds, None: the proxy's default."""

    name: str
    service: str
    path: str
    ttl: int | None
    description: str
    span: Span


@dataclass(frozen=True)
class SkillFile:
    """A skill as the agent gets it. ``origin`` is the file or the service that it is from; ``name`` its base name."""

    name: str
    description: str
    content: bytes
    origin: str


@dataclass(frozen=True)
class MemoryRelation:
    """Which service remembers for the agent, and by which paths."""

    service: str
    timeout_ms: int
    paths: DescriptorMemory
    span: Span


@dataclass(frozen=True)
class Agent:
    """One agent, of ``count`` perhaps, with its authority. ``takes_defaults``: some grants are ``tools-defaults``."""

    spec: ServiceSpec
    id: str
    has_proxy: bool
    grants: tuple[Grant, ...]
    surfaces: tuple[Surface, ...]
    tools: tuple[GrantedTool, ...]
    policy: Policy
    takes_defaults: bool
    ordinal: int | None = None
    mode: Mode = "base-url"
    delivery: Delivery = "mediated"
    feeds: tuple[ResolvedFeed, ...] = ()
    skills: tuple[SkillFile, ...] = ()
    models: tuple[AllowedModel, ...] = ()
    budget: Budget | None = None
    memory: MemoryRelation | None = None
    blocks: tuple[ContextBlock, ...] = ()
    timezone: str = "UTC"

    @property
    def providers(self) -> tuple[str, ...]:
        return tuple(sorted({granted.service for granted in self.tools}))


@dataclass(frozen=True)
class Resolved:
    agents: tuple[Agent, ...]
