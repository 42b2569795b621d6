"""The compiled tree that verbs read."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_cli.compiled_tree import read_env
from claw_compile.output.kubernetes.objects import parse_env_pairs


@pytest.mark.requirement("cli:proxy")
def test_only_a_line_feed_ends_a_line_of_an_env_file(tmp_path: Path) -> None:
    breaks = "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85\r"
    value = "".join(f"x{each}CLLAMA_EGRESS=allow" for each in breaks)
    (tmp_path / "env").write_bytes(f"A={value}\nB=2\n".encode())
    assert read_env(tmp_path / "env") == {"A": value, "B": "2"}
    assert parse_env_pairs((tmp_path / "env").read_bytes()) == {"A": value.encode(), "B": b"2"}
