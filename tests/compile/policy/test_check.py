"""Rules between parts of a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.resolving import resolved

UNUSED = {
    "tools-defaults": "[{service: plain, allow: all}]",
    "surfaces-defaults": "[egress://]",
    "feeds-defaults": "[market/prices]",
    "skills-defaults": "[one.md]",
    "models-defaults": "{primary: a/b}",
    "tool-policy-defaults": "{max-rounds: 3}",
    "budget-defaults": "{max-requests: 3, window: 1h}",
    "memory-defaults": "{service: press}",
    "context": "{blocks: [{id: a, text: b}]}",
}
SUPPRESSED = "tools: [], surfaces: [], feeds: [], skills: [], models: {}" + "".join(
    f", {key}: null" for key in ("tool-policy", "budget", "memory", "context")
)


@pytest.mark.requirement("compile:defaults")
@pytest.mark.parametrize("key", UNUSED)
def test_defaults_that_no_agent_takes_are_told_whatever_they_are_of(
    tmp_path: Path, key: str
) -> None:
    pod = f", {key}: {UNUSED[key]}"
    suppressing, taking = (
        f"one: {{x-claw: {{agent: AGENTS.md, {SUPPRESSED}}}}}",
        "two: {x-claw: {agent: AGENTS.md}}",
    )
    _, diagnostics = resolved(tmp_path, pod, f"  {suppressing}")
    assert [each.code.name for each in diagnostics if each.code.name == "unused-default"] == [
        "unused-default"
    ]
    _, diagnostics = resolved(tmp_path, pod, f"  {suppressing}\n  {taking}")
    assert [each.code.name for each in diagnostics if each.code.name == "unused-default"] == []
