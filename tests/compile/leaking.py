"""A pod whose first agent may be given a credential that is not its own."""

from __future__ import annotations

from pathlib import Path

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.diagnostic import Diagnostic

MASTER = "a-master-secret-for-tests"
PROXY_KEY = "operators-own-key-for-a-gateway"


def leaks(directory: Path, agent: str, pod: str = "", claw: str = "", **environ: str) -> list[str]:
    """Return ``code name`` of each diagnostic of a pod with two agents, the first of which has the
    Compose keys ``agent``.
    """
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(
        f"x-claw: {{pod: desk, cllama-defaults: {{proxy: passthrough, env: {{OPENAI_API_KEY: "
        f"{PROXY_KEY}}}}}}}\n{pod}"
        f"services:\n  one:\n    {agent}\n    x-claw: {{agent: AGENTS.md{claw}}}\n"
        "  two: {x-claw: {agent: AGENTS.md}}\n",
        encoding="utf-8",
    )
    diagnostics = check_pod(
        directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER, **environ}
    ).diagnostics
    return [_told(each) for each in diagnostics]


def _told(diagnostic: Diagnostic) -> str:
    assert not diagnostic.span.text
    return f"{diagnostic.code.name}: {diagnostic.message.partition(' of one ')[2]}"
