"""The shapes of values: what a key takes, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.resolving import resolved


@pytest.mark.requirement("compile:yaml-1-2")
def test_numbers_without_quotes_are_what_their_key_takes(tmp_path: Path) -> None:
    services = '  one: {x-claw: {agent: AGENTS.md, count: "3", handles: {discord: 123456789012345678, id: 0123}}}'
    value, _ = resolved(tmp_path, "", services)
    assert len(value.agents) == 3
    handles = value.agents[0].spec.carried["handles"]
    assert [entry.value.text for entry in handles.entries] == ["123456789012345678", "0123"]  # type: ignore[union-attr]
    _, diagnostics = resolved(
        tmp_path,
        ", memory-defaults: {service: press, timeout-ms: 1e3}",
        "  one: {x-claw: {agent: AGENTS.md}}",
    )
    assert [each.code.name for each in diagnostics] == ["bad-limit"]
