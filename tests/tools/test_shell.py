"""The tools that each principal sees and calls at the host's MCP server."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from claw_mcp.protocol import RpcError, read_messages, write_request
from claw_mcp.sessions import ClientRequest, Session
from tests.tools.logged_shell import ALL_TOOLS, LoggedShell, MadeTool, principal, shell_with_tools


@pytest.mark.requirement(
    "tools:visible-is-callable", "tools:internal", "tools:never-wider", "tools:no-globs-no-tools"
)
@pytest.mark.parametrize(
    ("globs", "allowed", "seen"),
    [
        (["*"], None, ["exec_shell", "read_file", "time__now", "write_file"]),
        (["*"], ["*"], ALL_TOOLS),
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
    scene = await shell_with_tools(*globs)
    assert await scene.names(allowed) == seen
    assert [name for name in ALL_TOOLS if await scene.outcome(name, {}, allowed) == "ok"] == seen


@pytest.mark.requirement("tools:no-globs-no-tools")
async def test_a_principal_without_globs_has_no_tool() -> None:
    scene = LoggedShell(principal("a", []))
    scene.register(MadeTool("read_file"))
    assert (await scene.names(), await scene.names(["*"])) == ([], [])
    assert (await scene.outcome("read_file")).startswith("-32602 ")


@pytest.mark.requirement("tools:hidden-as-unknown")
async def test_a_hidden_tool_is_told_in_the_words_of_an_unknown_one() -> None:
    scene = await shell_with_tools("read_file", "git__*")
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
    scene = await shell_with_tools("*")
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
    scene = await shell_with_tools("*")
    with pytest.raises(RpcError):
        await scene.ask("tools/list", {"_meta": {"claw/allowedTools": None}})


@pytest.mark.requirement("tools:own-principal")
async def test_a_principal_calls_its_own_tool_and_never_anothers() -> None:
    scene = LoggedShell(principal("a"), principal("b"))
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


@pytest.mark.requirement("tools:arguments")
@pytest.mark.parametrize(
    "params", [{}, {"name": 7}, {"name": None}, {"name": ["t"]}, {"arguments": {}}, []]
)
async def test_a_call_without_a_name_is_an_error_of_the_protocol(params: Any) -> None:
    scene = LoggedShell()
    with pytest.raises(RpcError) as refused:
        await scene.ask("tools/call", params)
    assert (refused.value.code, scene.lines) == (-32602, [])


@pytest.mark.requirement("tools:arguments")
async def test_unknown_methods_and_cursors_are_errors_of_the_protocol() -> None:
    scene = LoggedShell()
    for method, params, code in (
        ("resources/list", {}, -32601),
        ("tools/list", {"cursor": "2"}, -32602),
    ):
        with pytest.raises(RpcError) as refused:
            await scene.ask(method, params)
        assert refused.value.code == code
    assert await scene.ask("tools/list", {"cursor": None}) == {"tools": []}


@pytest.mark.requirement("tools:exact-numbers")
async def test_a_number_keeps_its_exact_value_on_the_way_to_a_tool_and_back() -> None:
    async def echo(args: dict[str, Any]) -> Any:
        return args

    scene, tool = LoggedShell(), MadeTool("t", echo, schema={"type": "object"})
    scene.register(tool)
    sent = b'{"a":123456789012345678901234567890,"b":0.1000000000000000055511151231257827,"c":1.10}'
    request = write_request(b"1", "tools/call", b'{"name":"t","arguments":%b}' % sent)
    (message,) = read_messages(request)
    answer = await scene.shell.answer(ClientRequest(Session("a"), message))
    assert tool.calls == [
        {
            "a": 123456789012345678901234567890,
            "b": Decimal("0.1000000000000000055511151231257827"),
            "c": Decimal("1.1"),
        }
    ]
    assert b'"structuredContent":%b' % sent in answer
