"""Emit: projected agents → the tree of files, as bytes (docs/spec/contract.md "Layout",
docs/spec/compile.md "Output").

What an agent may know is its contract, CLAWDAPUS.md, its skills and the configuration of its MCP
client: those are mounted into it. The rest holds credentials, and is for the proxy.
pod-manifest.json holds no credential and no value of a variable: ``podName``, ``services`` and
``proxies`` are as the original has them, for dashboards that read it; the rest is ours. The order
of the YAML changes no byte of it.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, assert_never

from pydantic import BaseModel

from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.identity import agent_token
from claw_compile.output.agent_files import SKILLS, mcp_files, page, runner_env
from claw_compile.output.mcp_client import MCP
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode, child, scalar_value
from claw_compile.policy.agent import Agent, GrantedTool
from claw_compile.policy.explain import reasons
from claw_compile.policy.project import ProjectedAgent, ProjectedPod
from claw_contract.context_files import ContextBlocks, Feeds
from claw_contract.manifest import Manifest
from claw_contract.metadata import Metadata, ModelPolicy
from claw_contract.names import assign_aliases
from claw_contract.secret import REVEAL, Secret

VERSION = 1
_MAX_EXACT = 2**53  # JavaScript knows no larger integer exactly, and ids of channels are larger
_OPTIONAL_LIMITS = ("on_budget", "max_parallel")
type Tree = Mapping[PurePosixPath, bytes]
"""Relative path → content.

Files that hold no credential and that an agent reads are 0644, all others 0600.
"""


def is_for_its_agent(path: PurePosixPath) -> bool:
    """Return whether the agent itself may read a file of the tree: it holds no credential, and the
    agent's user may be any.

    >>> is_for_its_agent(PurePosixPath("context/analyst/AGENTS.md"))
    True
    >>> is_for_its_agent(PurePosixPath("agents/analyst/env"))
    False
    """
    match path.parts:
        case ("context", _, "AGENTS.md" | "CLAWDAPUS.md"):
            return True
        case ("context", _, directory, *_):
            return directory in {SKILLS, MCP}
        case _:
            return False


def emit(pod: ProjectedPod, master: Secret) -> Tree:
    """Return ``context/<agent-id>/…`` for the proxy, ``agents/<agent-id>/…`` for
    the runner, and the pod's own files.
    """
    tree: dict[PurePosixPath, bytes] = {}
    digests: dict[str, str] = {}
    for agent in pod.agents:
        token = agent_token(master, agent.agent.id, agent.epoch)
        context = {**_agent_files(agent), **_proxy_files(agent)}
        metadata = _metadata(agent, token)
        context["metadata.json"] = _model_json(metadata)
        digests[agent.agent.id] = digest(context)
        context["metadata.json"] = _model_json(
            metadata.model_copy(update={"digest": digests[agent.agent.id]})
        )
        tree.update(
            {PurePosixPath("context", agent.agent.id, name): data for name, data in context.items()}
        )
        tree[PurePosixPath("agents", agent.agent.id, "env")] = runner_env(agent.agent, token)
    if pod.providers is not None:
        tree[PurePosixPath("auth", "providers.json")] = _model_json(pod.providers)
    tree[PurePosixPath("pod-manifest.json")] = _json(
        pod_manifest(pod.spec, pod.agents, digests, pod.sources)
    )
    return tree


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of an agent's compiled files, in the order of their names.

    Of each file: its name, a zero byte, its length in decimal, a zero byte, its content.
    ``metadata.json`` counts as it is without ``digest``. Every event of the proxy carries it, so
    that audit can name the exact compile.
    """
    sha = hashlib.sha256()
    for name in sorted(files):
        sha.update(name.encode() + b"\0" + str(len(files[name])).encode() + b"\0" + files[name])
    return sha.hexdigest()


def _agent_files(agent: ProjectedAgent) -> dict[str, bytes]:
    skills = {f"{SKILLS}/{skill.name}": skill.content for skill in agent.agent.skills}
    return {
        "AGENTS.md": agent.contract,
        "CLAWDAPUS.md": page(agent).encode(),
        **skills,
        **mcp_files(agent),
    }


def _proxy_files(agent: ProjectedAgent) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if agent.manifest is not None:
        files["tools.json"] = _json(manifest_data(agent.manifest))
    if agent.feeds:
        files["feeds.json"] = _model_json(Feeds(agent.feeds))
    if agent.memory is not None:
        files["memory.json"] = _model_json(agent.memory)
    if agent.agent.blocks:
        files["context-blocks.json"] = _model_json(
            ContextBlocks(version=1, blocks=agent.agent.blocks)
        )
    files.update(
        (f"service-auth/{each.service}.json", _model_json(each)) for each in agent.principals
    )
    return files


def _metadata(agent: ProjectedAgent, token: Secret) -> Metadata:
    resolved = agent.agent
    return Metadata(
        service=resolved.spec.name.text,
        ordinal=resolved.ordinal,
        pod=agent.pod,
        type=resolved.spec.runner,
        token=token,
        timezone=resolved.timezone,
        model_policy=ModelPolicy(mode="clamp", allowed=resolved.models)
        if resolved.models
        else None,
        budget=resolved.budget,
    )


def _model_json(model: BaseModel) -> bytes:
    return _json(model.model_dump(mode="json", by_alias=True, exclude_none=True, context=REVEAL))


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """Return tools.json as data, with its credentials; ``inputSchema`` and
    annotations as the descriptor has them.
    """
    # Limits of the original are always there; ours only when the pod sets them.
    unset = {name for name in _OPTIONAL_LIMITS if name not in manifest.policy.model_fields_set}
    tools = (
        tool.model_dump(mode="json", by_alias=True, exclude_unset=True, context=REVEAL)
        for tool in manifest.tools
    )
    policy = manifest.policy.model_dump(mode="json", exclude={*unset, "soft_deadline_ratio"})
    return {"version": manifest.version, "tools": [*tools], "policy": policy}


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def pod_manifest(
    pod: PodSpec,
    agents: tuple[ProjectedAgent, ...],
    digests: Mapping[str, str],
    sources: Mapping[str, bytes],
) -> dict[str, Any]:
    """Return the document as data.

    ``digests``: agent → digest of its context; ``sources``: path → content.
    """
    assert pod.name is not None
    proxies = sorted({name for each in agents for name in _proxies(each.agent)})
    return {
        "version": VERSION,
        "podName": pod.name.text,
        "services": {service.name.text: _service(service, agents) for service in pod.agents},
        "proxies": [{"proxyType": name, "serviceName": "cllama"} for name in proxies],
        "agents": {each.agent.id: _agent(pod, each, digests[each.agent.id]) for each in agents},
        "sources": {
            path: hashlib.sha256(data).hexdigest() for path, data in sorted(sources.items())
        },
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
    presented = assign_aliases(tool.name for tool in tools)
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
    lists = {
        "tools-defaults": "x-claw.tools-defaults",
        "tools": f"services.{agent.spec.name.text}.x-claw.tools",
    }
    return sorted(
        {lists[reason.origin] for reason in reasons(pod, agent, granted.service, granted.tool.name)}
    )


def carried_data(node: Node) -> Any:
    """Return a carried value as JSON data.

    Variables keep their names; numbers that a reader might change, their spelling.
    """
    match node:
        case ScalarNode():
            value = scalar_value(node.text) if node.plain else node.text
            if value is None or isinstance(value, bool):
                return value
            is_exact = (
                isinstance(value, int) and abs(value) <= _MAX_EXACT and str(value) == node.text
            )
            return value if is_exact else node.text
        case ListNode():
            return [carried_data(item) for item in node.items]
        case MapNode():
            return {
                entry.key.text: carried_data(entry.value)
                for entry in sorted(node.entries, key=lambda each: each.key.text)
            }
    assert_never(node)
