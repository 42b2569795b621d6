"""A pod file as values, with places, before any default is applied.

None is an absent key. ``[]`` and ``null`` are values of their own: an absent key inherits, an empty
one suppresses (docs/spec/compile.md, "Defaults"). Keys that Compose owns (``environment``,
``expose``, ``ports``) stay trees, and are read when a grant needs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.node import MapNode, Node, ScalarNode
from claw_contract.context_files import ContextBlock
from claw_contract.manifest import Delivery, Policy
from claw_contract.metadata import Budget

type Mode = Literal["base-url", "proxy", "transparent"]
MODES: tuple[Mode, ...] = ("base-url", "proxy", "transparent")
DELIVERIES: tuple[Delivery, ...] = ("mediated", "native")
type Scheme = Literal["service", "volume", "host", "channel", "egress"]
type Access = Literal["ro", "rw"]
MEMORY_TIMEOUT_MS = 300


@dataclass(frozen=True)
class Spread:
    """``...``: the pod's defaults belong here."""

    span: Span


@dataclass(frozen=True)
class AllTools:
    """The value ``all`` of ``allow``."""

    span: Span


@dataclass(frozen=True)
class Grant:
    """One entry of ``tools``."""

    service: ScalarNode
    allow: AllTools | tuple[ScalarNode, ...]
    deny: tuple[ScalarNode, ...]
    span: Span


@dataclass(frozen=True)
class Surface:
    """One entry of ``surfaces``: ``scheme://target``.

    ``mode`` exists for volumes and hosts only. ``channel`` is the runner's configuration of a
    channel. ``shown`` is the entry as the file has it.
    """

    scheme: Scheme
    target: str
    span: Span
    shown: str
    mode: Access | None = None
    channel: MapNode | None = None


@dataclass(frozen=True)
class EntryList[T]:
    """A list that the file has, empty or not; ``key`` is the place of its key."""

    key: Span
    entries: tuple[T | Spread, ...]

    @property
    def spread(self) -> Spread | None:
        for entry in self.entries:
            if isinstance(entry, Spread):
                return entry
        return None


def own_entries[T](listed: EntryList[T] | None) -> tuple[T, ...]:
    """Return the entries of the list itself, without the spread."""
    if listed is None:
        return ()
    return tuple(entry for entry in listed.entries if not isinstance(entry, Spread))


@dataclass(frozen=True)
class CllamaSetting:
    """``cllama``: the types of proxy that an agent asks for, and its entrance to them.

    ``proxies`` is empty when ``cllama`` is ``null`` or ``[]``. ``workers`` is the number of the
    proxy's processes, ``auto``, or "" where the file does not set it. ``paths`` are opened in
    addition to the known ones, each as ``METHOD /prefix*``.
    """

    key: Span
    proxies: tuple[ScalarNode, ...]
    mode: Mode = "base-url"
    workers: str = ""
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProxyVariable:
    """One variable of the proxy's environment.

    Its value may be a credential, and is never shown.
    """

    key: Span
    value: str = field(repr=False)


@dataclass(frozen=True)
class ToolPolicySetting:
    """``tool-policy``: the limits of a turn, and how its answer streams.

    An agent's own replaces the pod's whole.
    """

    key: Span
    policy: Policy


@dataclass(frozen=True)
class ProviderAuth:
    """``auth`` of a service: the credential that the proxy sends it.

    The credential is in a variable of the service's environment (``env``), or one of the pod's
    secrets (``secret``).
    """

    type: Literal["none", "bearer", "header", "basic"]
    span: Span
    env: ScalarNode | None = None
    secret: ScalarNode | None = None
    header: ScalarNode | None = None
    username: ScalarNode | None = None


@dataclass(frozen=True)
class OwnFeed:
    """A feed that the pod file itself declares: ``{name, source, path, ttl, description}``.

    ``ttl`` is in seconds.
    """

    name: ScalarNode
    source: ScalarNode
    path: ScalarNode
    ttl: int | None
    description: str
    span: Span


type Feed = ScalarNode | OwnFeed
"""A feed that a descriptor declares, by its name, or a feed of the pod's own.

The name is ``name``, or ``service/name`` where several services declare it.
"""


@dataclass(frozen=True)
class Models:
    """``models``: slot → ``provider/model``, or None for a slot that suppresses the pod's.

    ``fallback`` is one list, replaced whole. ``{}`` and ``null``, which have neither slots nor
    ``fallback``, suppress all of the pod's models.
    """

    key: Span
    slots: tuple[tuple[ScalarNode, str | None], ...] = ()
    fallback: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.slots and self.fallback is None


@dataclass(frozen=True)
class BudgetSetting:
    """``budget``, with None for ``null``."""

    key: Span
    budget: Budget | None


@dataclass(frozen=True)
class MemorySetting:
    """``memory {service, timeout-ms}``, with no service for ``null``."""

    key: Span
    service: ScalarNode | None
    timeout_ms: int = MEMORY_TIMEOUT_MS


@dataclass(frozen=True)
class ContextSetting:
    """``context.blocks``, in the order of the prompt."""

    key: Span
    blocks: tuple[ContextBlock, ...]


@dataclass(frozen=True)
class Stdio:
    """``mcp-stdio {command, args}``: the server that the wrapper of this service runs."""

    command: ScalarNode
    args: tuple[ScalarNode, ...] = ()


@dataclass(frozen=True)
class ToolsHost:
    """``tools-host`` of a service: sections of its ``toolhost.yml``.

    ``file`` names a file with the sections that the pod file leaves out.
    """

    file: ScalarNode | None = None
    volume: str | None = None
    tools: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PodSecret:
    """One entry of the pod's ``secrets``: ``NAME: {env: VARIABLE}`` or ``NAME: {file: ./path}``.

    Credentials refer to it by name. A ``derived`` secret is made by the compiler and is in no pod
    file.
    """

    name: ScalarNode
    source: Literal["env", "file", "derived"]
    reference: ScalarNode


@dataclass(frozen=True)
class ServiceCredential:
    """One entry of an agent's ``service-auth``: its own credential at a service.

    ``reference`` names the variable or secret that holds it, ``principal`` the agent at that
    service.
    """

    service: ScalarNode
    source: Literal["env", "secret"]
    reference: ScalarNode
    principal: str
    span: Span


@dataclass(frozen=True)
class ServiceSpec:
    """One Compose service, with its ``x-claw``. It is an agent when it has ``agent``.

    A key that is there but can't be read is reported once, and its field is None. Other rules need
    to know that it is there: ``names_descriptor`` says so of ``describe-file``, and ``wraps_stdio``
    of ``mcp-stdio``. ``body`` is the whole service, for the Compose file that is made from it.
    ``carried`` are keys of the original system, which only pod-manifest.json has.
    """

    name: ScalarNode
    agent: ScalarNode | None = None
    runner: str = "generic"
    cllama: CllamaSetting | None = None
    tools: EntryList[Grant] | None = None
    surfaces: EntryList[Surface] | None = None
    tool_policy: ToolPolicySetting | None = None
    describe_file: ScalarNode | None = None
    names_descriptor: bool = False
    base_url: ScalarNode | None = None
    auth: ProviderAuth | None = None
    stdio: Stdio | None = None
    wraps_stdio: bool = False
    tools_host: ToolsHost | None = None
    mcp_path: ScalarNode | None = None
    count: int = 1
    count_key: Span | None = None
    cllama_env: Mapping[str, ProxyVariable] = field(default_factory=dict)
    models: Models | None = None
    feeds: EntryList[Feed] | None = None
    skills: EntryList[ScalarNode] | None = None
    memory: MemorySetting | None = None
    spending: BudgetSetting | None = None
    context: ContextSetting | None = None
    delivery: Delivery = "mediated"
    principals: tuple[ServiceCredential, ...] = ()
    carried: Mapping[str, Node] = field(default_factory=dict)
    body: MapNode | None = None
    environment: Node | None = None
    expose: Node | None = None
    ports: Node | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the service's containers: its own, or ``name-0 … name-(N-1)``."""
        name = self.name.text
        if self.count == 1:
            return (name,)
        return tuple(f"{name}-{ordinal}" for ordinal in range(self.count))


@dataclass(frozen=True)
class PodSpec:
    file: str
    document: MapNode
    services: tuple[ServiceSpec, ...]
    name: ScalarNode | None = None
    cllama: CllamaSetting | None = None
    tools: EntryList[Grant] | None = None
    surfaces: EntryList[Surface] | None = None
    tool_policy: ToolPolicySetting | None = None
    strict_surfaces: bool = False
    cllama_env: Mapping[str, ProxyVariable] = field(default_factory=dict)
    models: Models | None = None
    feeds: EntryList[Feed] | None = None
    skills: EntryList[ScalarNode] | None = None
    memory: MemorySetting | None = None
    spending: BudgetSetting | None = None
    context: ContextSetting | None = None
    secrets: tuple[PodSecret, ...] = ()
    carried: Mapping[str, Node] = field(default_factory=dict)

    def service(self, name: str) -> ServiceSpec | None:
        for service in self.services:
            if service.name.text == name:
                return service
        return None

    @property
    def owners(self) -> "tuple[PodSpec | ServiceSpec, ...]":
        """The owners of grants, surfaces and so on: the pod in its defaults, and each service."""
        return (self, *self.services)

    @property
    def agents(self) -> tuple[ServiceSpec, ...]:
        """The services that are agents, by name: no output depends on the order of the file."""
        agents = [service for service in self.services if service.agent is not None]
        return tuple(sorted(agents, key=lambda service: service.name.text))
