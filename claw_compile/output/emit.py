"""Emit: projected agents → the tree of files, as bytes (docs/spec/contract.md "Layout", docs/spec/compile.md "Output").

What an agent may know is its contract, CLAWDAPUS.md and its skills: those are mounted into it. The rest holds credentials, and
is for the proxy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel

from claw_compile.identity import agent_token
from claw_compile.output.agent_page import SKILLS, page
from claw_compile.output.pod_manifest import pod_manifest
from claw_compile.output.runner_env import runner_env
from claw_compile.policy.project import ProjectedAgent, ProjectedPod
from claw_contract.context_files import ContextBlocks, Feeds
from claw_contract.manifest import Manifest, Policy, Tool
from claw_contract.metadata import Metadata, ModelPolicy
from claw_contract.secret import REVEAL, Secret

_OPTIONAL_LIMITS = ("on_budget", "max_parallel")

type Tree = Mapping[PurePosixPath, bytes]
"""Relative path → content. Files that hold no credential and that an agent reads are 0644, all others 0600."""


def is_for_its_agent(path: PurePosixPath) -> bool:
    """Return whether the agent itself may read a file of the tree: it holds no credential, and the agent's user may be any.

    >>> is_for_its_agent(PurePosixPath("context/analyst/AGENTS.md")), is_for_its_agent(PurePosixPath("agents/analyst/env"))
    (True, False)
    """
    match path.parts:
        case ("context", _, "AGENTS.md" | "CLAWDAPUS.md"):
            return True
        case ("context", _, directory, *_):
            return directory == SKILLS
        case _:
            return False


def emit(pod: ProjectedPod, master: Secret) -> Tree:
    """Return ``context/<agent-id>/…`` for the proxy, ``agents/<agent-id>/…`` for the runner, and the pod's own files."""
    tree: dict[PurePosixPath, bytes] = {}
    digests: dict[str, str] = {}
    for agent in pod.agents:
        token = agent_token(master, agent.agent.id, agent.epoch)
        known, hidden = _agent_files(agent), _proxy_files(agent)
        context = {**known, **hidden}
        metadata = _metadata(agent, token)
        context["metadata.json"] = _model_json(metadata)
        digests[agent.agent.id] = digest(context)
        context["metadata.json"] = _model_json(metadata.model_copy(update={"digest": digests[agent.agent.id]}))
        tree.update({PurePosixPath("context", agent.agent.id, name): data for name, data in context.items()})
        tree[PurePosixPath("agents", agent.agent.id, "env")] = runner_env(agent.agent, token)
    if pod.providers is not None:
        tree[PurePosixPath("auth", "providers.json")] = _model_json(pod.providers)
    tree[PurePosixPath("pod-manifest.json")] = _json(pod_manifest(pod.spec, pod.agents, digests, pod.sources))
    return tree


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of an agent's compiled files, in the order of their names.

    Of each file: its name, a zero byte, its length in decimal, a zero byte, its content. ``metadata.json`` counts as it is
    without ``digest``. Every event of the proxy carries it, so that audit can name the exact compile.
    """
    sha = hashlib.sha256()
    for name in sorted(files):
        sha.update(name.encode() + b"\0" + str(len(files[name])).encode() + b"\0" + files[name])
    return sha.hexdigest()


def _agent_files(agent: ProjectedAgent) -> dict[str, bytes]:
    """Return the files that the agent reads."""
    skills = {f"{SKILLS}/{skill.name}": skill.content for skill in agent.agent.skills}
    return {"AGENTS.md": agent.contract, "CLAWDAPUS.md": page(agent).encode(), **skills}


def _proxy_files(agent: ProjectedAgent) -> dict[str, bytes]:
    """Return the files of the proxy alone, each only when there is something in it."""
    files: dict[str, bytes] = {}
    if agent.manifest is not None:
        files["tools.json"] = _json(manifest_data(agent.manifest))
    if agent.feeds:
        files["feeds.json"] = _model_json(Feeds(agent.feeds))
    if agent.memory is not None:
        files["memory.json"] = _model_json(agent.memory)
    if agent.agent.blocks:
        files["context-blocks.json"] = _model_json(ContextBlocks(version=1, blocks=agent.agent.blocks))
    files.update((f"service-auth/{each.service}.json", _model_json(each)) for each in agent.principals)
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
        model_policy=ModelPolicy(mode="clamp", allowed=resolved.models) if resolved.models else None,
        budget=resolved.budget,
    )


def _model_json(model: BaseModel) -> bytes:
    return _json(model.model_dump(mode="json", by_alias=True, exclude_none=True, context=REVEAL))


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """Return tools.json as data, with its credentials; ``inputSchema`` and annotations as the descriptor has them."""
    return {
        "version": manifest.version,
        "tools": [_tool_data(tool) for tool in manifest.tools],
        "policy": _policy_data(manifest.policy),
    }


def _tool_data(tool: Tool) -> dict[str, Any]:
    data: dict[str, Any] = tool.model_dump(mode="json", by_alias=True, exclude_unset=True, context=REVEAL)
    return data


def _policy_data(policy: Policy) -> dict[str, Any]:
    # Those of the original are always there; ours only when the pod sets them.
    ours = {name for name in _OPTIONAL_LIMITS if name not in policy.model_fields_set}
    data: dict[str, Any] = policy.model_dump(mode="json", exclude={*ours, "soft_deadline_ratio"})
    return data


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
