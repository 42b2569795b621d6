"""pod-manifest.json: the result of a compile, and the digests of its sources (docs/spec/compile.md "Output").

``podName``, ``services`` and ``proxies`` are as the original has them, for dashboards that read it; the rest is ours. It
holds no credential and no value of a variable, and places by name: the order of the YAML changes no byte of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, assert_never

from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode, child, scalar_value
from claw_compile.policy.agent import Agent, GrantedTool
from claw_compile.policy.explain import reasons
from claw_compile.policy.project import ProjectedAgent
from claw_contract.names import aliases

VERSION = 1
_MAX_EXACT = 2**53
"""JavaScript knows no larger integer exactly, and ids of channels are larger."""


def pod_manifest(
    pod: PodSpec, agents: tuple[ProjectedAgent, ...], digests: Mapping[str, str], sources: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the document as data. ``digests``: agent → digest of its context; ``sources``: path → content."""
    assert pod.name is not None
    proxies = sorted({name for each in agents for name in _proxies(each.agent)})
    return {
        "version": VERSION,
        "podName": pod.name.text,
        "services": {service.name.text: _service(service, agents) for service in pod.agents},
        "proxies": [{"proxyType": name, "serviceName": "cllama"} for name in proxies],
        "agents": {each.agent.id: _agent(pod, each, digests[each.agent.id]) for each in agents},
        "sources": {path: hashlib.sha256(data).hexdigest() for path, data in sorted(sources.items())},
        **({"carried": _carried(pod.carried)} if pod.carried else {}),
    }


def _service(service: ServiceSpec, agents: tuple[ProjectedAgent, ...]) -> dict[str, Any]:
    # The first of several ordinals: they differ in nothing that matters here.
    agent = next(each.agent for each in agents if each.agent.spec is service)
    image = child(service.body, "image")
    assert service.agent is not None
    return {
        "clawType": service.runner,
        "imageRef": image.text if isinstance(image, ScalarNode) else None,
        "agent": service.agent.shown,
        "models": {model.slot: model.ref for model in reversed(agent.models)},
        "count": service.count,
        "surfaces": [surface.shown for surface in agent.surfaces],
        "skills": [skill.name for skill in agent.skills],
        "cllama": _proxies(agent),
        **_carried(service.carried),
    }


def _proxies(agent: Agent) -> list[str]:
    return [proxy.shown for proxy in agent.cllama.proxies] if agent.cllama is not None else []


def _carried(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of the original as the file has them: variables stay ``${NAME}``."""
    return {name: carried_data(node) for name, node in sorted(nodes.items())}


def _agent(pod: PodSpec, projected: ProjectedAgent, digest: str) -> dict[str, Any]:
    agent = projected.agent
    return {
        "service": agent.spec.name.text,
        "ordinal": agent.ordinal,
        "digest": digest,
        "mode": agent.mode,
        "delivery": agent.delivery,
        "tools": _tools(pod, projected),
        "feeds": [{"name": feed.name, "service": feed.service} for feed in agent.feeds],
        "skills": [{"name": skill.name, "origin": skill.origin} for skill in agent.skills],
        "memory": agent.memory.service if agent.memory is not None else None,
        "principals": [each.service for each in projected.principals],
    }


def _tools(pod: PodSpec, projected: ProjectedAgent) -> list[dict[str, Any]]:
    tools = projected.manifest.tools if projected.manifest is not None else ()
    presented = aliases(tool.name for tool in tools)
    return [
        {
            "name": tool.name,
            "presented": presented[tool.name],
            "effect": tool.effect,
            "granted": _origins(pod, projected.agent, granted),
        }
        for tool, granted in zip(tools, projected.agent.tools, strict=True)
    ]


def _origins(pod: PodSpec, agent: Agent, granted: GrantedTool) -> list[str]:
    """Return the lists that the grants of a tool stand in."""
    lists = {"tools-defaults": "x-claw.tools-defaults", "tools": f"services.{agent.spec.name.text}.x-claw.tools"}
    return sorted({lists[reason.origin] for reason in reasons(pod, agent, granted.service, granted.tool.name)})


def carried_data(node: Node) -> Any:
    """Return a carried value as JSON data. Variables keep their names; numbers that a reader might change, their spelling."""
    match node:
        case ScalarNode():
            value = scalar_value(node.text) if node.plain else node.text
            if value is None or isinstance(value, bool):
                return value
            is_exact = isinstance(value, int) and abs(value) <= _MAX_EXACT and str(value) == node.text
            return value if is_exact else node.text
        case ListNode():
            return [carried_data(item) for item in node.items]
        case MapNode():
            return {
                entry.key.text: carried_data(entry.value)
                for entry in sorted(node.entries, key=lambda each: each.key.text)
            }
    assert_never(node)
