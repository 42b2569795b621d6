"""The environment of the pod's one proxy, of all that its agents ask for (origin-compile.md 2.3, edge case 36).

Rules. A service's ``cllama-env`` wins over ``cllama-defaults.env``, key by key. There is one proxy for the pod, so two agents
that want different values of one key are an error; the values are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note
from claw_compile.grammar.pod import PodSpec, Setting
from claw_compile.policy.agent import Agent

EGRESS, EGRESS_WORDS = "CLLAMA_EGRESS", ("allow", "deny")


def proxy_env(pod: PodSpec, agents: Iterable[Agent], found: list[Diagnostic]) -> Mapping[str, Setting]:
    """Name → value, by name."""
    merged: dict[str, Setting] = {}
    for agent in agents:
        if not agent.has_proxy:
            continue
        for name, setting in (dict(pod.cllama_env) | dict(agent.spec.cllama_env)).items():
            first = merged.setdefault(name, setting)
            if first.value != setting.value:
                first, other = sorted((first, setting), key=lambda each: each.key)
                notes = [Note(first.key, "the other one is here")]
                message = f"{name} has two values, and the pod has one proxy"
                found.append(codes.PROXY_ENV_CONFLICT.at(other.key, message, notes=notes))
    egress = merged.get(EGRESS)
    if egress is not None and egress.value not in EGRESS_WORDS:
        found.append(codes.BAD_EGRESS.at(egress.key, f"{EGRESS} takes {' or '.join(EGRESS_WORDS)}"))
    return dict(sorted(merged.items()))
