"""Who sees and calls which tool."""

from __future__ import annotations

import fnmatch
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mcp.protocol import RpcError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import NamespaceError, ToolDefinition, published_name
from claw_tools.registry import matches, matches_any
from tests.tools.scene import SCHEMA, MadeProvider, MadeTool, Scene, principal

LETTERS = st.text("ab_*?[", max_size=8)


@pytest.mark.requirement("tools:globs")
@settings(max_examples=500)
@given(glob=LETTERS, name=st.text("ab_[", max_size=8))
def test_a_glob_matches_what_the_shell_says_but_for_brackets(glob: str, name: str) -> None:
    assert matches(glob, name) == fnmatch.fnmatchcase(name, glob.replace("[", "[[]"))


@pytest.mark.requirement("tools:globs")
def test_a_glob_made_to_be_slow_is_not() -> None:
    started = time.process_time()
    for glob in ("*" + "a" * 62 + "b", "*a" * 31 + "b", "*" + "?" * 60 + "b*", "*" * 64):
        assert not matches_any([glob] * 128, "a" * 47 + "c") or glob == "*" * 64
    assert time.process_time() - started < 2


@pytest.mark.requirement("tools:globs")
def test_a_glob_is_case_sensitive_and_matches_the_whole_name() -> None:
    assert [matches("read", name) for name in ("read", "Read", "read_file", "xread", "")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (matches("", ""), matches("*", ""), matches("?", "")) == (True, True, False)


async def scene_of(*globs: str) -> Scene:
    scene = Scene(principal("a", globs))
    scene.register(*(MadeTool(name) for name in ("read_file", "write_file", "exec_shell")))
    await scene.provide(MadeProvider("time", "now"))
    await scene.provide(MadeProvider("git", "log", "push"), internal=True)
    return scene


ALL = ["exec_shell", "git__log", "git__push", "read_file", "time__now", "write_file"]


@pytest.mark.requirement(
    "tools:visible-is-callable", "tools:internal", "tools:never-wider", "tools:no-globs-no-tools"
)
@pytest.mark.parametrize(
    ("globs", "allowed", "seen"),
    [
        (["*"], None, ["exec_shell", "read_file", "time__now", "write_file"]),
        (["*"], ["*"], ALL),
        (["*"], ["git__*"], ["git__log", "git__push"]),
        (["*"], ["git__l?g", "read_file"], ["git__log", "read_file"]),
        (["*"], [], []),
        (["*"], ["nothing"], []),
        (["read_*"], ["*"], ["read_file"]),
        (["read_*", "git__log"], None, ["read_file"]),
        (["read_*", "git__log"], ["*"], ["git__log", "read_file"]),
        (["read_*"], ["write_file", "git__*"], []),
        (["read", "READ_FILE", "read_file "], None, []),
    ],
)
async def test_what_is_listed_can_be_called_and_nothing_else(
    globs: list[str], allowed: list[str] | None, seen: list[str]
) -> None:
    scene = await scene_of(*globs)
    assert await scene.names(allowed) == seen
    assert [name for name in ALL if await scene.outcome(name, {}, allowed) == "ok"] == seen


@pytest.mark.requirement("tools:no-globs-no-tools")
async def test_a_principal_without_globs_has_no_tool() -> None:
    scene = Scene(principal("a", []))
    scene.register(MadeTool("read_file"))
    assert (await scene.names(), await scene.names(["*"])) == ([], [])
    assert (await scene.outcome("read_file")).startswith("-32602 ")


@pytest.mark.requirement("tools:hidden-as-unknown")
async def test_a_hidden_tool_is_told_in_the_words_of_an_unknown_one() -> None:
    scene = await scene_of("read_file", "git__*")
    told = {
        name: (await scene.outcome(name, {"wrong": 1})).replace(repr(name), "NAME")
        for name in ("write_file", "git__log", "no_such_tool", "nobody__log", "time__now", "__", "")
    }
    assert len(set(told.values())) == 1
    assert next(iter(told.values())).startswith("-32602 ")
    assert {line["outcome"] for line in scene.lines} == {"not_found"}
    assert len(scene.lines) == len(told)


@pytest.mark.requirement("tools:bad-meta", "tools:audit")
@pytest.mark.parametrize(
    "bad", ["*", {"a": 1}, [1], [None], ["a"] * 129, ["a" * 65], 7, True, [["*"]]]
)
async def test_globs_of_a_request_that_are_none_are_refused_for_list_and_call(bad: Any) -> None:
    scene = await scene_of("*")
    params = {"_meta": {"claw/allowedTools": bad}}
    for method, more in (("tools/list", {}), ("tools/call", {"name": "read_file"})):
        with pytest.raises(RpcError) as refused:
            await scene.ask(method, {**params, **more})
        assert refused.value.code == -32602
        assert len(refused.value.message) < 200
    assert [(line["tool"], line["outcome"]) for line in scene.lines] == [
        ("read_file", "invalid_args")
    ]


@pytest.mark.requirement("tools:bad-meta")
async def test_globs_of_null_are_refused_too() -> None:
    scene = await scene_of("*")
    with pytest.raises(RpcError):
        await scene.ask("tools/list", {"_meta": {"claw/allowedTools": None}})


@pytest.mark.requirement("tools:own-principal")
async def test_a_principal_calls_its_own_tool_and_never_anothers() -> None:
    scene = Scene(principal("a"), principal("b"))
    mine, theirs = MadeTool("read_file"), MadeTool("read_file")
    scene.registries["a"].register(mine)
    scene.registries["b"].register(theirs)
    scene.registries["b"].register(MadeTool("only_b"))
    assert (await scene.outcome("read_file", {"text": "x"}), mine.calls, theirs.calls) == (
        "ok",
        [{"text": "x"}],
        [],
    )
    assert (await scene.names(), await scene.names(who="b")) == (
        ["read_file"],
        ["only_b", "read_file"],
    )
    assert (await scene.outcome("only_b")).startswith("-32602 ")


@pytest.mark.requirement("tools:registration")
async def test_a_tool_replaces_one_of_its_name_and_a_bad_schema_is_refused() -> None:
    scene = Scene()
    old, new = MadeTool("read_file"), MadeTool("read_file")
    scene.register(old, new)
    await scene.call("read_file")
    assert (len(old.calls), len(new.calls), await scene.names()) == (0, 1, ["read_file"])
    for schema in (
        {"type": "objekt"},
        {"$ref": "https://example.com/schema"},
        {"properties": {"a": {"pattern": "("}}},
    ):
        with pytest.raises(ValueError, match="read_file"):
            scene.register(MadeTool("read_file", schema=schema))


@pytest.mark.requirement("tools:schemas")
async def test_schemas_are_those_of_what_can_be_called_sorted_by_name() -> None:
    registry = (await scene_of("*")).registries["a"]
    assert [each["function"]["name"] for each in registry.schemas()] == [
        "exec_shell",
        "read_file",
        "time__now",
        "write_file",
    ]
    (only,) = registry.schemas_for_tools(["git__log"])
    function = {"name": "git__log", "description": "The tool log.", "parameters": {**SCHEMA}}
    assert only == {"type": "function", "function": function}


@pytest.mark.requirement("tools:namespaces")
@pytest.mark.parametrize(
    "namespace",
    ["builtin", "git", "a__b", "a_b", "A", "", "-a", "a" * 33, "a.b", "é", None, 7, "a\n"],
)
async def test_a_namespace_that_is_taken_or_no_name_is_refused(namespace: Any) -> None:
    scene = await scene_of("*")
    with pytest.raises(NamespaceError, match="another name"):
        scene.shell.register_provider(MadeProvider(namespace, "x"))
    assert await scene.names(["*"]) == ALL


@pytest.mark.requirement("tools:no-shadowing")
async def test_no_provider_takes_the_place_of_a_built_in_tool() -> None:
    scene = Scene()
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
    scene, provider = Scene(), MadeProvider("x", "a.b", "a/b", "_c", "d__e", "ü" * 70)
    await scene.provide(provider)
    for name in await scene.names():
        assert await scene.outcome(name) == "ok"
    assert {name for name, _ in provider.calls} == {each.name for each in provider.definitions}


@pytest.mark.requirement("tools:bad-definitions")
async def test_a_tool_that_can_not_be_offered_is_left_out_and_costs_no_other_one() -> None:
    scene, provider = Scene(), MadeProvider("x", "good")
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
    scene, provider = Scene(), MadeProvider("x", "one", "two")
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
