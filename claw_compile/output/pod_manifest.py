"""pod-manifest.json: what was compiled, from what (spec/compile.md "Output").

``podName``, ``services`` and ``proxies`` are as the original has them, for dashboards that read it; the rest is ours. It
holds no credential and no value of a variable, and places by name: the order of the YAML changes no byte of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from claw_compile.authority.agent import Agent
from claw_compile.authority.project import Projected
from claw_compile.authority.reasons import reasons
from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.grammar.read_original import carried_data
from claw_compile.reading.node import ScalarNode
from claw_contract.names import assign_aliases

VERSION = 1


def pod_manifest(
    pod: PodSpec, agents: tuple[Projected, ...], digests: Mapping[str, str], sources: Mapping[str, bytes]
) -> dict[str, Any]:
    """The document as data. ``digests``: agent → digest of its context; ``sources``: every
    file beside the pod file that was read, by its path.
    """
    assert pod.name is not None
    proxies = sorted({name for each in agents for name in _proxies(each.agent)})
    return {
        "version": VERSION,
        "podName": pod.name.text,
        "services": {agent.name.text: _service(agent, _first(agents, agent)) for agent in pod.agents},
        "proxies": [{"proxyType": name, "serviceName": "cllama"} for name in proxies],
        "agents": {each.agent.id: _agent(pod, each, digests[each.agent.id]) for each in agents},
        "sources": {path: hashlib.sha256(data).hexdigest() for path, data in sorted(sources.items())},
        **({"carried": _carried(pod.carried)} if pod.carried else {}),
    }


def _first(agents: tuple[Projected, ...], service: ServiceSpec) -> Agent:
    """The agent of a service, or the first one of them: what they were given is the same."""
    return next(each.agent for each in agents if each.agent.spec is service)


def _service(service: ServiceSpec, agent: Agent) -> dict[str, Any]:
    image = service.body.value("image") if service.body is not None else None
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
    """Keys of the original as the file has them: variables stay ``${NAME}``."""
    return {name: carried_data(node) for name, node in sorted(nodes.items())}


def _agent(pod: PodSpec, projected: Projected, digest: str) -> dict[str, Any]:
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


def _tools(pod: PodSpec, projected: Projected) -> list[dict[str, Any]]:
    tools = projected.manifest.tools if projected.manifest is not None else ()
    presented = assign_aliases(tool.name for tool in tools)
    return [
        {
            "name": tool.name,
            "presented": presented[tool.name],
            "effect": tool.effect,
            "granted": sorted(
                {
                    _where(projected.agent, reason.origin)
                    for reason in reasons(pod, projected.agent, granted.service, granted.tool.name)
                }
            ),
        }
        for tool, granted in zip(tools, projected.agent.tools, strict=True)
    ]


def _where(agent: Agent, origin: str) -> str:
    """Which list a grant stands in."""
    return f"x-claw.{origin}" if origin == "tools-defaults" else f"services.{agent.spec.name.text}.x-claw.{origin}"
