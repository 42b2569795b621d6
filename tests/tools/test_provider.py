"""Providers of tools: their names, their lists, and the packages that bring them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.host import Host
from claw_tools.provider import NamespaceError, ToolDefinition, load_providers, published_name
from tests.tools.hosting import CONFIG, run
from tests.tools.logged_shell import (
    ALL_TOOLS,
    LoggedShell,
    MadeProvider,
    MadeTool,
    host_settings,
    shell_with_tools,
)


@pytest.mark.requirement("tools:namespaces")
@pytest.mark.parametrize(
    "namespace",
    ["builtin", "git", "a__b", "a_b", "A", "", "-a", "a" * 33, "a.b", "é", None, 7, "a\n"],
)
async def test_a_namespace_that_is_taken_or_no_name_is_refused(namespace: Any) -> None:
    scene = await shell_with_tools("*")
    with pytest.raises(NamespaceError, match="another name"):
        scene.shell.register_provider(MadeProvider(namespace, "x"))
    assert await scene.names(["*"]) == ALL_TOOLS


@pytest.mark.requirement("tools:no-shadowing")
async def test_no_provider_takes_the_place_of_a_built_in_tool() -> None:
    scene = LoggedShell()
    scene.register(MadeTool("git__log"))
    provider = MadeProvider("git", "log", "read_file")
    await scene.provide(provider)
    assert await scene.names() == ["git__log", "git__read_file"]
    assert (await scene.call("git__log"), provider.calls) == ({"did": "git__log"}, [])
    assert (await scene.outcome("read_file")).startswith("-32602 ")


@pytest.mark.requirement("tools:published-names")
@settings(max_examples=200)
@given(st.lists(st.text(max_size=60), unique=True, max_size=6))
def test_published_names_are_fit_for_models_and_differ(names: list[str]) -> None:
    published = [published_name("server", name) for name in names]
    assert len(set(published)) == len(names)
    assert all(
        len(name) <= 48 and name.startswith("server__") and name.isascii() for name in published
    )


@pytest.mark.requirement("tools:published-names")
async def test_a_call_reaches_the_provider_under_its_own_name() -> None:
    scene, provider = LoggedShell(), MadeProvider("x", "a.b", "a/b", "_c", "d__e", "ü" * 70)
    await scene.provide(provider)
    for name in await scene.names():
        assert await scene.outcome(name) == "ok"
    assert {name for name, _ in provider.calls} == {each.name for each in provider.definitions}


@pytest.mark.requirement("tools:bad-definitions")
async def test_a_tool_that_can_not_be_offered_is_left_out_and_costs_no_other_one() -> None:
    scene, provider = LoggedShell(), MadeProvider("x", "good")
    bad: dict[str, Any] = {
        "reference": {"$ref": "https://example.com/x"},
        "pattern": {"properties": {"a": {"pattern": "(a+"}}},
        "none": {"type": 7},
        "half": {"description": "\ud800"},
        "deep": _nested(5_000),
    }
    provider.definitions += [ToolDefinition(name, "", schema) for name, schema in bad.items()]
    provider.definitions.append(ToolDefinition("object", object(), {}))  # type: ignore[arg-type]
    problems = await scene.provide(provider)
    assert await scene.names() == ["x__good"]
    assert sorted(problem.split("'")[1] for problem in problems) == sorted([*bad, "object"])
    provider.definitions = [ToolDefinition(f"t{number}", "", {}) for number in range(1_002)]
    assert len(await scene.shell.provided.refresh("x")) == 2
    assert len(await scene.names()) == 1_000


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.requirement("tools:refresh")
async def test_a_list_is_replaced_at_once_and_kept_where_the_provider_fails() -> None:
    scene, provider = LoggedShell(), MadeProvider("x", "one", "two")
    await scene.provide(provider)
    seen: list[list[str]] = []

    async def list_tools() -> list[ToolDefinition]:
        seen.append(await scene.names())
        return [ToolDefinition("three", "", {})]

    provider.list_tools = list_tools  # type: ignore[method-assign]
    await scene.shell.provided.refresh("x")
    assert (seen, await scene.names()) == ([["x__one", "x__two"]], ["x__three"])

    async def fail() -> list[ToolDefinition]:
        raise ToolError(ErrorCode.EXECUTION_FAILED, "down")

    provider.list_tools = fail  # type: ignore[method-assign]
    with pytest.raises(ToolError):
        await scene.shell.provided.refresh("x")
    assert await scene.names() == ["x__three"]
    scene.shell.provided.clear("x")
    assert await scene.names() == []


@pytest.mark.requirement("tools:visible-is-callable")
async def test_a_providers_tool_is_called_with_checked_arguments() -> None:
    scene, provider = LoggedShell(), MadeProvider("time", "now")
    await scene.provide(provider)
    assert (await scene.outcome("time__now", {"text": 1}), provider.calls) == ("invalid_args", [])
    assert await scene.call("time__now", {"text": "x"}) == {"did": "time/now"}
    assert provider.calls == [("now", {"text": "x"})]


@pytest.mark.requirement("tools:entry-points", "host:check", "host:describe")
def test_an_installed_package_is_found_and_its_namespace_is_taken(
    packages: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolhost.yml").write_text(CONFIG)
    checked = run("check", home=tmp_path, packages=packages)
    assert "made__echo      registered, by an installed package\n" in checked.stdout
    assert any(
        line.startswith("exec_shell      not registered: write 'exec:")
        for line in checked.stdout.splitlines()
    )
    described = run("describe", "--principal", "b", home=tmp_path, packages=packages)
    assert (described.returncode, described.stderr) == (0, "")
    document = json.loads(described.stdout)
    assert document["auth"] == {"type": "bearer", "env": "TOKEN_B"}
    assert [(tool["name"], tool["annotations"]) for tool in document["tools"]] == [
        ("made__echo", {"readOnlyHint": True})
    ]
    (tmp_path / "toolhost.yml").write_text(
        f"{CONFIG}tools: {{mcp_servers: {{made: {{command: x}}}}}}\n"
    )
    taken = run("check", home=tmp_path, packages=packages)
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "toolhost.yml:7:23: tools.mcp_servers.made: the name 'made' is taken" in taken.stderr


@pytest.mark.requirement("tools:entry-points")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise RuntimeError('broken at import')", "RuntimeError: broken at import"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def Made():\n    raise OSError('no disk')", "OSError: no disk"),
        ("Made = 7", "TypeError"),
        ("", "AttributeError"),
        (
            "class Made:\n    namespace = 'x'\n    async def list_tools(self): ...",
            "has no 'call_tool'",
        ),
        (
            "class Made:\n    namespace = 'a__b'\n    list_tools = call_tool = None",
            "give it another name",
        ),
        (
            "class Made:\n    namespace = 7\n    list_tools = call_tool = None",
            "give it another name",
        ),
    ],
)
def test_a_package_that_is_broken_is_one_line_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    information = tmp_path / "bad_tools-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-tools\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[claw.tool_providers]\nbad = bad_tools:Made\n")
    (tmp_path / "bad_tools.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_tools", raising=False)
    with pytest.raises(ValueError, match=words) as refused:
        Host(host_settings(), lambda *_: None, load_providers(), groups=[])
    assert "\n" not in str(refused.value)
