"""Check: contradictions between parts of a pod (docs/spec/compile.md "Tools"). One function a rule; none reads a file."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, quote
from claw_compile.grammar.pod import PodSpec
from claw_compile.loading.load import LoadedPod
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.check_grants import check_surfaces, check_tool_names, check_written_grants
from claw_compile.policy.check_reach import check_reach
from claw_compile.policy.check_relations import (
    check_memories,
    check_principals,
    check_proxy_only,
    check_proxy_types,
    check_secrets,
    check_skills,
)
from claw_compile.policy.check_services import check_counted_services, check_host, check_images, check_names


def check(loaded: LoadedPod, resolved: ResolvedPod) -> tuple[Diagnostic, ...]:
    """Return everything that is wrong with a pod whose parts are each well-formed."""
    pod = loaded.pod
    diagnostics = [
        *check_names(pod),
        *check_reach(pod, resolved),
        *check_host(resolved),
        *check_counted_services(loaded, resolved),
        *check_written_grants(loaded),
        *check_images(loaded, resolved),
        *check_memories(loaded),
        *check_principals(loaded),
        *check_secrets(pod),
        *check_skills(pod),
        *check_proxy_types(resolved.agents),
        *(_unused_defaults(pod, resolved) if resolved.agents else ()),
    ]
    for agent in resolved.agents:
        diagnostics.extend(check_proxy_only(agent, pod))
        diagnostics.extend(check_surfaces(agent, loaded))
        diagnostics.extend(check_tool_names(agent, loaded))
    return tuple(diagnostics)


def _unused_defaults(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report the pod's defaults that hold something, and that no agent takes."""
    defaults = {
        "tools-defaults": pod.tools if pod.tools and pod.tools.entries else None,
        "surfaces-defaults": pod.surfaces if pod.surfaces and pod.surfaces.entries else None,
        "feeds-defaults": pod.feeds if pod.feeds and pod.feeds.entries else None,
        "skills-defaults": pod.skills if pod.skills and pod.skills.entries else None,
        "tool-policy-defaults": pod.limits,
        "models-defaults": pod.models if pod.models and not pod.models.is_empty else None,
        "budget-defaults": pod.spending if pod.spending and pod.spending.budget else None,
        "memory-defaults": pod.memory if pod.memory and pod.memory.service else None,
        "cllama-defaults": pod.cllama if pod.cllama and pod.cllama.proxies else None,
        "context": pod.context if pod.context and pod.context.blocks else None,
    }
    inherited_defaults = {name for agent in resolved.agents for name in agent.takes}
    for name, default in defaults.items():
        if default is not None and name not in inherited_defaults:
            yield codes.UNUSED_DEFAULT.at(default.key, f"no agent takes the pod's {quote(name)}")
