"""Emit: projected agents → the tree of files, as bytes.

Specification: docs/spec/contract.md "Layout", docs/spec/compile.md "Output".

Rules. An agent may know its contract, CLAWDAPUS.md, its skills and the configuration of its MCP
client: those are mounted into it. All other files hold credentials, and are for the proxy.
pod-manifest.json holds no credential and no value of a variable. Its ``podName``, ``services`` and
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
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode, child
from claw_compile.policy.agent import Agent, GrantedTool
from claw_compile.policy.explain import reasons
from claw_compile.policy.project import ProjectedAgent, ProjectedPod
from claw_contract.context_files import ContextBlocks, Feeds
from claw_contract.manifest import Manifest
from claw_contract.metadata import Metadata, ModelPolicy
from claw_contract.names import assign_aliases
from claw_contract.secret import REVEAL, Secret
from claw_contract.yaml_nodes import scalar_value

VERSION = 1
_MAX_EXACT = 2**53  # Above it JavaScript rounds integers, and ids of channels are above it
_OPTIONAL_MEMBERS = ("on_budget", "max_parallel", "stream", "preamble")
"""Members of a policy that tools.json has only where the pod file sets them."""
type Tree = Mapping[PurePosixPath, bytes]
"""Relative path → content.

Files that hold no credential and that an agent reads are 0644, all others 0600.
"""


def is_for_its_agent(path: PurePosixPath) -> bool:
    """Return whether the agent itself may read a file of the tree.

    Such a file holds no credential, and everybody may read it: the agent's user may be any.

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
    """Return the files of all agents, and the pod's own.

    ``context/<agent-id>/…`` is for the proxy, ``agents/<agent-id>/…`` for the runner.
    """
    tree: dict[PurePosixPath, bytes] = {}
    digests: dict[str, str] = {}
    for agent in pod.agents:
        agent_id = agent.agent.id
        token = agent_token(master, agent_id, agent.epoch)

        # metadata.json holds the digest of all files, itself included. So it is written twice:
        # without the digest, which is then taken, and with it.
        context = {**_agent_files(agent), **_proxy_files(agent)}
        metadata = _metadata(agent, token)
        context["metadata.json"] = _model_json(metadata)
        digests[agent_id] = digest(context)
        with_digest = metadata.model_copy(update={"digest": digests[agent_id]})
        context["metadata.json"] = _model_json(with_digest)

        for name, data in context.items():
            tree[PurePosixPath("context", agent_id, name)] = data
        tree[PurePosixPath("agents", agent_id, "env")] = runner_env(agent.agent, token)

    if pod.providers is not None:
        tree[PurePosixPath("auth", "providers.json")] = _model_json(pod.providers)
    manifest = pod_manifest(pod.spec, pod.agents, digests, pod.sources)
    tree[PurePosixPath("pod-manifest.json")] = _json(manifest)
    return tree


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of an agent's compiled files, as ``digest_input`` frames them.

    ``metadata.json`` counts as it is without ``digest``. Every event of the proxy carries the
    digest, so that audit can name the exact compile.
    """
    return hashlib.sha256(digest_input(files)).hexdigest()


def digest_input(files: Mapping[str, bytes]) -> bytes:
    r"""Return the bytes that a digest of files is taken of, in the order of their names.

    Of each file: its name, a zero byte, its length in decimal, a zero byte, its content. The length
    says where the content ends: two trees that differ never give the same bytes.

    >>> digest_input({"b": b"", "a": b"xyz"})
    b'a\x003\x00xyzb\x000\x00'
    """
    parts: list[bytes] = []
    for name in sorted(files):
        content = files[name]
        parts += [name.encode(), b"\0", str(len(content)).encode(), b"\0", content]
    return b"".join(parts)


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
        blocks = ContextBlocks(version=1, blocks=agent.agent.blocks)
        files["context-blocks.json"] = _model_json(blocks)
    for principal in agent.principals:
        files[f"service-auth/{principal.service}.json"] = _model_json(principal)
    return files


def _metadata(agent: ProjectedAgent, token: Secret) -> Metadata:
    resolved = agent.agent
    policy: ModelPolicy | None = None
    if resolved.models:
        policy = ModelPolicy(mode="clamp", allowed=resolved.models)

    return Metadata(
        service=resolved.spec.name.text,
        ordinal=resolved.ordinal,
        pod=agent.pod,
        type=resolved.spec.runner,
        token=token,
        timezone=resolved.timezone,
        model_policy=policy,
        budget=resolved.budget,
    )


def _model_json(model: BaseModel) -> bytes:
    return _json(model.model_dump(mode="json", by_alias=True, exclude_none=True, context=REVEAL))


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """Return tools.json as data, with its credentials.

    ``inputSchema`` and annotations are as the descriptor has them.
    """
    tools = [
        tool.model_dump(mode="json", by_alias=True, exclude_unset=True, context=REVEAL)
        for tool in manifest.tools
    ]

    # Limits of the original are always there; ours only when the pod sets them.
    unset = {name for name in _OPTIONAL_MEMBERS if name not in manifest.policy.model_fields_set}
    policy = manifest.policy.model_dump(mode="json", exclude={*unset, "soft_deadline_ratio"})
    return {"version": manifest.version, "tools": tools, "policy": policy}


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

    document: dict[str, Any] = {
        "version": VERSION,
        "podName": pod.name.text,
        "services": {service.name.text: _service(service, agents) for service in pod.agents},
        "proxies": [{"proxyType": name, "serviceName": "cllama"} for name in proxies],
        "agents": {each.agent.id: _agent(pod, each, digests[each.agent.id]) for each in agents},
        "sources": {
            path: hashlib.sha256(data).hexdigest() for path, data in sorted(sources.items())
        },
    }

    if pod.carried:
        document["carried"] = _carried(pod.carried)
    return document


def _service(service: ServiceSpec, agents: tuple[ProjectedAgent, ...]) -> dict[str, Any]:
    assert service.agent is not None
    image = child(service.body, "image")

    # The first of several ordinals: they differ in nothing that matters here.
    agent = next(each.agent for each in agents if each.agent.spec is service)

    # A slot may have several models, as fallbacks do: the first of them wins.
    models = {model.slot: model.ref for model in reversed(agent.models)}

    return {
        "clawType": service.runner,
        "imageRef": image.text if isinstance(image, ScalarNode) else None,
        "agent": service.agent.shown,
        "models": models,
        "count": service.count,
        "surfaces": [surface.shown for surface in agent.surfaces],
        "skills": [skill.name for skill in agent.skills],
        "cllama": _proxies(agent),
        **_carried(service.carried),
    }


def _proxies(agent: Agent) -> list[str]:
    if agent.cllama is None:
        return []
    return [proxy.shown for proxy in agent.cllama.proxies]


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
    if projected.manifest is None:
        return []

    tools = projected.manifest.tools
    aliases = assign_aliases(tool.name for tool in tools)
    # The manifest's tools are the agent's grants, in the same order.
    return [
        {
            "name": tool.name,
            "presented": aliases[tool.name],
            "effect": tool.effect,
            "granted": _origins(pod, projected.agent, granted),
        }
        for tool, granted in zip(tools, projected.agent.tools, strict=True)
    ]


def _origins(pod: PodSpec, agent: Agent, granted: GrantedTool) -> list[str]:
    """Return the lists of the pod file that grant a tool."""
    lists = {
        "tools-defaults": "x-claw.tools-defaults",
        "tools": f"services.{agent.spec.name.text}.x-claw.tools",
    }
    grants = reasons(pod, agent, granted.service, granted.tool.name)
    return sorted({lists[reason.origin] for reason in grants})


def carried_data(node: Node) -> Any:
    """Return a carried value as JSON data.

    Variables keep their names. A number that a reader might change, such as ``0x1f``, ``1.50`` or
    a long id, is a string with its spelling.
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
            in_order = sorted(node.entries, key=lambda each: each.key.text)
            return {entry.key.text: carried_data(entry.value) for entry in in_order}
    assert_never(node)
