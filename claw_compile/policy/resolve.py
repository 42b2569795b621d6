"""Resolve: each agent, after defaults and spreads are expanded.

What an agent's own key does with the pod's default (docs/spec/compile.md, "Tools", "Defaults",
"count"):

    tools surfaces feeds skills   absent inherits, a list replaces, ``...`` splices, ``[]``
                                  suppresses
    models cllama-env             key by key, the service wins; ``models: {}`` or ``null``
                                  suppresses
    tool-policy budget memory     replaced whole; ``null`` suppresses
    cllama                        replaced whole; ``null`` suppresses
    context.blocks                replaced whole; ``[]`` and ``null`` suppress

Other rules:

- Of several grants for one service, ``all`` wins, else the names are united; ``deny`` beats
  ``allow``. Tools are in the order of services, then of the descriptor: reordering the YAML changes
  no output.
- ``count`` above one makes ``name-0 … name-(N-1)``, which differ in nothing but their ids.
- An agent's own skill hides a service's of the same name. A service's ``SKILL.md`` is named after
  its service, and so are two skills with one name.
- The pod has one proxy: two agents with different values for one of its variables are an error.
- A feed that several services declare needs its full name, ``service/name``. ``{claw_id}`` in a
  name or path is the agent's id. A feed that the pod declares itself needs no descriptor, but its
  service must exist.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, did_you_mean, quote
from claw_compile.grammar.cllama import FALLBACK
from claw_compile.grammar.pod import (
    AllTools,
    EntryList,
    Feed,
    Grant,
    MemorySetting,
    Models,
    OwnFeed,
    PodSpec,
    ProxyVariable,
    ServiceSpec,
    Spread,
    own_entries,
)
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.environment import variables
from claw_compile.parsing.node import ScalarNode
from claw_compile.policy.agent import Agent, GrantedTool, MemoryRelation, ResolvedFeed, ResolvedPod
from claw_contract.descriptor import DescriptorFeed, DescriptorV2
from claw_contract.manifest import Policy
from claw_contract.metadata import AllowedModel
from claw_contract.whole_numbers import whole_number

PRIMARY = "primary"
CLAW_ID = "{claw_id}"
# The form of a name in the tz database, such as ``America/Argentina/Salta``.
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}")
_DEFAULT_ZONE = "UTC"
_COMMON_NAME = "skill.md"  # In lower case
EGRESS, EGRESS_WORDS = "CLLAMA_EGRESS", ("allow", "deny")
DRAIN, MAX_DRAIN_MS = "CLLAMA_DRAIN_MS", 600_000  # The most that the proxy takes


def resolve(loaded: LoadedPod) -> Result[ResolvedPod]:
    """Return every agent of the pod, by service and ordinal."""
    feeds = DeclaredFeeds(loaded.pod, loaded.descriptors)
    resolver = _Resolver(loaded, loaded.pod, feeds)
    feeds.check(own_entries(loaded.pod.feeds), resolver.diagnostics)

    agents: list[Agent] = []
    for spec in loaded.pod.agents:
        agents.extend(resolver.agents(spec))

    env = proxy_env(loaded.pod, agents, resolver.diagnostics)
    return Result(ResolvedPod(tuple(agents), env), tuple(resolver.diagnostics))


@dataclass(frozen=True)
class _Resolver:
    loaded: LoadedPod
    pod: PodSpec
    feeds: "DeclaredFeeds"
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def agents(self, spec: ServiceSpec) -> Iterator[Agent]:
        """Yield the agents of a service: one, or ``count`` of them."""
        agent = self._agent(spec)
        entries = expand_list(spec.feeds, self.pod.feeds, "feeds-defaults", self.diagnostics)

        for index, host in enumerate(spec.hosts):
            ordinal = index if spec.count > 1 else None
            feeds = self.feeds.resolve(entries, host, self.diagnostics)
            yield replace(agent, id=host, ordinal=ordinal, feeds=feeds)

    def _agent(self, spec: ServiceSpec) -> Agent:
        pod = self.pod
        grants = expand_list(spec.tools, pod.tools, "tools-defaults", self.diagnostics)
        surfaces = expand_list(spec.surfaces, pod.surfaces, "surfaces-defaults", self.diagnostics)

        tool_policy = spec.tool_policy or pod.tool_policy
        spending = spec.spending or pod.spending
        context = spec.context or pod.context

        granted_services = [grant.service.text for grant in grants]
        reached_services = [surface.target for surface in surfaces if surface.scheme == "service"]
        skills = self._skills(spec, [*granted_services, *reached_services])

        return Agent(
            spec=spec,
            id=spec.name.text,
            cllama=spec.cllama or pod.cllama,
            grants=grants,
            surfaces=surfaces,
            tools=_granted_tools(grants, self.loaded.descriptors),
            policy=tool_policy.policy if tool_policy is not None else Policy(),
            inherits=inherited_defaults(pod, spec),
            models=merge_models(spec.models, pod.models),
            budget=spending.budget if spending is not None else None,
            memory=self._memory(spec.memory or pod.memory),
            skills=skills,
            blocks=context.blocks if context is not None else (),
            timezone=self._timezone(spec),
        )

    def _memory(self, setting: MemorySetting | None) -> MemoryRelation | None:
        """Return the memory; None where its service declares none, which ``check`` reports."""
        if setting is None or setting.service is None:
            return None

        name = setting.service
        service_descriptor = self.loaded.descriptors.get(name.text)
        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        if not isinstance(descriptor, DescriptorV2) or descriptor.memory is None:
            return None
        return MemoryRelation(name.text, setting.timeout_ms, descriptor.memory, name.span)

    def _skills(self, spec: ServiceSpec, services: Iterable[str]) -> tuple[SkillFile, ...]:
        paths = expand_list(spec.skills, self.pod.skills, "skills-defaults", self.diagnostics)

        service_skills: list[SkillFile] = []
        for name in sorted(set(services)):
            skill = self.loaded.service_skills.get(name)
            if skill is not None:
                service_skills.append(skill)

        return agent_skills(paths, self.loaded.skills, service_skills, self.diagnostics)

    def _timezone(self, spec: ServiceSpec) -> str:
        """Return the container's ``TZ``, or UTC if it sets none that can be read.

        Whether the zone exists only the proxy can tell, because machines differ.
        """
        for variable in variables(spec.environment, self.loaded.variables.lookup):
            if variable.name != "TZ" or variable.value.problems:
                continue

            zone = variable.value.text.strip()
            return zone if _ZONE.fullmatch(zone) else _DEFAULT_ZONE

        return _DEFAULT_ZONE


def _granted_tools(
    grants: Iterable[Grant], descriptors: Mapping[str, ServiceDescriptor | None]
) -> tuple[GrantedTool, ...]:
    """Return the tools that the grants allow, by service, then in the order of the descriptor."""
    by_service: dict[str, list[Grant]] = {}
    for grant in grants:
        by_service.setdefault(grant.service.text, []).append(grant)

    granted: list[GrantedTool] = []
    for service, service_grants in sorted(by_service.items()):
        service_descriptor = descriptors.get(service)
        if service_descriptor is None:
            continue
        names = _allowed_names(service_grants, service_descriptor)
        granted.extend(
            GrantedTool(service, tool) for tool in service_descriptor.tools if tool.name in names
        )

    return tuple(granted)


def _allowed_names(grants: Collection[Grant], service_descriptor: ServiceDescriptor) -> set[str]:
    allowed: set[str] = set()
    denied: set[str] = set()
    for grant in grants:
        if isinstance(grant.allow, AllTools):
            allowed |= {tool.name for tool in service_descriptor.tools}
        else:
            allowed |= {name.text for name in grant.allow}
        denied |= {name.text for name in grant.deny}

    # ``deny`` of any grant beats ``allow`` of any other, so that no default can undo it.
    return allowed - denied


def agent_skills(
    paths: Iterable[ScalarNode],
    read: Mapping[str, SkillFile],
    service_skills: Iterable[SkillFile],
    diagnostics: list[Diagnostic],
) -> tuple[SkillFile, ...]:
    """Return the agent's own skills in the order of the file, then those of its services by name.

    ``read`` has the files that could be read, by path.
    """
    own: dict[str, ScalarNode] = {}
    for path in paths:
        if path.text in read:
            own.setdefault(path.text, path)

    files = [read[path] for path in own]
    own_by_name = {read[path].name: node for path, node in own.items()}
    for skill in _with_distinct_names(service_skills):
        hiding = own_by_name.get(skill.name)
        if hiding is None:
            files.append(skill)
        else:
            message = f"{quote(skill.name)} hides the skill of that name that {skill.origin} brings"
            diagnostics.append(codes.SKILL_HIDDEN.at(hiding.span, message))

    return tuple(files)


def _with_distinct_names(service_skills: Iterable[SkillFile]) -> list[SkillFile]:
    """Return the skills of services by name; a name that two share begins with the service."""
    named: list[tuple[SkillFile, str]] = []
    for skill in service_skills:
        # Every service calls its skill ``SKILL.md``.
        has_common_name = skill.name.lower() == _COMMON_NAME
        named.append((skill, f"{skill.origin}.md" if has_common_name else skill.name))

    times = Counter(name for _skill, name in named)
    distinct: list[SkillFile] = []
    for skill, name in named:
        distinct_name = f"{skill.origin}-{name}" if times[name] > 1 else name
        distinct.append(replace(skill, name=distinct_name))

    return sorted(distinct, key=lambda skill: skill.name)


def proxy_env(
    pod: PodSpec, agents: Iterable[Agent], diagnostics: list[Diagnostic]
) -> Mapping[str, ProxyVariable]:
    """Return the environment of the pod's one proxy: name → value, sorted.

    Report a variable for which two agents want different values.
    """
    merged: dict[str, ProxyVariable] = {}
    for agent in agents:
        if not agent.has_proxy:
            continue

        own = {**pod.cllama_env, **agent.spec.cllama_env}
        for name, variable in own.items():
            known = merged.setdefault(name, variable)
            if known.value == variable.value:
                continue

            # In the order of the file, so that the report does not depend on the order of agents.
            # The values may be keys, so the message does not show them.
            upper, lower = sorted((known, variable), key=lambda each: each.key)
            notes = [Note(upper.key, "the other one is here")]
            message = f"{name} has two values, and the pod has one proxy"
            diagnostics.append(codes.PROXY_ENV_CONFLICT.at(lower.key, message, notes=notes))

    egress = merged.get(EGRESS)
    if egress is not None and egress.value not in EGRESS_WORDS:
        message = f"{EGRESS} takes {' or '.join(EGRESS_WORDS)}"
        diagnostics.append(codes.BAD_EGRESS.at(egress.key, message))

    # Docker and Kubernetes are told to wait this long before they kill the proxy, so the number is
    # needed here. An empty variable means the proxy's default.
    drain = merged.get(DRAIN)
    if drain is not None and drain.value and not whole_number(drain.value, MAX_DRAIN_MS):
        message = f"{DRAIN} takes a whole number of milliseconds from 1 to {MAX_DRAIN_MS}"
        diagnostics.append(codes.BAD_VALUE.at(drain.key, message))

    return dict(sorted(merged.items()))


def expand_list[T](
    own: EntryList[T] | None,
    defaults: EntryList[T] | None,
    name: str,
    diagnostics: list[Diagnostic],
) -> tuple[T, ...]:
    """Return a list with the pod's entries in place of ``...``; the pod's where it is absent."""
    inherited = own_entries(defaults)
    if own is None:
        return inherited

    entries: list[T] = []
    for entry in own.entries:
        if not isinstance(entry, Spread):
            entries.append(entry)
        elif defaults is None:
            message = f"the pod has no '{name}'"
            diagnostics.append(codes.SPREAD_WITHOUT_DEFAULTS.at(entry.span, message))
        else:
            entries.extend(inherited)

    return tuple(entries)


def merge_models(own: Models | None, defaults: Models | None) -> tuple[AllowedModel, ...]:
    """Return the models in the order of attempts: primary, fallbacks, then the others by slot."""
    layers: list[Models] = []
    # An empty mapping of the service takes nothing from the pod.
    drops_defaults = own is not None and own.is_empty
    if not drops_defaults:
        layers = [layer for layer in (defaults, own) if layer is not None]

    slots: dict[str, str | None] = {}
    fallback: tuple[str, ...] = ()
    for layer in layers:
        for slot, ref in layer.slots:
            slots[slot.text] = ref
        if layer.fallback is not None:
            fallback = layer.fallback

    ordered: list[tuple[str, str | None]] = [(PRIMARY, slots.pop(PRIMARY, None))]
    ordered += [(FALLBACK, ref) for ref in fallback]
    ordered += sorted(slots.items())

    # None is a slot that suppresses the pod's.
    return tuple(AllowedModel(slot=slot, ref=ref) for slot, ref in ordered if ref is not None)


def inherited_defaults(pod: PodSpec, spec: ServiceSpec) -> frozenset[str]:
    """Return the pod's defaults that reach the service, by the name of their key."""
    names: set[str] = set()

    # A list with ``...`` in it adds to the default, and so inherits it, too.
    lists = {
        "tools-defaults": (spec.tools, pod.tools),
        "surfaces-defaults": (spec.surfaces, pod.surfaces),
        "feeds-defaults": (spec.feeds, pod.feeds),
        "skills-defaults": (spec.skills, pod.skills),
    }
    for name, (own_list, default_list) in lists.items():
        inherits = own_list is None or own_list.spread is not None
        if default_list is not None and inherits:
            names.add(name)

    # Everything else replaces its default as a whole.
    wholes = {
        "tool-policy-defaults": (spec.tool_policy, pod.tool_policy),
        "budget-defaults": (spec.spending, pod.spending),
        "memory-defaults": (spec.memory, pod.memory),
        "cllama-defaults": (spec.cllama, pod.cllama),
        "context": (spec.context, pod.context),
    }
    for name, (own, default) in wholes.items():
        if default is not None and own is None:
            names.add(name)

    if pod.models is not None and _inherits_models(spec.models, pod.models):
        names.add("models-defaults")
    return frozenset(names)


def _inherits_models(own: Models | None, defaults: Models) -> bool:
    """Return whether any slot, or the fallback, of the pod's models reaches a service."""
    if own is None:
        return True
    if own.is_empty:
        return False

    own_slots = {slot.text for slot, _ in own.slots}
    inherits_slot = any(slot.text not in own_slots for slot, _ in defaults.slots)
    inherits_fallback = defaults.fallback is not None and own.fallback is None
    return inherits_slot or inherits_fallback


@dataclass(frozen=True)
class DeclaredFeed:
    """A feed that a service's descriptor declares."""

    service: str
    feed: DescriptorFeed

    @property
    def full_name(self) -> str:
        return f"{self.service}/{self.feed.name}"


class DeclaredFeeds:
    """Every feed that the pod's descriptors declare."""

    def __init__(self, pod: PodSpec, descriptors: Mapping[str, ServiceDescriptor | None]) -> None:
        self._services = [service.name.text for service in pod.services]
        self._declared: list[DeclaredFeed] = []
        for name, service_descriptor in sorted(descriptors.items()):
            if service_descriptor is not None:
                feeds = service_descriptor.descriptor.feeds
                self._declared.extend(DeclaredFeed(name, feed) for feed in feeds)

        # An unknown feed may be in a descriptor that could not be read, which is reported already.
        self._is_complete = all(each is not None for each in descriptors.values())

    def resolve(
        self, feeds: Iterable[Feed], agent_id: str, diagnostics: list[Diagnostic]
    ) -> tuple[ResolvedFeed, ...]:
        """Return an agent's feeds in their order, each once."""
        resolved: dict[tuple[str, str, str], ResolvedFeed] = {}
        for feed in feeds:
            resolved_feed = self._resolve(feed, diagnostics)
            if resolved_feed is None:
                continue

            name = resolved_feed.name.replace(CLAW_ID, agent_id)
            path = resolved_feed.path.replace(CLAW_ID, agent_id)
            own = replace(resolved_feed, name=name, path=path)
            resolved.setdefault((name, resolved_feed.service, path), own)

        return tuple(resolved.values())

    def check(self, feeds: Iterable[Feed], diagnostics: list[Diagnostic]) -> None:
        """Report mistakes in feeds that no agent may use: the pod's defaults are checked anyway."""
        for feed in feeds:
            self._resolve(feed, diagnostics)

    def _resolve(self, feed: Feed, diagnostics: list[Diagnostic]) -> ResolvedFeed | None:
        match feed:
            case ScalarNode():
                return self._declared_feed(feed, diagnostics)
            case OwnFeed():
                return self._own_feed(feed, diagnostics)
        assert_never(feed)

    def _declared_feed(
        self, name: ScalarNode, diagnostics: list[Diagnostic]
    ) -> ResolvedFeed | None:
        declared = self._find(name, diagnostics)
        if declared is None:
            return None

        feed = declared.feed
        return ResolvedFeed(
            name=feed.name,
            service=declared.service,
            path=feed.path,
            ttl=feed.ttl,
            description=feed.description,
            span=name.span,
        )

    def _own_feed(self, feed: OwnFeed, diagnostics: list[Diagnostic]) -> ResolvedFeed | None:
        source = feed.source
        if source.text not in self._services:
            message = f"no service {quote(source.shown)}"
            hint = did_you_mean(source.text, self._services)
            diagnostics.append(codes.UNKNOWN_SERVICE.at(source.span, message, hint=hint))
            return None

        return ResolvedFeed(
            name=feed.name.text,
            service=source.text,
            path=feed.path.text,
            ttl=feed.ttl,
            description=feed.description,
            span=feed.span,
        )

    def _find(self, name: ScalarNode, diagnostics: list[Diagnostic]) -> DeclaredFeed | None:
        """Return the one feed of that name or full name; report none, or several."""
        candidates = [
            each for each in self._declared if name.text in {each.feed.name, each.full_name}
        ]
        if len(candidates) == 1:
            return candidates[0]

        if candidates:
            names = ", ".join(quote(each.full_name) for each in candidates)
            message = f"several services declare a feed {quote(name.shown)}"
            help_text = f"write one of {names}"
            diagnostics.append(codes.AMBIGUOUS_FEED.at(name.span, message, help_text=help_text))
        elif self._is_complete:
            diagnostics.append(self._unknown_feed(name))
        return None

    def _unknown_feed(self, name: ScalarNode) -> Diagnostic:
        full_names = {each.full_name for each in self._declared}
        names = {each.feed.name for each in self._declared}

        message = f"no service declares a feed {quote(name.shown)}"
        hint = did_you_mean(name.text, names | full_names)
        help_text = "no service of the pod declares a feed"
        if full_names:
            help_text = f"the pod has {', '.join(sorted(full_names))}"
        return codes.UNKNOWN_FEED.at(name.span, message, hint=hint, help_text=help_text)
