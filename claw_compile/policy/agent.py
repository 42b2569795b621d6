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
    """A feed with its service; ``path`` has the agent's id filled in.

    ``ttl`` in seconds, None: the proxy's default.
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
    """One agent, of ``count`` perhaps, with its policy.

    ``takes`` names the pod's defaults that reach it.
    """

    spec: ServiceSpec
    id: str
    cllama: CllamaSetting | None
    grants: tuple[Grant, ...]
    surfaces: tuple[Surface, ...]
    tools: tuple[GrantedTool, ...]
    policy: Policy
    takes: frozenset[str]
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
        """The entrance by which the runner comes to its proxy."""
        return self.cllama.mode if self.cllama is not None else "base-url"

    @property
    def delivery(self) -> Delivery:
        return self.spec.delivery

    @property
    def tool_services(self) -> tuple[str, ...]:
        """The services of its tools."""
        return tuple(sorted({granted.service for granted in self.tools}))

    @property
    def called_services(self) -> tuple[str, ...]:
        """The services that the proxy asks for this agent: for its tools, feeds and memory."""
        remembers = {self.memory.service} if self.memory is not None else set()
        tools = set(self.tool_services)
        return tuple(sorted(tools | {feed.service for feed in self.feeds} | remembers))


@dataclass(frozen=True)
class ResolvedPod:
    """``proxy_env`` is the environment of the pod's proxy, by
    ``cllama-defaults.env`` and every agent's ``cllama-env``.
    """

    agents: tuple[Agent, ...]
    proxy_env: Mapping[str, ProxyVariable] = field(default_factory=dict)
