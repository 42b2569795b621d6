"""``claw tools``: the answers of its verbs, before any server is started.

A host that serves is in ``tests/tools``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from claw_cli.app import app

CONFIG = "toolhost:\n  principals: {one: {workspace: work, tools: [read_file]}}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "toolhost.yml").write_text(CONFIG, encoding="utf-8")
    return tmp_path / "toolhost.yml"


def tools(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tools", *arguments], env={"TERM": "dumb"})


@pytest.mark.requirement("toolspod:grants-offline")
@pytest.mark.usefixtures("config")
def test_describe_prints_the_descriptor_of_the_tools() -> None:
    result = tools("describe", "--offline")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [tool["name"] for tool in json.loads(result.stdout)["tools"]] == ["read_file"]


@pytest.mark.parametrize("verb", ["serve", "describe", "check"])
def test_a_mistake_in_the_settings_is_one_line_with_its_place(config: Path, verb: str) -> None:
    config.write_text(f"{CONFIG}tools: {{exec: {{enabled: perhaps}}}}\n", encoding="utf-8")
    result = tools(verb)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert "toolhost.yml:3:25" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["serve", "describe", "check"])
@pytest.mark.usefixtures("config")
def test_settings_that_are_not_there_are_an_error(verb: str) -> None:
    result = tools(verb, "--config", "nowhere.yml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nowhere.yml" in result.stderr


@pytest.mark.usefixtures("config")
def test_a_principal_is_named_over_standard_input_only() -> None:
    result = tools("serve", "--principal", "one")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--stdio" in result.stderr


@pytest.mark.usefixtures("config")
def test_an_unknown_principal_is_an_error() -> None:
    result = tools("describe", "--offline", "--principal", "two")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "two" in result.stderr
