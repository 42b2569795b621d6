"""Resolve: what each agent has once defaults and spreads are expanded (spec/compile.md "Tools", "Defaults").

Rules. Absent inherits, present replaces, ``...`` splices the defaults at its place. Per service ``all`` wins, else the
names are united; ``deny`` beats ``allow``. The order is service, then descriptor: no reordering of the YAML changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from claw_compile import codes
from claw_compile.authority.agent import Agent, GrantedTool, Resolved
from claw_compile.descriptors.descriptor import Described
from claw_compile.diagnostics.diagnostic import Checked, Diagnostic, Note, Span
from claw_compile.grammar.pod import All, Grant, Listed, PodSpec, ServiceSpec, Spread
from claw_compile.loading.load import Loaded
from claw_contract.manifest import Policy


def resolve(loaded: Loaded) -> Checked[Resolved]:
    """Every agent of the pod, by name."""
    found: list[Diagnostic] = []
    agents = tuple(_agent(loaded.pod, spec, loaded.described, found) for spec in loaded.pod.agents)
    return Checked(Resolved(agents), tuple(found))


def _agent(
    pod: PodSpec, spec: ServiceSpec, described: Mapping[str, Described | None], found: list[Diagnostic]
) -> Agent:
    grants = _expanded(spec.tools, pod.tools, "tools-defaults", found)
    inherits = spec.tools is None or any(isinstance(entry, Spread) for entry in spec.tools.entries)
    cllama = spec.cllama if spec.cllama is not None else pod.cllama
    limits = spec.limits if spec.limits is not None else pod.limits
    return Agent(
        spec=spec,
        id=spec.name.text,
        has_proxy=cllama is not None and bool(cllama.proxies),
        grants=grants,
        surfaces=_expanded(spec.surfaces, pod.surfaces, "surfaces-defaults", found),
        tools=_authority(grants, described),
        policy=limits.policy if limits is not None else Policy(),
        takes_defaults=inherits and pod.tools is not None,
    )


def _expanded[T](
    own: Listed[T] | None, defaults: Listed[T] | None, name: str, found: list[Diagnostic]
) -> tuple[T, ...]:
    inherited = tuple(entry for entry in defaults.entries if not isinstance(entry, Spread)) if defaults else ()
    if own is None:
        return inherited
    expanded: list[T] = []
    for entry in own.entries:
        if not isinstance(entry, Spread):
            expanded.append(entry)
        elif defaults is None:
            found.append(codes.SPREAD_WITHOUT_DEFAULTS.at(entry.span, f"the pod has no '{name}'"))
        else:
            expanded.extend(inherited)
    return tuple(expanded)


def _authority(grants: Iterable[Grant], described: Mapping[str, Described | None]) -> tuple[GrantedTool, ...]:
    by_service: dict[str, list[Grant]] = {}
    for grant in grants:
        by_service.setdefault(grant.service.text, []).append(grant)
    granted: list[GrantedTool] = []
    for service in sorted(by_service):
        offered = described.get(service)
        if offered is not None:
            names = _allowed(by_service[service], offered)
            granted.extend(GrantedTool(service, tool) for tool in offered.tools if tool.name in names)
    return tuple(granted)


def _allowed(grants: Iterable[Grant], described: Described) -> set[str]:
    allowed: set[str] = set()
    denied: set[str] = set()
    for grant in grants:
        if isinstance(grant.allow, All):
            allowed |= {tool.name for tool in described.tools}
        else:
            allowed |= {name.text for name in grant.allow}
        denied |= {name.text for name in grant.deny}
    return allowed - denied


def inherited_note(agent: Agent, pod: PodSpec) -> tuple[Span, tuple[Note, ...]]:
    """Where an agent's grants come from: its own ``tools``, or its name and the defaults that it inherits."""
    if agent.spec.tools is not None:
        return agent.spec.tools.key, ()
    assert pod.tools is not None
    return agent.spec.name.span, (Note(pod.tools.key, "the tools are inherited from here"),)
