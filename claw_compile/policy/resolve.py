"""Resolve: each agent after defaults and spreads are expanded (docs/spec/compile.md "Tools", "Defaults", "count").

Rules. Per service ``all`` wins, else the names are united; ``deny`` beats ``allow``. The order is service, then descriptor: no
reordering of the YAML changes it. ``count`` above one makes ``name-0 … name-(N-1)``, which differ in nothing but their ids.

An agent's own skill hides a service's of the same name. A service's ``SKILL.md`` is named by its service, and so are two skills
of one name. The pod has one proxy: two agents that want different values of one variable of it are an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, quote
from claw_compile.grammar.pod import AllTools, Grant, MemorySetting, PodSpec, ServiceSpec, Setting, Skill, own_entries
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.environment import variables
from claw_compile.policy.agent import Agent, GrantedTool, MemoryRelation, ResolvedPod
from claw_compile.policy.defaults import expand_list, inherited_defaults, merge_models
from claw_compile.policy.feeds import Feeds
from claw_contract.descriptor import DescriptorV2
from claw_contract.manifest import Policy

_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}")
_COMMON_NAME = "skill.md"
EGRESS, EGRESS_WORDS = "CLLAMA_EGRESS", ("allow", "deny")


def resolve(loaded: LoadedPod) -> Result[ResolvedPod]:
    """Return every agent of the pod, by service and ordinal."""
    resolver = _Resolver(loaded, loaded.pod, Feeds(loaded.pod, loaded.descriptors))
    resolver.feeds.check(own_entries(loaded.pod.feeds), resolver.diagnostics)
    agents = tuple(agent for spec in loaded.pod.agents for agent in resolver.agents(spec))
    env = proxy_env(loaded.pod, agents, resolver.diagnostics)
    return Result(ResolvedPod(agents, env), tuple(resolver.diagnostics))


@dataclass(frozen=True)
class _Resolver:
    loaded: LoadedPod
    pod: PodSpec
    feeds: Feeds
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
        limits = spec.limits if spec.limits is not None else pod.limits
        spending = spec.spending if spec.spending is not None else pod.spending
        blocks = spec.context if spec.context is not None else pod.context
        return Agent(
            spec=spec,
            id=spec.name.text,
            cllama=spec.cllama if spec.cllama is not None else pod.cllama,
            grants=grants,
            surfaces=surfaces,
            tools=_granted_tools(grants, self.loaded.descriptors),
            policy=limits.policy if limits is not None else Policy(),
            takes=inherited_defaults(pod, spec),
            models=merge_models(spec.models, pod.models),
            budget=spending.budget if spending is not None else None,
            memory=self._memory(spec.memory if spec.memory is not None else pod.memory),
            skills=self._skills(spec, (*(grant.service.text for grant in grants), *reached)),
            blocks=blocks.blocks if blocks is not None else (),
            timezone=self._timezone(spec),
        )

    def _memory(self, wanted: MemorySetting | None) -> MemoryRelation | None:
        if wanted is None or wanted.service is None:
            return None
        service_descriptor = self.loaded.descriptors.get(wanted.service.text)
        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        if not isinstance(descriptor, DescriptorV2) or descriptor.memory is None:
            return None
        return MemoryRelation(wanted.service.text, wanted.timeout_ms, descriptor.memory, wanted.service.span)

    def _skills(self, spec: ServiceSpec, services: Iterable[str]) -> tuple[SkillFile, ...]:
        """Return the agent's own skills, and those of the services that it may use."""
        named = expand_list(spec.skills, self.pod.skills, "skills-defaults", self.diagnostics)
        service_skills = (
            self.loaded.service_skills[name] for name in sorted(set(services)) if name in self.loaded.service_skills
        )
        return agent_skills(named, self.loaded.skills, service_skills, self.diagnostics)

    def _timezone(self, spec: ServiceSpec) -> str:
        """Return the container's ``TZ``. Only the proxy can tell whether the zone exists: machines differ."""
        zones = (each for each in variables(spec.environment, self.loaded.variables.lookup) if each.name == "TZ")
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
            granted.extend(GrantedTool(service, tool) for tool in offered.tools if tool.name in names)
    return tuple(granted)


def _allowed_names(grants: Iterable[Grant], service_descriptor: ServiceDescriptor) -> set[str]:
    allowed: set[str] = set()
    denied: set[str] = set()
    for grant in grants:
        if isinstance(grant.allow, AllTools):
            allowed |= {tool.name for tool in service_descriptor.tools}
        else:
            allowed |= {name.text for name in grant.allow}
        denied |= {name.text for name in grant.deny}
    return allowed - denied


def agent_skills(
    named: Iterable[Skill],
    read: Mapping[str, SkillFile],
    service_skills: Iterable[SkillFile],
    diagnostics: list[Diagnostic],
) -> tuple[SkillFile, ...]:
    """Return the agent's own skills in the order of the file, then those of its services by name."""
    own: dict[str, Skill] = {}
    for skill in named:
        if skill.path.text in read:
            own.setdefault(skill.path.text, skill)
    files = [read[path] for path in own]
    holders = {read[path].name: skill for path, skill in own.items()}
    for each in _by_service(service_skills):
        holder = holders.get(each.name)
        if holder is None:
            files.append(each)
        else:
            message = f"{quote(each.name)} hides the skill of that name that {each.origin} brings"
            diagnostics.append(codes.SKILL_HIDDEN.at(holder.path.span, message))
    return tuple(files)


def _by_service(service_skills: Iterable[SkillFile]) -> list[SkillFile]:
    skills = [
        replace(skill, name=f"{skill.origin}.md") if skill.name.lower() == _COMMON_NAME else skill
        for skill in service_skills
    ]
    times = Counter(skill.name for skill in skills)
    distinct = (
        replace(skill, name=f"{skill.origin}-{skill.name}") if times[skill.name] > 1 else skill for skill in skills
    )
    return sorted(distinct, key=lambda skill: skill.name)


def proxy_env(pod: PodSpec, agents: Iterable[Agent], diagnostics: list[Diagnostic]) -> Mapping[str, Setting]:
    """Return the environment of the pod's one proxy, from all that its agents ask for: name → value, sorted."""
    merged: dict[str, Setting] = {}
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
        diagnostics.append(codes.BAD_EGRESS.at(egress.key, f"{EGRESS} takes {' or '.join(EGRESS_WORDS)}"))
    return dict(sorted(merged.items()))
