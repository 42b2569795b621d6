"""The grammar's reading of a pod file, without any other file."""

from __future__ import annotations

from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.grammar.pod_file import read_pod
from claw_compile.parsing.node import Source
from claw_compile.parsing.yaml_reader import read_yaml


def pod_of(text: str, **environ: str) -> tuple[PodSpec, list[str]]:
    """Return the pod, and the codes of its diagnostics in the order of the reading."""
    root = read_yaml(Source("claw-pod.yml", text)).value
    assert root is not None
    result = read_pod("claw-pod.yml", root, environ.get)
    assert result.value is not None
    return result.value, [each.code.name for each in result.diagnostics]


def agent_of(claw: str, pod: str = "", **environ: str) -> tuple[ServiceSpec, list[str]]:
    """Return the agent of a pod with ``claw`` in its ``x-claw``, and the codes."""
    agent = f"  one: {{x-claw: {{agent: AGENTS.md{claw}}}}}\n"
    spec, codes = pod_of(f"x-claw: {{pod: desk{pod}}}\nservices:\n{agent}", **environ)
    (service,) = spec.services
    return service, codes
