"""``claw schema``: the JSON Schema for an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.schema.editor import editor_schema
from tests.cli.running import claw


@pytest.mark.requirement("cli:schema")
def test_the_schema_is_printed_the_same_each_time(tmp_path: Path) -> None:
    first, second = (claw(tmp_path, "schema", LC_ALL=locale) for locale in ("C", "C.UTF-8"))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert json.loads(first.stdout) == editor_schema()
