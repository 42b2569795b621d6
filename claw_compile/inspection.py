"""Facts about one service or agent: what it is, its source, and who may do what
with it (``claw inspect``).

Rules. It is data, for people and for programs alike. Of a credential it has the kind and the
source, never the value; what a variable made of a text of the pod file is shown as ``${NAME}``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from claw_compile.compiler import Plan
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import did_you_mean
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.parsing.node import ScalarNode, scalars
from claw_compile.policy.agent import Agent
from claw_compile.policy.connect import base_url
from claw_compile.policy.explain import UnknownName
from claw_compile.policy.project import ProjectedAgent
from claw_compile.policy.topology import topology
from claw_contract.descriptor import DescriptorTool
from claw_contract.names import assign_aliases, canonical_name

type Facts = dict[str, Any]
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_MIN_PART = 4  # A shorter value is not looked for within other text: it would be there by chance


def inspect_pod(plan: Plan, word: str) -> Facts | UnknownName:
    """Return ``{"agents": […], "service": …}`` for an agent's id or a service's
    name; an agent's service is both.
    """
    spec = plan.pod.spec.service(word)
    agents = [each for each in plan.agents if word in {each.agent.id, each.agent.spec.name.text}]
    if spec is None and not agents:
        known = {
            *(each.agent.id for each in plan.agents),
            *(each.name.text for each in plan.pod.spec.services),
        }
        return UnknownName(
            f"the pod has no service and no agent '{word}'", did_you_mean(word, known)
        )
    is_provider = spec is not None and (
        spec.agent is None or plan.pod.descriptors.get(word) is not None
    )
    facts = {
        "agents": [_agent(plan, each) for each in agents],
        "service": _service(plan, spec) if spec is not None and is_provider else None,
    }
    masked: Facts = _mask(facts, _values(plan))
    return masked


def _agent(plan: Plan, projected: ProjectedAgent) -> Facts:
    agent = projected.agent
    tools = projected.manifest.tools if projected.manifest is not None else ()
    presented = assign_aliases(tool.name for tool in tools)
    return {
        "id": agent.id,
        "service": agent.spec.name.text,
        "runner": agent.spec.runner,
        "contract": agent.spec.agent.shown if agent.spec.agent is not None else None,
        "proxy": [name.shown for name in agent.cllama.proxies] if agent.cllama is not None else [],
        "mode": agent.mode,
        "delivery": agent.delivery,
        "token_epoch": projected.epoch,
        "tools": [
            {"name": each.name, "presented_as": presented[each.name], "effect": each.effect}
            for each in tools
        ],
        "policy": projected.manifest.policy.model_dump(mode="json")
        if projected.manifest is not None
        else None,
        "feeds": [
            {"name": feed.name, "service": feed.service, "ttl": feed.ttl} for feed in agent.feeds
        ],
        "memory": _memory(agent),
        "skills": [skill.name for skill in agent.skills],
        "models": {model.slot: model.ref for model in agent.models},
        "budget": agent.budget.model_dump(mode="json", exclude_none=True)
        if agent.budget is not None
        else None,
        "context_blocks": [block.id for block in agent.blocks],
        "surfaces": [surface.shown for surface in agent.surfaces],
        "own_credentials": [
            {"service": each.service.shown, **_from(each.source, each.reference, each.service.text)}
            for each in agent.spec.principals
        ],
        "networks": list(_networks(plan, agent)),
    }


def _memory(agent: Agent) -> Facts | None:
    if agent.memory is None:
        return None
    verbs = ("recall", "retain", "forget")
    can = [verb for verb in verbs if getattr(agent.memory.paths, verb) is not None]
    return {"service": agent.memory.service, "timeout_ms": agent.memory.timeout_ms, "can": can}


def _networks(plan: Plan, agent: Agent) -> Iterator[Facts]:
    for network in topology(plan.pod.spec, plan.resolved).networks:
        if agent.id in network.members:
            yield {
                "name": network.name,
                "internal": network.internal,
                "with": sorted(network.members - {agent.id}),
            }


def _service(plan: Plan, spec: ServiceSpec) -> Facts:
    name = spec.name.text
    service_descriptor = plan.pod.descriptors.get(name)
    used_by = [each.agent.id for each in plan.agents if name in each.agent.called_services]
    is_called, written_url = (
        bool(used_by) or service_descriptor is not None,
        spec.base_url and spec.base_url.shown,
    )
    return {
        "name": name,
        "base_url": written_url or base_url(spec, plan.loaded.variables.lookup, [])
        if is_called
        else None,
        "credential": _credential(spec, service_descriptor),
        "used_by": used_by,
        "reached_by": [
            each.agent.id
            for each in plan.agents
            if name in {reached.service for reached in each.reached}
        ],
        "networks": list(topology(plan.pod.spec, plan.resolved).of(name)),
        "descriptor": _descriptor(service_descriptor) if service_descriptor is not None else None,
        "tools": [
            _declared_tool(plan, name, tool)
            for tool in (service_descriptor.tools if service_descriptor else ())
        ],
    }


def _credential(spec: ServiceSpec, service_descriptor: ServiceDescriptor | None) -> Facts:
    if spec.auth is not None:
        own, source = spec.auth, "secret" if spec.auth.secret is not None else "env"
        of = own.secret or own.env
        source_facts = _from(source, of, spec.name.text) if of is not None else {}
        return {"type": own.type, **source_facts, "said_at": str(own.span)}
    auth = service_descriptor.descriptor.auth if service_descriptor is not None else None
    if service_descriptor is None or auth is None or auth.type == "none":
        return {"type": "none"}
    return {
        "type": auth.type,
        "variable": auth.env,
        "of": spec.name.text,
        "said_at": service_descriptor.file,
    }


def _from(source: str, of: ScalarNode, service: str) -> Facts:
    return {"secret": of.shown} if source == "secret" else {"variable": of.shown, "of": service}


def _descriptor(service_descriptor: ServiceDescriptor) -> Facts:
    said = service_descriptor.descriptor.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"tools"}
    )
    source = {
        "found_in": service_descriptor.file,
        "as": service_descriptor.source,
        "digest": service_descriptor.digest,
    }
    return source | said


def _declared_tool(plan: Plan, service: str, tool: DescriptorTool) -> Facts:
    name = canonical_name(service, tool.name)
    manifests = [
        (each.agent.id, each.manifest) for each in plan.agents if each.manifest is not None
    ]
    return {
        "name": tool.name,
        "effect": tool.effect,
        "call": f"{tool.http.method} {tool.http.path}" if tool.http is not None else "MCP",
        "description": tool.description,
        "granted_to": [
            agent
            for agent, manifest in manifests
            if any(each.name == name for each in manifest.tools)
        ],
    }


def _values(plan: Plan) -> Mapping[str, str]:
    names = {
        name for node in scalars(plan.pod.spec.document) for name in _REFERENCE.findall(node.text)
    }
    pairs = ((plan.loaded.variables.lookup(name), name) for name in sorted(names))
    return {value: name for value, name in pairs if value}


def _mask(data: Any, values: Mapping[str, str]) -> Any:
    match data:
        case str() if data in values:
            return f"${{{values[data]}}}"
        case str():
            for value in sorted(values, key=len, reverse=True):
                if len(value) >= _MIN_PART:
                    data = data.replace(value, f"${{{values[value]}}}")
            return data
        case list():
            return [_mask(item, values) for item in data]
        case dict():
            return {key: _mask(item, values) for key, item in data.items()}
        case _:
            return data
