"""Emit: the compiled pod as bytes by path (spec/contract.md "Layout"). Pure, and the same bytes on any machine.

Rules. What the model may know is in CLAWDAPUS.md: names and descriptions, no endpoint, URL or token. ``metadata.json``
and ``tools.json`` hold credentials: they are for the proxy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from claw_compile.authority.project import Projected
from claw_compile.identity import agent_token
from claw_compile.output.runner_env import runner_env
from claw_contract.manifest import Manifest, Policy, Tool
from claw_contract.metadata import Metadata
from claw_contract.names import aliases
from claw_contract.secret import REVEAL, Secret

_OPTIONAL_LIMITS = ("on_budget", "max_parallel")

type Tree = Mapping[PurePosixPath, bytes]
"""Relative path → content. Every file of it is 0600: some hold credentials, and none is for other users."""


def emit(agents: Iterable[Projected], master: Secret) -> Tree:
    """``context/<agent-id>/…`` for the proxy, ``agents/<agent-id>/env`` for the runner."""
    tree: dict[PurePosixPath, bytes] = {}
    for agent in agents:
        token = agent_token(master, agent.agent.id, agent.epoch)
        for name, content in _context(agent, token).items():
            tree[PurePosixPath("context", agent.agent.id, name)] = content
        tree[PurePosixPath("agents", agent.agent.id, "env")] = runner_env(agent.agent, token)
    return tree


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of an agent's compiled files, in the order of their names.

    Of each file: its name, a zero byte, its length in decimal, a zero byte, its content. ``metadata.json`` counts as it is
    without ``digest``. Every event of the proxy carries it, so that audit can name the exact compile.
    """
    sha = hashlib.sha256()
    for name in sorted(files):
        sha.update(name.encode() + b"\0" + str(len(files[name])).encode() + b"\0" + files[name])
    return sha.hexdigest()


def _context(agent: Projected, token: Secret) -> dict[str, bytes]:
    metadata = Metadata(
        service=agent.agent.id, pod=agent.pod, type=agent.agent.spec.runner, token=token, timezone="UTC"
    )
    files = {"AGENTS.md": agent.contract, "CLAWDAPUS.md": _infrastructure(agent).encode()}
    if agent.manifest is not None:
        files["tools.json"] = _json(manifest_data(agent.manifest))
    files["metadata.json"] = _metadata(metadata)
    files["metadata.json"] = _metadata(metadata.model_copy(update={"digest": digest(files)}))
    return files


def _metadata(metadata: Metadata) -> bytes:
    return _json(metadata.model_dump(mode="json", exclude_none=True, context=REVEAL))


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """tools.json as data, with its credentials; ``inputSchema`` and annotations as the descriptor has them."""
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


def _infrastructure(agent: Projected) -> str:
    lines = [
        "# CLAWDAPUS.md",
        "",
        "What this pod gives you. The compiler writes this page.",
        "",
        "## Identity",
        "",
        f"- agent: {agent.agent.id}",
        f"- pod: {agent.pod}",
        f"- runner: {agent.agent.spec.runner}",
    ]
    if agent.manifest is not None:
        lines += [
            "",
            "## Tools",
            "",
            "Call them by these names. They are run for you; you need no address and no key.",
            "",
        ]
        presented = aliases(tool.name for tool in agent.manifest.tools)
        lines += [_tool_line(presented[tool.name], tool) for tool in agent.manifest.tools]
    return "\n".join(lines) + "\n"


def _tool_line(name: str, tool: Tool) -> str:
    described = " ".join(tool.description.split())
    return f"- `{name}`: {described}" if described else f"- `{name}`"
