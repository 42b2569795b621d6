"""Facts about one service or agent (``claw inspect``).

They say what it is, where that is said, and who may do what with it.

Rules. It is data, for people and for programs alike. Of a credential it has the kind and the
source, never the value. What a variable put into a text of the pod file is shown as ``${NAME}``.
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
from claw_contract.manifest import Manifest
from claw_contract.names import assign_aliases, canonical_name

type Facts = dict[str, Any]
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_MIN_PART = 4  # A shorter value is not looked for within other text: it would be there by chance


def inspect_pod(plan: Plan, word: str) -> Facts | UnknownName:
    """Return ``{"agents": […], "service": …}`` for an agent's id or a service's name.

    The service of an agent may be both.
    """
    spec = plan.pod.spec.service(word)
    agents = [each for each in plan.agents if word in {each.agent.id, each.agent.spec.name.text}]
    if spec is None and not agents:
        names = {each.agent.id for each in plan.agents}
        names |= {each.name.text for each in plan.pod.spec.services}
        message = f"the pod has no service and no agent '{word}'"
        return UnknownName(message, did_you_mean(word, names))

    service: Facts | None = None
    if spec is not None:
        is_agent_only = spec.agent is not None and plan.pod.descriptors.get(word) is None
        service = None if is_agent_only else _service(plan, spec)

    facts = {"agents": [_agent(plan, each) for each in agents], "service": service}
    safe_facts: Facts = _mask(facts, _values(plan))
    return safe_facts


def _agent(plan: Plan, projected: ProjectedAgent) -> Facts:
    """Return all that is known of an agent. One without a proxy has no manifest."""
    agent = projected.agent
    contract = agent.spec.agent
    proxies = agent.cllama.proxies if agent.cllama is not None else ()

    tools: list[Facts] = []
    policy: Facts | None = None
    if projected.manifest is not None:
        tools = _granted_tools(projected.manifest)
        policy = projected.manifest.policy.model_dump(mode="json")

    own_credentials: list[Facts] = []
    for each in agent.spec.principals:
        origin = _from(each.source, each.reference, each.service.text)
        own_credentials.append({"service": each.service.shown, **origin})

    return {
        "id": agent.id,
        "service": agent.spec.name.text,
        "runner": agent.spec.runner,
        "contract": contract.shown if contract is not None else None,
        "proxy": [name.shown for name in proxies],
        "mode": agent.mode,
        "delivery": agent.delivery,
        "token_epoch": projected.epoch,
        "tools": tools,
        "policy": policy,
        "feeds": [
            {"name": feed.name, "service": feed.service, "ttl": feed.ttl} for feed in agent.feeds
        ],
        "memory": _memory(agent),
        "skills": [skill.name for skill in agent.skills],
        "models": {model.slot: model.ref for model in agent.models},
        "budget": _budget(agent),
        "context_blocks": [block.id for block in agent.blocks],
        "surfaces": [surface.shown for surface in agent.surfaces],
        "own_credentials": own_credentials,
        "networks": list(_networks(plan, agent)),
    }


def _granted_tools(manifest: Manifest) -> list[Facts]:
    aliases = assign_aliases(tool.name for tool in manifest.tools)
    return [
        {"name": tool.name, "presented_as": aliases[tool.name], "effect": tool.effect}
        for tool in manifest.tools
    ]


def _budget(agent: Agent) -> Facts | None:
    if agent.budget is None:
        return None
    return agent.budget.model_dump(mode="json", exclude_none=True)


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
    descriptor = plan.pod.descriptors.get(name)
    used_by = [each.agent.id for each in plan.agents if name in each.agent.called_services]
    reached_by = [
        each.agent.id
        for each in plan.agents
        if any(reached.service == name for reached in each.reached)
    ]

    # A service that the proxy does not call has no base URL.
    url: str | None = None
    if used_by or descriptor is not None:
        written_url = spec.base_url.shown if spec.base_url is not None else None
        url = written_url or base_url(spec, plan.loaded.variables.lookup, [])

    tools = descriptor.tools if descriptor is not None else ()
    return {
        "name": name,
        "base_url": url,
        "credential": _credential(spec, descriptor),
        "used_by": used_by,
        "reached_by": reached_by,
        "networks": list(topology(plan.pod.spec, plan.resolved).of(name)),
        "descriptor": _descriptor(descriptor) if descriptor is not None else None,
        "tools": [_declared_tool(plan, name, tool) for tool in tools],
    }


def _credential(spec: ServiceSpec, descriptor: ServiceDescriptor | None) -> Facts:
    """Return how the proxy authenticates: as the pod says, or else as the descriptor does."""
    if spec.auth is not None:
        source = "secret" if spec.auth.secret is not None else "env"
        reference = spec.auth.secret or spec.auth.env
        of = _from(source, reference, spec.name.text) if reference is not None else {}
        return {"type": spec.auth.type, **of, "said_at": str(spec.auth.span)}

    auth = descriptor.descriptor.auth if descriptor is not None else None
    if descriptor is None or auth is None or auth.type == "none":
        return {"type": "none"}
    return {
        "type": auth.type,
        "variable": auth.env,
        "of": spec.name.text,
        "said_at": descriptor.file,
    }


def _from(source: str, reference: ScalarNode, service: str) -> Facts:
    """Return the source of a credential: a secret of the pod, or a variable of a service."""
    if source == "secret":
        return {"secret": reference.shown}
    return {"variable": reference.shown, "of": service}


def _descriptor(descriptor: ServiceDescriptor) -> Facts:
    document = descriptor.descriptor.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"tools"}
    )
    source = {
        "found_in": descriptor.file,
        "as": descriptor.source,
        "digest": descriptor.digest,
    }
    return source | document


def _declared_tool(plan: Plan, service: str, tool: DescriptorTool) -> Facts:
    name = canonical_name(service, tool.name)
    granted_to = [
        each.agent.id
        for each in plan.agents
        if each.manifest is not None
        and any(granted.name == name for granted in each.manifest.tools)
    ]
    return {
        "name": tool.name,
        "effect": tool.effect,
        "call": f"{tool.http.method} {tool.http.path}" if tool.http is not None else "MCP",
        "description": tool.description,
        "granted_to": granted_to,
    }


def _values(plan: Plan) -> Mapping[str, str]:
    """Return value → name of each variable that the pod file refers to."""
    names: set[str] = set()
    for node in scalars(plan.pod.spec.document):
        names.update(_REFERENCE.findall(node.text))

    # In the order of their names: of two variables with one value it is always the same that shows.
    values: dict[str, str] = {}
    for name in sorted(names):
        value = plan.loaded.variables.lookup(name)
        if value:
            values[value] = name
    return values


def _mask(data: Any, values: Mapping[str, str]) -> Any:
    """Return data with ``${NAME}`` for each value of a variable, in whole texts and within them."""
    match data:
        case str() if data in values:
            return f"${{{values[data]}}}"
        case str():
            # Longer values first: one may be a part of another.
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
