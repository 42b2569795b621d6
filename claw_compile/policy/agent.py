"""A resolved agent: what it may do, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Span
from claw_compile.grammar.pod import CllamaSetting, Grant, Mode, ProxyVariable, ServiceSpec, Surface
from claw_contract.context_files import ContextBlock
from claw_contract.descriptor import DescriptorMemory, DescriptorTool
from claw_contract.manifest import Delivery, Policy
from claw_contract.metadata import AllowedModel, Budget


@dataclass(frozen=True)
class GrantedTool:
    service: str
    tool: DescriptorTool


@dataclass(frozen=True)
class ResolvedFeed:
    """A feed with its service. ``{claw_id}`` is replaced by the agent's id in name and path.

    ``ttl`` is in seconds; None is the proxy's default.
    """

    name: str
    service: str
    path: str
    ttl: int | None
    description: str
    span: Span


@dataclass(frozen=True)
class MemoryRelation:
    service: str
    timeout_ms: int
    paths: DescriptorMemory
    span: Span


@dataclass(frozen=True)
class Agent:
    """One agent with its permissions, after defaults are expanded.

    A service with ``count`` makes several, each with an ``ordinal``. ``policy`` is the limits of a
    turn. ``inherits`` has the keys of the pod's defaults that reach the agent.
    """

    spec: ServiceSpec
    id: str
    cllama: CllamaSetting | None
    grants: tuple[Grant, ...]
    surfaces: tuple[Surface, ...]
    tools: tuple[GrantedTool, ...]
    policy: Policy
    inherits: frozenset[str]
    ordinal: int | None = None
    feeds: tuple[ResolvedFeed, ...] = ()
    skills: tuple[SkillFile, ...] = ()
    models: tuple[AllowedModel, ...] = ()
    budget: Budget | None = None
    memory: MemoryRelation | None = None
    blocks: tuple[ContextBlock, ...] = ()
    timezone: str = "UTC"

    @property
    def has_proxy(self) -> bool:
        return self.cllama is not None and bool(self.cllama.proxies)

    @property
    def mode(self) -> Mode:
        """The entrance through which the runner reaches its proxy."""
        return self.cllama.mode if self.cllama is not None else "base-url"

    @property
    def delivery(self) -> Delivery:
        return self.spec.delivery

    @property
    def tool_services(self) -> tuple[str, ...]:
        """The services of its tools, by name."""
        return tuple(sorted({granted.service for granted in self.tools}))

    @property
    def called_services(self) -> tuple[str, ...]:
        """The services that the proxy calls for this agent's tools, feeds and memory, by name."""
        names = set(self.tool_services)
        names |= {feed.service for feed in self.feeds}
        if self.memory is not None:
            names.add(self.memory.service)
        return tuple(sorted(names))


@dataclass(frozen=True)
class ResolvedPod:
    """Every agent of the pod, and the environment of their one proxy.

    ``proxy_env`` is merged from ``cllama-defaults.env`` and every agent's ``cllama-env``.
    """

    agents: tuple[Agent, ...]
    proxy_env: Mapping[str, ProxyVariable] = field(default_factory=dict)
