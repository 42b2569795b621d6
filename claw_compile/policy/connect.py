"""Connect: base URL and credential of each service that the proxy calls; providers.json
(docs/spec/compile.md "Auth").

Rules. A base URL is ``x-claw.base-url``, else it has the first TCP port of ``expose``, else of the
container side of ``ports``, else 80. UDP is passed over; a range is an error; several ports without
a choice warn.

An agent's own ``service-auth`` beats the credential of the provider. Feeds and memories carry a
bearer token or none: another kind is an error here, and not a call without a credential later. Keys
of providers come by ``cllama-env`` and go into providers.json, which is the proxy's alone; the rest
is its environment.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import TypeAdapter, ValidationError

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote
from claw_compile.grammar.pod import ProxyVariable, ServiceSpec
from claw_compile.grammar.reader import problem_at
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
    """Providers by service; and principals, feeds and memory by agent."""

    providers: Mapping[str, CalledService]
    principals: Principals = field(default_factory=dict)
    feeds: Mapping[str, tuple[Feed, ...]] = field(default_factory=dict)
    memories: Mapping[str, Memory] = field(default_factory=dict)
    model_providers: Providers | None = None  # providers.json

    def auth(self, agent: Agent, service: str) -> Auth:
        """Return the credential with which the proxy calls the service for this agent."""
        own = self.principals.get(agent.id, {}).get(service)
        return self.providers[service].auth if own is None else own.auth


def connect(loaded: LoadedPod, resolved: ResolvedPod) -> Result[Connections]:
    """Return every service that an agent has tools, feeds or memories of; a missing
    port or token is reported.
    """
    diagnostics: list[Diagnostic] = []
    providers = dict(_providers(loaded, resolved, diagnostics))
    principals = resolve_principals(
        loaded.pod, resolved.agents, loaded.variables.lookup, diagnostics
    )
    connections = Connections(providers, principals)
    feeds = {agent.id: tuple(_feeds(agent, connections, diagnostics)) for agent in resolved.agents}
    memories = {
        agent.id: memory
        for agent in resolved.agents
        if (memory := _memory(agent, connections, diagnostics))
    }
    models = model_providers(resolved.proxy_env, diagnostics)
    check_opened_paths(resolved.proxy_env.get("CLLAMA_PATHS"), diagnostics)
    return Result(Connections(providers, principals, feeds, memories, models), tuple(diagnostics))


def _providers(
    loaded: LoadedPod, resolved: ResolvedPod, diagnostics: list[Diagnostic]
) -> Iterator[tuple[str, CalledService]]:
    for name in sorted({name for agent in resolved.agents for name in agent.called_services}):
        service, service_descriptor = loaded.pod.service(name), loaded.descriptors.get(name)
        if service is None or (service_descriptor is None and name in loaded.descriptors):
            continue
        lookup = loaded.variables.lookup
        url = base_url(service, lookup, diagnostics)
        auth = project_auth(loaded.pod, service, service_descriptor, lookup, diagnostics)
        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        mcp = descriptor.mcp if isinstance(descriptor, DescriptorV2) else None
        if url is not None and auth is not None:
            yield name, CalledService(name, url, mcp.path if mcp else None, auth)


def _feeds(agent: Agent, connections: Connections, diagnostics: list[Diagnostic]) -> Iterator[Feed]:
    for feed in agent.feeds:
        provider = connections.providers.get(feed.service)
        if provider is None:
            continue
        bearer = _bearer(
            connections.auth(agent, feed.service), f"the feed {feed.name}", feed.span, diagnostics
        )
        try:
            yield _feed(feed, provider, bearer)
        except ValidationError:
            help_text = "a path is ASCII; write other characters as %XX"
            message = f"the feed {quote(feed.name)} makes no URL that can be fetched"
            diagnostics.append(codes.BAD_FEED.at(feed.span, message, help_text=help_text))


def _feed(feed: ResolvedFeed, provider: CalledService, bearer: BearerAuth | None) -> Feed:
    ttl = {} if feed.ttl is None else {"ttl": feed.ttl}
    url, token = provider.base_url.rstrip("/") + feed.path, None if bearer is None else bearer.token
    return Feed(name=feed.name, source=feed.service, path=feed.path, url=url, auth=token, **ttl)


def _memory(agent: Agent, connections: Connections, diagnostics: list[Diagnostic]) -> Memory | None:
    relation = agent.memory
    provider = connections.providers.get(relation.service) if relation else None
    if relation is None or provider is None:
        return None
    bearer = _bearer(
        connections.auth(agent, relation.service), "the memory", relation.span, diagnostics
    )
    paths = relation.paths
    recall = (
        MemoryRecall(path=paths.recall.path, timeout_ms=relation.timeout_ms)
        if paths.recall
        else None
    )
    return Memory(
        version=1,
        service=provider.name,
        base_url=provider.base_url,
        recall=recall,
        retain=MemoryPath(path=paths.retain.path) if paths.retain else None,
        forget=MemoryPath(path=paths.forget.path) if paths.forget else None,
        auth=bearer,
    )


def _bearer(auth: Auth, what: str, at: Span, diagnostics: list[Diagnostic]) -> BearerAuth | None:
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


def without_provider_keys(environment: Mapping[str, ProxyVariable]) -> Mapping[str, ProxyVariable]:
    """Return the proxy's environment without the keys of providers."""
    return {name: setting for name, setting in environment.items() if provider_of(name) is None}


def model_providers(
    environment: Mapping[str, ProxyVariable], diagnostics: list[Diagnostic]
) -> Providers | None:
    """Return version 2 of providers.json; None without a key or a keyless provider.

    An empty value is no key.
    """
    entries: dict[str, ProviderEntry] = {}
    for name, known in KNOWN_PROVIDERS.items():
        keys = tuple(
            ProviderKey(
                id=f"seed:{variable}", label=variable, secret=Secret(setting.value), source="seed"
            )
            for variable, setting in sorted(environment.items())
            if provider_of(variable) == name and setting.value
        )
        url = _base_url(environment.get(f"{known.env}_BASE_URL"), diagnostics)
        if keys or (known.auth == "none" and url is not None):
            entries[name] = ProviderEntry(
                base_url=known.base_url if url is None else url,
                auth=known.auth,
                api_format=known.api_format,
                keys=keys,
                active_key_id=keys[0].id if keys else None,
            )
    return Providers(version=2, providers=entries) if entries else None


def check_opened_paths(setting: ProxyVariable | None, diagnostics: list[Diagnostic]) -> None:
    """Report what the proxy would refuse at its start: an entry of ``CLLAMA_PATHS``
    that opens nothing it may.
    """
    if setting is None:
        return
    try:
        parse_opened_paths(setting.value)
    except OpenedPathError as error:
        diagnostics.append(
            codes.BAD_PATH.at(setting.key, f"an entry of CLLAMA_PATHS: {error.reason}")
        )


def _base_url(setting: ProxyVariable | None, diagnostics: list[Diagnostic]) -> str | None:
    if setting is None or not setting.value:
        return None
    try:
        return checked_base_url(setting.value)
    except ValueError as error:
        diagnostics.append(codes.BAD_BASE_URL.at(setting.key, str(error)))
        return None


@dataclass(frozen=True)
class _Port:
    number: int
    is_range: bool
    span: Span
    shown: str


def base_url(service: ServiceSpec, lookup: Lookup, diagnostics: list[Diagnostic]) -> str | None:
    """Return ``http://<service>:<port>``, or the provider's own base URL; None when
    it can't be known.
    """
    if service.base_url is not None:
        return _explicit_url(service.base_url, diagnostics)
    port_reader = _PortReader(lookup, diagnostics)
    ports = port_reader.tcp_ports(service.expose, "expose") or port_reader.tcp_ports(
        service.ports, "ports"
    )
    if port_reader.failed:
        return None
    name = service.name.text
    if not ports and service.tools_host is not None:
        return f"http://{name}:{TOOLS_HOST_PORT}"
    if not ports:
        help_text = "add 'expose: [\"PORT\"]', or set 'x-claw.base-url'"
        message = f"{name} has no TCP port; http://{name}:80 is taken"
        diagnostics.append(codes.NO_PORT.at(service.name.span, message, help_text=help_text))
        return f"http://{name}:{_HTTP_PORT}"
    first, *others = ports
    for port in ports:
        if port.is_range:
            message = f"{quote(port.shown)} does not say where {name} listens"
            diagnostics.append(
                codes.PORT_RANGE.at(port.span, message, help_text="set 'x-claw.base-url'")
            )
            return None
    if others:
        message = f"{name} has several TCP ports; {quote(first.shown)} is taken"
        notes = [Note(first.span, "this one is taken")]
        diagnostics.append(
            codes.SEVERAL_PORTS.at(
                others[0].span, message, notes=notes, help_text="set 'x-claw.base-url'"
            )
        )
    return f"http://{name}:{first.number}"


def _explicit_url(written: ScalarNode, diagnostics: list[Diagnostic]) -> str | None:
    url = written.text.rstrip("/")
    try:
        sound = (
            re.fullmatch(r"[!-~]+", url) is not None
            and bool(_URL.validate_python(url))
            and _has_port(url)
        )
    except ValidationError:
        sound = False
    if not sound:
        diagnostics.append(
            codes.BAD_BASE_URL.at(written.span, f"{quote(written.shown)} is not a base URL")
        )
        return None
    return url


def _has_port(url: str) -> bool:
    host = url.partition("://")[2].partition("/")[0].rpartition("]")[2]
    _, colon, port = host.rpartition(":")
    return not colon or (
        re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) <= MAX_PORT
    )


@dataclass
class _PortReader:
    lookup: Lookup
    diagnostics: list[Diagnostic]
    failed: bool = False

    def tcp_ports(self, node: Node | None, key: str) -> list[_Port]:
        """Return the TCP ports of ``expose`` or ``ports``, each once."""
        if node is None or (isinstance(node, ScalarNode) and node.is_null):
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
        if isinstance(node, MapNode):
            target, protocol = node.value("target"), node.value("protocol")
            if isinstance(protocol, ScalarNode) and protocol.text.lower() not in {"", "tcp"}:
                return None
            if isinstance(target, ScalarNode):
                return self._port(target)
        if not isinstance(node, ScalarNode):
            self._report_bad_port(node.span, "this entry holds no port")
            return None
        filled = interpolate(node.text, self.lookup)
        if filled.problems:
            self.diagnostics.extend(problem_at(node, problem) for problem in filled.problems)
            self.failed = True
            return None
        # The container's side is behind the last colon; a host address may hold colons of its own.
        match = _PORT.fullmatch(filled.text.strip().lower().rpartition(":")[2])
        if match is None or not 0 < int(match["port"]) <= MAX_PORT:
            self._report_bad_port(node.span, f"{quote(node.text)} holds no port")
            return None
        if match["protocol"] not in {None, "tcp"}:
            return None
        return _Port(int(match["port"]), match["range"] is not None, node.span, node.text)

    def _report_bad_port(self, span: Span, message: str) -> None:
        self.failed = True
        self.diagnostics.append(codes.BAD_PORT.at(span, message, help_text="set 'x-claw.base-url'"))
