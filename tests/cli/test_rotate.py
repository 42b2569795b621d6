"""``claw rotate`` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw


@pytest.mark.requirement("cli:rotate")
def test_rotating_says_what_is_left_to_do(desk: Path) -> None:
    rotated = claw(desk, "rotate", "analyst", **SECRETS)
    assert rotated.returncode == 0, rotated.stderr
    assert rotated.stdout.startswith("analyst: epoch 1, in claw.lock\n")
    assert "recreate its container" in rotated.stdout
    refused = claw(desk, "rotate", "analist", **SECRETS)
    assert refused.returncode == 1
    assert "did you mean 'analyst'?" in refused.stderr
