"""Check: contradictions between parts of a pod (docs/spec/compile.md "Tools"). One function a rule; none reads a file."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Span, quote
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
        *_used_defaults(pod, resolved),
    ]
    for agent in resolved.agents:
        diagnostics.extend(check_proxy_only(agent, pod))
        diagnostics.extend(check_surfaces(agent, loaded))
        diagnostics.extend(check_tool_names(agent, loaded))
    return tuple(diagnostics)


def _used_defaults(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    inherited_defaults = {name for agent in resolved.agents for name in agent.takes}
    for name, key in _defaults(pod):
        if resolved.agents and name not in inherited_defaults:
            yield codes.UNUSED_DEFAULT.at(key, f"no agent takes the pod's {quote(name)}")


def _defaults(pod: PodSpec) -> Iterator[tuple[str, Span]]:
    """Yield the pod's defaults that say something, by the name of their key."""
    lists = {
        "tools-defaults": pod.tools,
        "surfaces-defaults": pod.surfaces,
        "feeds-defaults": pod.feeds,
        "skills-defaults": pod.skills,
    }
    yield from ((name, listed.key) for name, listed in lists.items() if listed is not None and listed.entries)
    if pod.limits is not None:
        yield "tool-policy-defaults", pod.limits.key
    if pod.models is not None and not pod.models.is_empty:
        yield "models-defaults", pod.models.key
    if pod.spending is not None and pod.spending.budget is not None:
        yield "budget-defaults", pod.spending.key
    if pod.memory is not None and pod.memory.service is not None:
        yield "memory-defaults", pod.memory.key
    if pod.cllama is not None and pod.cllama.proxies:
        yield "cllama-defaults", pod.cllama.key
    if pod.context is not None and pod.context.blocks:
        yield "context", pod.context.key
