"""Connect: the base URL and credential of each service that the proxy calls; providers.json.

The rules (docs/spec/compile.md, "Auth"):

- A base URL is ``x-claw.base-url``. Without it, the port is the first TCP port of ``expose``, else
  of the container side of ``ports``, else 80. UDP ports are skipped, a range is an error, and
  several ports are a warning.
- An agent's own ``service-auth`` wins over the credential of the service.
- Feeds and memories are requested with a bearer token or without a credential. Another kind is an
  error here, so that no request is sent without the credential later.
- Keys of providers come from ``cllama-env`` and are written to providers.json, which only the proxy
  can read. The rest of ``cllama-env`` is the proxy's environment.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import TypeAdapter, ValidationError

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote
from claw_compile.grammar.pod import ProxyVariable, ServiceSpec
from claw_compile.grammar.reader import is_null, problem_at
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.environment import Lookup, interpolate
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode
from claw_compile.policy.agent import Agent, ResolvedFeed, ResolvedPod
from claw_compile.policy.credentials import Principals, project_auth, resolve_principals
from claw_contract.context_files import Feed, Memory, MemoryPath, MemoryRecall
from claw_contract.descriptor import DescriptorV2
from claw_contract.known_providers import KNOWN_PROVIDERS, provider_of
from claw_contract.manifest import (
    Auth,
    BaseUrl,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    NoAuth,
    checked_base_url,
)
from claw_contract.opened_paths import OpenedPathError, parse_opened_paths
from claw_contract.providers import ProviderEntry, ProviderKey, Providers
from claw_contract.secret import Secret

# ``8080``, ``8000-8010`` or ``53/udp``.
_PORT = re.compile(r"(?P<port>[0-9]{1,5})(?P<range>-[0-9]{1,5})?(/(?P<protocol>[a-z]+))?")
_URL = TypeAdapter[str](BaseUrl)
_HTTP_PORT = 80
TOOLS_HOST_PORT = 8080
MAX_PORT = 65535


@dataclass(frozen=True)
class CalledService:
    """A service as the proxy reaches it. ``mcp_path`` is None for plain HTTP."""

    name: str
    base_url: str
    mcp_path: str | None
    auth: Auth


@dataclass(frozen=True)
class Connections:
    """Called services by name; credentials, feeds and memory by agent.

    ``model_providers`` is providers.json.
    """

    services: Mapping[str, CalledService]
    principals: Principals = field(default_factory=dict)
    feeds: Mapping[str, tuple[Feed, ...]] = field(default_factory=dict)
    memories: Mapping[str, Memory] = field(default_factory=dict)
    model_providers: Providers | None = None

    def auth(self, agent: Agent, service: str) -> Auth:
        """Return the credential with which the proxy calls the service for this agent."""
        own = self.principals.get(agent.id, {}).get(service)
        return self.services[service].auth if own is None else own.auth


def connect(loaded: LoadedPod, resolved: ResolvedPod) -> Result[Connections]:
    """Return how the proxy reaches every service that it calls for an agent.

    Report a missing port or credential; such a service is left out.
    """
    diagnostics: list[Diagnostic] = []
    lookup = loaded.variables.lookup
    services = _services(loaded, resolved, diagnostics)
    principals = resolve_principals(loaded.pod, resolved.agents, lookup, diagnostics)

    # A feed and a memory have the agent's credential at their service, so that comes first.
    credentials = Connections(services, principals)
    feeds: dict[str, tuple[Feed, ...]] = {}
    memories: dict[str, Memory] = {}
    for agent in resolved.agents:
        feeds[agent.id] = tuple(_feeds(agent, credentials, diagnostics))
        memory = _memory(agent, credentials, diagnostics)
        if memory is not None:
            memories[agent.id] = memory

    models = model_providers(resolved.proxy_env, diagnostics)
    check_opened_paths(resolved.proxy_env.get("CLLAMA_PATHS"), diagnostics)
    connections = Connections(services, principals, feeds, memories, models)
    return Result(connections, tuple(diagnostics))


def _services(
    loaded: LoadedPod, resolved: ResolvedPod, diagnostics: list[Diagnostic]
) -> Mapping[str, CalledService]:
    lookup = loaded.variables.lookup
    names = {name for agent in resolved.agents for name in agent.called_services}

    services: dict[str, CalledService] = {}
    for name in sorted(names):
        service = loaded.pod.service(name)
        service_descriptor = loaded.descriptors.get(name)
        is_unreadable = service_descriptor is None and name in loaded.descriptors
        # Both are reported already.
        if service is None or is_unreadable:
            continue

        url = base_url(service, lookup, diagnostics)
        auth = project_auth(loaded.pod, service, service_descriptor, lookup, diagnostics)
        if url is None or auth is None:
            continue

        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        mcp = descriptor.mcp if isinstance(descriptor, DescriptorV2) else None
        services[name] = CalledService(name, url, mcp.path if mcp else None, auth)

    return services


def _feeds(agent: Agent, connections: Connections, diagnostics: list[Diagnostic]) -> Iterator[Feed]:
    for feed in agent.feeds:
        service = connections.services.get(feed.service)
        if service is None:
            continue

        auth = connections.auth(agent, feed.service)
        bearer = _bearer(auth, f"the feed {feed.name}", feed.span, diagnostics)
        try:
            yield _feed(feed, service, bearer)
        except ValidationError:
            message = f"the feed {quote(feed.name)} makes no URL that can be fetched"
            help_text = "a path is ASCII; write other characters as %XX"
            diagnostics.append(codes.BAD_FEED.at(feed.span, message, help_text=help_text))


def _feed(feed: ResolvedFeed, service: CalledService, bearer: BearerAuth | None) -> Feed:
    # An absent ttl is left to the contract's default.
    ttl = {} if feed.ttl is None else {"ttl": feed.ttl}
    return Feed(
        name=feed.name,
        source=feed.service,
        path=feed.path,
        url=service.base_url.rstrip("/") + feed.path,
        auth=None if bearer is None else bearer.token,
        **ttl,
    )


def _memory(agent: Agent, connections: Connections, diagnostics: list[Diagnostic]) -> Memory | None:
    relation = agent.memory
    if relation is None:
        return None
    service = connections.services.get(relation.service)
    if service is None:
        return None

    auth = connections.auth(agent, relation.service)
    bearer = _bearer(auth, "the memory", relation.span, diagnostics)

    paths = relation.paths
    recall = None
    if paths.recall:
        recall = MemoryRecall(path=paths.recall.path, timeout_ms=relation.timeout_ms)

    return Memory(
        version=1,
        service=service.name,
        base_url=service.base_url,
        recall=recall,
        retain=MemoryPath(path=paths.retain.path) if paths.retain else None,
        forget=MemoryPath(path=paths.forget.path) if paths.forget else None,
        auth=bearer,
    )


def _bearer(auth: Auth, what: str, at: Span, diagnostics: list[Diagnostic]) -> BearerAuth | None:
    """Return the bearer token, or None for none; report any other kind of credential."""
    match auth:
        case NoAuth():
            return None
        case BearerAuth():
            return auth
        case HeaderAuth() | BasicAuth():
            message = f"{what} can't be asked for with a credential of type {auth.type}"
            diagnostics.append(codes.BEARER_ONLY.at(at, message))
            return None
    assert_never(auth)


def without_provider_keys(
    environment: Mapping[str, ProxyVariable],
) -> Mapping[str, ProxyVariable]:
    """Return the proxy's environment without the keys of providers."""
    return {name: variable for name, variable in environment.items() if provider_of(name) is None}


def model_providers(
    environment: Mapping[str, ProxyVariable], diagnostics: list[Diagnostic]
) -> Providers | None:
    """Return version 2 of providers.json, or None if no provider can be asked.

    A provider needs a key, or takes none and has a base URL. An empty variable is no key.
    """
    entries: dict[str, ProviderEntry] = {}
    for name, known in KNOWN_PROVIDERS.items():
        keys = _provider_keys(name, environment)
        url = _base_url(environment.get(f"{known.env}_BASE_URL"), diagnostics)
        is_keyless = known.auth == "none" and url is not None
        if not keys and not is_keyless:
            continue

        entries[name] = ProviderEntry(
            base_url=known.base_url if url is None else url,
            auth=known.auth,
            api_format=known.api_format,
            keys=keys,
            active_key_id=keys[0].id if keys else None,
        )

    return Providers(version=2, providers=entries) if entries else None


def _provider_keys(
    provider: str, environment: Mapping[str, ProxyVariable]
) -> tuple[ProviderKey, ...]:
    keys: list[ProviderKey] = []
    for name, variable in sorted(environment.items()):
        if provider_of(name) == provider and variable.value:
            secret = Secret(variable.value)
            keys.append(ProviderKey(id=f"seed:{name}", label=name, secret=secret, source="seed"))
    return tuple(keys)


def check_opened_paths(variable: ProxyVariable | None, diagnostics: list[Diagnostic]) -> None:
    """Report an entry of ``CLLAMA_PATHS`` that the proxy would refuse when it starts."""
    if variable is None:
        return

    try:
        parse_opened_paths(variable.value)
    except OpenedPathError as error:
        message = f"an entry of CLLAMA_PATHS: {error.reason}"
        diagnostics.append(codes.BAD_PATH.at(variable.key, message))


def _base_url(variable: ProxyVariable | None, diagnostics: list[Diagnostic]) -> str | None:
    if variable is None or not variable.value:
        return None

    try:
        return checked_base_url(variable.value)
    except ValueError as error:
        diagnostics.append(codes.BAD_BASE_URL.at(variable.key, str(error)))
        return None


@dataclass(frozen=True)
class _Port:
    number: int
    is_range: bool
    span: Span
    shown: str


def base_url(service: ServiceSpec, lookup: Lookup, diagnostics: list[Diagnostic]) -> str | None:
    """Return the service's own base URL, or ``http://<service>:<port>``.

    Report a port that can't be known, and return None.
    """
    if service.base_url is not None:
        return _explicit_url(service.base_url, diagnostics)

    port_reader = _PortReader(lookup, diagnostics)
    ports = port_reader.tcp_ports(service.expose, "expose")
    ports = ports or port_reader.tcp_ports(service.ports, "ports")
    if port_reader.failed:
        return None

    name = service.name.text
    if not ports:
        return _default_url(service, diagnostics)

    for port in ports:
        if port.is_range:
            message = f"{quote(port.shown)} does not say where {name} listens"
            help_text = "set 'x-claw.base-url'"
            diagnostics.append(codes.PORT_RANGE.at(port.span, message, help_text=help_text))
            return None

    first, *others = ports
    if others:
        message = f"{name} has several TCP ports; {quote(first.shown)} is taken"
        notes = [Note(first.span, "this one is taken")]
        help_text = "set 'x-claw.base-url'"
        diagnostic = codes.SEVERAL_PORTS.at(
            others[0].span, message, notes=notes, help_text=help_text
        )
        diagnostics.append(diagnostic)

    return f"http://{name}:{first.number}"


def _default_url(service: ServiceSpec, diagnostics: list[Diagnostic]) -> str:
    name = service.name.text
    if service.tools_host is not None:
        return f"http://{name}:{TOOLS_HOST_PORT}"

    message = f"{name} has no TCP port; http://{name}:80 is taken"
    help_text = "add 'expose: [\"PORT\"]', or set 'x-claw.base-url'"
    diagnostics.append(codes.NO_PORT.at(service.name.span, message, help_text=help_text))
    return f"http://{name}:{_HTTP_PORT}"


def _explicit_url(written: ScalarNode, diagnostics: list[Diagnostic]) -> str | None:
    url = written.text.rstrip("/")
    if _is_base_url(url):
        return url

    message = f"{quote(written.shown)} is not a base URL"
    diagnostics.append(codes.BAD_BASE_URL.at(written.span, message))
    return None


def _is_base_url(url: str) -> bool:
    # The contract's check lets an empty port pass, which no HTTP client takes.
    is_ascii = re.fullmatch(r"[!-~]+", url) is not None
    if not is_ascii or not _has_sound_port(url):
        return False

    try:
        return bool(_URL.validate_python(url))
    except ValidationError:
        return False


def _has_sound_port(url: str) -> bool:
    """Return whether a URL's port, if it has one, is a number from 1 to 65535."""
    authority = url.partition("://")[2].partition("/")[0]

    # An IPv6 address in brackets holds colons of its own.
    after_brackets = authority.rpartition("]")[2]
    _, colon, port = after_brackets.rpartition(":")
    if not colon:
        return True
    return re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) <= MAX_PORT


@dataclass
class _PortReader:
    """A reader of ports; ``failed`` says that an entry could not be read, which is reported."""

    lookup: Lookup
    diagnostics: list[Diagnostic]
    failed: bool = False

    def tcp_ports(self, node: Node | None, key: str) -> list[_Port]:
        """Return the TCP ports of ``expose`` or ``ports``, each once."""
        if node is None or is_null(node):
            return []
        if not isinstance(node, ListNode):
            self._report_bad_port(node.span, f"{quote(key)} is a list")
            return []

        ports: dict[tuple[int, bool], _Port] = {}
        for item in node.items:
            port = self._port(item)
            if port is not None:
                ports.setdefault((port.number, port.is_range), port)

        return list(ports.values())

    def _port(self, node: Node) -> _Port | None:
        """Return the port of one entry; None for a UDP port, and for an entry that is reported."""
        if isinstance(node, MapNode):
            return self._long_form(node)
        if not isinstance(node, ScalarNode):
            self._report_bad_port(node.span, "this entry holds no port")
            return None

        interpolation = interpolate(node.text, self.lookup)
        if interpolation.problems:
            self.diagnostics.extend(problem_at(node, problem) for problem in interpolation.problems)
            self.failed = True
            return None

        # The container's side comes after the last colon. A host address may hold colons of its
        # own.
        container_side = interpolation.text.strip().lower().rpartition(":")[2]
        match = _PORT.fullmatch(container_side)
        if match is None or not 0 < int(match["port"]) <= MAX_PORT:
            self._report_bad_port(node.span, f"{quote(node.text)} holds no port")
            return None
        if match["protocol"] not in {None, "tcp"}:
            return None

        number = int(match["port"])
        is_range = match["range"] is not None
        return _Port(number, is_range, node.span, node.text)

    def _long_form(self, node: MapNode) -> _Port | None:
        """Return the port of Compose's long form, ``{target, published, protocol, …}``."""
        protocol = node.value("protocol")
        if isinstance(protocol, ScalarNode) and protocol.text.lower() not in {"", "tcp"}:
            return None

        target = node.value("target")
        if isinstance(target, ScalarNode):
            return self._port(target)
        self._report_bad_port(node.span, "this entry holds no port")
        return None

    def _report_bad_port(self, span: Span, message: str) -> None:
        self.failed = True
        self.diagnostics.append(codes.BAD_PORT.at(span, message, help_text="set 'x-claw.base-url'"))
