"""The Lua scripts: each file is part of one, and a script is its parts joined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claw_state.valkey import scripts
from claw_state.valkey.scripts import load_script

PACKAGE = Path(scripts.__file__).parent


@pytest.mark.requirement("state:shared")
def test_a_script_is_its_parts_joined() -> None:
    first, second = load_script("journal_seen"), load_script("journal_end")
    assert load_script("journal_seen", "journal_end") == f"{first}\n{second}"


@pytest.mark.requirement("state:shared")
def test_each_file_of_lua_is_part_of_a_script() -> None:
    calls = [
        call
        for module in PACKAGE.glob("*.py")
        for call in re.findall(r"load_script\(([^)]*)\)", module.read_text(encoding="utf-8"))
    ]
    loaded = {name for call in calls for name in re.findall(r'"(\w+)"', call)}
    assert loaded == {file.stem for file in (PACKAGE / "lua").glob("*.lua")}
