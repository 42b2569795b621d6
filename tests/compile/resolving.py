"""The pod file of a test, compiled up to its resolved agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from claw_compile.diagnostics.diagnostic import Diagnostic, sort_diagnostics
from claw_compile.loading.load import load
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.check import check
from claw_compile.policy.resolve import resolve

DESCRIPTORS: Mapping[str, object] = {
    "market.json": {"version": 1, "feeds": [{"name": "prices", "path": "/prices", "ttl": 30}]},
    "press.json": {
        "version": 2,
        "feeds": [
            {"name": "prices", "path": "/prices", "ttl": 60},
            {"name": "news-{claw_id}", "path": "/news/{claw_id}", "ttl": 60, "description": "News"},
        ],
        "memory": {"recall": {"path": "/recall"}, "retain": {"path": "/retain"}},
    },
}
SERVICES = """
  market: {expose: ["1"], x-claw: {describe-file: market.json}}
  press: {expose: ["1"], x-claw: {describe-file: press.json}}
  plain: {expose: ["1"]}
"""


def resolved(
    directory: Path, pod: str, services: str, **environ: str
) -> tuple[ResolvedPod, list[Diagnostic]]:
    """Resolve a pod with ``pod`` in ``x-claw``, and these services beside the
    common ones; return it and its diagnostics.
    """
    for name, data in DESCRIPTORS.items():
        (directory / name).write_text(json.dumps(data), encoding="utf-8")
    for name in ("AGENTS.md", "one.md", "two.md"):
        (directory / name).write_text(f"# {name}\n", encoding="utf-8")
    file = directory / "claw-pod.yml"
    text = (
        f"x-claw: {{pod: desk, cllama-defaults: {{proxy: "
        f"passthrough}}{pod}}}\nservices:{SERVICES}{services}\n"
    )
    file.write_text(text, encoding="utf-8")
    loaded = load(file, environ)
    assert loaded.value is not None, loaded.diagnostics
    result = resolve(loaded.value)
    assert result.value is not None
    diagnostics = sort_diagnostics(
        (*loaded.diagnostics, *result.diagnostics, *check(loaded.value, result.value))
    )
    return result.value, list(diagnostics)


def agent(directory: Path, claw: str, pod: str = "", **environ: str) -> Agent:
    """Return the one agent of a pod without errors."""
    value, diagnostics = resolved(
        directory, pod, f"  one: {{x-claw: {{agent: AGENTS.md{claw}}}}}", **environ
    )
    assert [str(each) for each in diagnostics if each.is_error] == []
    (only,) = value.agents
    return only
