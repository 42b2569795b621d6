"""Tests of the installed package: every part is typed, and its metadata names the project and only
addresses that exist.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.requirement("cli:typed")
def test_every_package_has_its_marker_for_type_checkers() -> None:
    packages = {path.parent for path in ROOT.glob("claw_*/__init__.py")}
    assert packages == {path.parent for path in ROOT.glob("claw_*/py.typed")}
    assert PROJECT["tool"]["setuptools"]["package-data"]["*"] == ["py.typed"]


@pytest.mark.requirement("cli:typed")
def test_the_metadata_says_who_what_and_where_from() -> None:
    project = PROJECT["project"]
    assert project["urls"] == {"Upstream": "https://github.com/mostlydev/clawdapus"}
    assert {"authors", "classifiers", "keywords", "license", "readme"} <= set(project)
    assert "Typing :: Typed" in project["classifiers"]
