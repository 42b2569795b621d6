"""The server that ``claw discover`` asks about a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.snapshot_target import TargetError, find_target
from tests.compile.composed import MASTER
from tests.compile.tools_host_pod import codes_of, pod


@pytest.mark.requirement("toolspod:discover")
def test_a_tools_host_is_not_discovered_but_described(tmp_path: Path) -> None:
    assert codes_of(tmp_path, pod()) == []
    for url in (None, "http://127.0.0.1:8810/mcp"):
        with pytest.raises(
            TargetError, match=r"claw tools describe .* > \.claw-discovered/files\.claw-describe"
        ):
            find_target(tmp_path / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}, "files", url)
