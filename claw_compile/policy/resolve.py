"""Resolve: each agent after defaults and spreads are expanded (docs/spec/compile.md
"Tools", "Defaults", "count").

tools surfaces feeds skills      absent inherits, present replaces, one ``...`` splices, empty
suppresses models cllama-env                key by key, the service wins; ``models: {}`` or ``null``
suppresses tool-policy budget memory        replaced whole; ``null`` suppresses cllama
context.blocks            replaced whole; ``[]`` and ``null`` suppress

Rules. Per service ``all`` wins, else the names are united; ``deny`` beats ``allow``. The order is
service, then descriptor: no reordering of the YAML changes it. ``count`` above one makes ``name-0 …
name-(N-1)``, which differ in nothing but their ids.

An agent's own skill hides a service's of the same name. A service's ``SKILL.md`` is named by its
service, and so are two skills of one name. The pod has one proxy: two agents that want different
values of one variable of it are an error.

A feed that several services declare is named in full, ``service/name``. ``{claw_id}`` in a name or
a path is the agent's id. A feed that the pod declares itself bypasses the descriptors; its service
must exist all the same.
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

PRIMARY = "primary"
CLAW_ID = "{claw_id}"
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}")
_COMMON_NAME = "skill.md"
EGRESS, EGRESS_WORDS = "CLLAMA_EGRESS", ("allow", "deny")


def resolve(loaded: LoadedPod) -> Result[ResolvedPod]:
    """Return every agent of the pod, by service and ordinal."""
    resolver = _Resolver(loaded, loaded.pod, DeclaredFeeds(loaded.pod, loaded.descriptors))
    resolver.feeds.check(own_entries(loaded.pod.feeds), resolver.diagnostics)
    agents = tuple(agent for spec in loaded.pod.agents for agent in resolver.agents(spec))
    env = proxy_env(loaded.pod, agents, resolver.diagnostics)
    return Result(ResolvedPod(agents, env), tuple(resolver.diagnostics))


@dataclass(frozen=True)
class _Resolver:
    loaded: LoadedPod
    pod: PodSpec
    feeds: "DeclaredFeeds"
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def agents(self, spec: ServiceSpec) -> Iterator[Agent]:
        agent = self._agent(spec)
        wanted = expand_list(spec.feeds, self.pod.feeds, "feeds-defaults", self.diagnostics)
        for index, host in enumerate(spec.hosts):
            feeds = self.feeds.resolve(wanted, host, self.diagnostics)
            yield replace(agent, id=host, ordinal=index if spec.count > 1 else None, feeds=feeds)

    def _agent(self, spec: ServiceSpec) -> Agent:
        pod, diagnostics = self.pod, self.diagnostics
        grants = expand_list(spec.tools, pod.tools, "tools-defaults", diagnostics)
        surfaces = expand_list(spec.surfaces, pod.surfaces, "surfaces-defaults", diagnostics)
        reached = (surface.target for surface in surfaces if surface.scheme == "service")
        limits, spending, context = (
            spec.tool_policy or pod.tool_policy,
            spec.spending or pod.spending,
            spec.context or pod.context,
        )
        return Agent(
            spec=spec,
            id=spec.name.text,
            cllama=spec.cllama or pod.cllama,
            grants=grants,
            surfaces=surfaces,
            tools=_granted_tools(grants, self.loaded.descriptors),
            policy=limits.policy if limits is not None else Policy(),
            takes=inherited_defaults(pod, spec),
            models=merge_models(spec.models, pod.models),
            budget=spending.budget if spending is not None else None,
            memory=self._memory(spec.memory or pod.memory),
            skills=self._skills(spec, (*(grant.service.text for grant in grants), *reached)),
            blocks=context.blocks if context is not None else (),
            timezone=self._timezone(spec),
        )

    def _memory(self, wanted: MemorySetting | None) -> MemoryRelation | None:
        if wanted is None or wanted.service is None:
            return None
        service_descriptor = self.loaded.descriptors.get(wanted.service.text)
        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        if not isinstance(descriptor, DescriptorV2) or descriptor.memory is None:
            return None
        return MemoryRelation(
            wanted.service.text, wanted.timeout_ms, descriptor.memory, wanted.service.span
        )

    def _skills(self, spec: ServiceSpec, services: Iterable[str]) -> tuple[SkillFile, ...]:
        named = expand_list(spec.skills, self.pod.skills, "skills-defaults", self.diagnostics)
        service_skills = (
            self.loaded.service_skills[name]
            for name in sorted(set(services))
            if name in self.loaded.service_skills
        )
        return agent_skills(named, self.loaded.skills, service_skills, self.diagnostics)

    def _timezone(self, spec: ServiceSpec) -> str:
        """Return the container's ``TZ``.

        Only the proxy can tell whether the zone exists: machines differ.
        """
        zones = (
            each
            for each in variables(spec.environment, self.loaded.variables.lookup)
            if each.name == "TZ"
        )
        zone = next((each.value.text.strip() for each in zones if not each.value.problems), "")
        return zone if _ZONE.fullmatch(zone) else "UTC"


def _granted_tools(
    grants: Iterable[Grant], descriptors: Mapping[str, ServiceDescriptor | None]
) -> tuple[GrantedTool, ...]:
    by_service: dict[str, list[Grant]] = {}
    for grant in grants:
        by_service.setdefault(grant.service.text, []).append(grant)
    granted: list[GrantedTool] = []
    for service in sorted(by_service):
        offered = descriptors.get(service)
        if offered is not None:
            names = _allowed_names(by_service[service], offered)
            granted.extend(
                GrantedTool(service, tool) for tool in offered.tools if tool.name in names
            )
    return tuple(granted)


def _allowed_names(grants: Collection[Grant], service_descriptor: ServiceDescriptor) -> set[str]:
    allowed: set[str] = set()
    for grant in grants:
        if isinstance(grant.allow, AllTools):
            allowed |= {tool.name for tool in service_descriptor.tools}
        else:
            allowed |= {name.text for name in grant.allow}
    return allowed - {name.text for grant in grants for name in grant.deny}


def agent_skills(
    named: Iterable[ScalarNode],
    read: Mapping[str, SkillFile],
    brought: Iterable[SkillFile],
    diagnostics: list[Diagnostic],
) -> tuple[SkillFile, ...]:
    """Return the agent's own skills in the order of the file, then those that its
    services bring, by name.
    """
    own: dict[str, ScalarNode] = {}
    for path in named:
        if path.text in read:
            own.setdefault(path.text, path)
    files = [read[name] for name in own]
    holders = {read[path].name: skill for path, skill in own.items()}
    for each in _by_service(brought):
        holder = holders.get(each.name)
        if holder is None:
            files.append(each)
        else:
            message = f"{quote(each.name)} hides the skill of that name that {each.origin} brings"
            diagnostics.append(codes.SKILL_HIDDEN.at(holder.span, message))
    return tuple(files)


def _by_service(service_skills: Iterable[SkillFile]) -> list[SkillFile]:
    names = [
        (each, f"{each.origin}.md" if each.name.lower() == _COMMON_NAME else each.name)
        for each in service_skills
    ]
    times = Counter(name for _, name in names)
    distinct = (
        replace(each, name=f"{each.origin}-{name}" if times[name] > 1 else name)
        for each, name in names
    )
    return sorted(distinct, key=lambda skill: skill.name)


def proxy_env(
    pod: PodSpec, agents: Iterable[Agent], diagnostics: list[Diagnostic]
) -> Mapping[str, ProxyVariable]:
    """Return the environment of the pod's one proxy, from all that its agents ask
    for: name → value, sorted.
    """
    merged: dict[str, ProxyVariable] = {}
    for agent in agents:
        if not agent.has_proxy:
            continue
        for name, setting in (dict(pod.cllama_env) | dict(agent.spec.cllama_env)).items():
            first = merged.setdefault(name, setting)
            if first.value != setting.value:
                first, other = sorted((first, setting), key=lambda each: each.key)
                notes = [Note(first.key, "the other one is here")]
                message = f"{name} has two values, and the pod has one proxy"
                diagnostics.append(codes.PROXY_ENV_CONFLICT.at(other.key, message, notes=notes))
    egress = merged.get(EGRESS)
    if egress is not None and egress.value not in EGRESS_WORDS:
        diagnostics.append(
            codes.BAD_EGRESS.at(egress.key, f"{EGRESS} takes {' or '.join(EGRESS_WORDS)}")
        )
    return dict(sorted(merged.items()))


def expand_list[T](
    own: EntryList[T] | None,
    defaults: EntryList[T] | None,
    name: str,
    diagnostics: list[Diagnostic],
) -> tuple[T, ...]:
    """Return a list with the pod's in the place of ``...``, or the pod's where it is absent."""
    inherited = own_entries(defaults)
    if own is None:
        return inherited
    entries: list[T] = []
    for entry in own.entries:
        if not isinstance(entry, Spread):
            entries.append(entry)
        elif defaults is None:
            diagnostics.append(
                codes.SPREAD_WITHOUT_DEFAULTS.at(entry.span, f"the pod has no '{name}'")
            )
        else:
            entries.extend(inherited)
    return tuple(entries)


def merge_models(own: Models | None, defaults: Models | None) -> tuple[AllowedModel, ...]:
    """Return the models in the order in which they are tried: the primary one, the
    fallbacks, then the others by slot.
    """
    layers = [
        layer
        for layer in (defaults, own)
        if layer is not None and not (own is not None and own.is_empty)
    ]
    slots: dict[str, str | None] = {}
    fallback: tuple[str, ...] = ()
    for layer in layers:
        slots |= {slot.text: ref for slot, ref in layer.slots}
        fallback = layer.fallback if layer.fallback is not None else fallback
    first = [(PRIMARY, slots.pop(PRIMARY, None))]
    ordered = [*first, *((FALLBACK, ref) for ref in fallback), *sorted(slots.items())]
    return tuple(AllowedModel(slot=slot, ref=ref) for slot, ref in ordered if ref is not None)


def inherited_defaults(pod: PodSpec, spec: ServiceSpec) -> frozenset[str]:
    """Return the pod's defaults that reach the service, by the name of their key."""
    lists = {
        "tools-defaults": (spec.tools, pod.tools),
        "surfaces-defaults": (spec.surfaces, pod.surfaces),
        "feeds-defaults": (spec.feeds, pod.feeds),
        "skills-defaults": (spec.skills, pod.skills),
    }
    wholes = {
        "tool-policy-defaults": (spec.tool_policy, pod.tool_policy),
        "budget-defaults": (spec.spending, pod.spending),
        "memory-defaults": (spec.memory, pod.memory),
        "cllama-defaults": (spec.cllama, pod.cllama),
        "context": (spec.context, pod.context),
    }
    names = {
        name
        for name, (own, default) in lists.items()
        if default is not None and (own is None or own.spread)
    }
    names |= {
        name for name, (own, default) in wholes.items() if default is not None and own is None
    }
    if pod.models is not None and _takes_models(spec.models, pod.models):
        names.add("models-defaults")
    return frozenset(names)


def _takes_models(own: Models | None, defaults: Models) -> bool:
    if own is None:
        return True
    kept = {slot.text for slot, _ in defaults.slots} - {slot.text for slot, _ in own.slots}
    return not own.is_empty and (
        bool(kept) or (defaults.fallback is not None and own.fallback is None)
    )


@dataclass(frozen=True)
class OfferedFeed:
    service: str
    feed: DescriptorFeed

    @property
    def full_name(self) -> str:
        return f"{self.service}/{self.feed.name}"


class DeclaredFeeds:
    """Every feed that the pod's descriptors declare.

    ``unread``: a descriptor is missing, so that a name may be in it.
    """

    def __init__(self, pod: PodSpec, descriptors: Mapping[str, ServiceDescriptor | None]) -> None:
        self._services = [service.name.text for service in pod.services]
        self._offered = [
            OfferedFeed(name, feed)
            for name, each in sorted(descriptors.items())
            if each is not None
            for feed in each.descriptor.feeds
        ]
        self._unread = any(each is None for each in descriptors.values())

    def resolve(
        self, feeds: Iterable[Feed], agent_id: str, diagnostics: list[Diagnostic]
    ) -> tuple[ResolvedFeed, ...]:
        """Return an agent's feeds in their order, each once."""
        resolved: dict[tuple[str, str, str], ResolvedFeed] = {}
        for feed in feeds:
            if (offered := self._resolve(feed, diagnostics)) is not None:
                name, path = (
                    offered.name.replace(CLAW_ID, agent_id),
                    offered.path.replace(CLAW_ID, agent_id),
                )
                resolved.setdefault(
                    (name, offered.service, path), replace(offered, name=name, path=path)
                )
        return tuple(resolved.values())

    def check(self, feeds: Iterable[Feed], diagnostics: list[Diagnostic]) -> None:
        """Check feeds that no agent may have taken: the pod's defaults are judged all the same."""
        for feed in feeds:
            self._resolve(feed, diagnostics)

    def _resolve(self, feed: Feed, diagnostics: list[Diagnostic]) -> ResolvedFeed | None:
        match feed:
            case ScalarNode():
                if (offered := self._find(feed, diagnostics)) is None:
                    return None
                own = offered.feed
                return ResolvedFeed(
                    own.name, offered.service, own.path, own.ttl, own.description, feed.span
                )
            case OwnFeed():
                if feed.source.text not in self._services:
                    message, hint = (
                        f"no service {quote(feed.source.shown)}",
                        did_you_mean(feed.source.text, self._services),
                    )
                    diagnostics.append(
                        codes.UNKNOWN_SERVICE.at(feed.source.span, message, hint=hint)
                    )
                    return None
                path, name = feed.path.text, feed.name.text
                return ResolvedFeed(
                    name, feed.source.text, path, feed.ttl, feed.description, feed.span
                )
        assert_never(feed)

    def _find(self, name: ScalarNode, diagnostics: list[Diagnostic]) -> OfferedFeed | None:
        candidates = [
            each for each in self._offered if name.text in {each.feed.name, each.full_name}
        ]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(quote(each.full_name) for each in candidates)
            message = f"several services declare a feed {quote(name.shown)}"
            diagnostics.append(
                codes.AMBIGUOUS_FEED.at(name.span, message, help_text=f"write one of {names}")
            )
        elif not self._unread:
            known = [
                spelling for each in self._offered for spelling in (each.feed.name, each.full_name)
            ]
            listed = ", ".join(sorted({each.full_name for each in self._offered}))
            help_text = (
                f"the pod has {listed}" if listed else "no service of the pod declares a feed"
            )
            message = f"no service declares a feed {quote(name.shown)}"
            hint = did_you_mean(name.text, known)
            diagnostics.append(
                codes.UNKNOWN_FEED.at(name.span, message, hint=hint, help_text=help_text)
            )
        return None
