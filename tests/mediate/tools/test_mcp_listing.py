"""Servers whose list of tools is no longer what was compiled."""

from __future__ import annotations

from typing import Any

import pytest

from claw_mcp.client_protocol import MAX_TOOLS
from claw_mediate.tools.mcp_listing import find_differences
from tests.mcp.calling import READ, Caller, error_of, tool, until
from tests.mcp.scripted_server import ECHO, STATELESS, Exchange, ScriptedServer

REFUSED = (
    "request_failed",
    (
        "The service has changed this tool since it was granted, so that it is not called. "
        "Use another tool."
    ),
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def pages(*each: dict[str, Any]) -> Any:
    """A script for each page."""

    def page(answer: dict[str, Any]) -> Any:
        async def say(exchange: Exchange) -> None:
            await exchange.result(answer)

        return say

    return [page(answer) for answer in each]


@pytest.mark.requirement("mcp:drift")
@pytest.mark.parametrize("versions", [("2025-11-25",), (STATELESS,)])
@pytest.mark.parametrize(
    ("listed", "difference"),
    [
        (None, "the server does not list 'get' any more"),
        (
            {"inputSchema": {"type": "object", "properties": {"text": {"type": "number"}}}},
            "it differs at 'properties.text.type'",
        ),
        ({"inputSchema": {**TEXT, "required": ["text"]}}, "it differs at 'required'"),
        (
            {"inputSchema": {**TEXT, "additionalProperties": False}},
            "it differs at 'additionalProperties'",
        ),
        ({"inputSchema": {"type": "object"}}, "it differs at 'properties'"),
        ({"inputSchema": "none"}, "the server lists 'get' without a schema"),
        ({}, "the server lists 'get' without a schema"),
    ],
)
async def test_a_changed_tool_is_not_called_and_the_others_work(
    server: ScriptedServer, caller: Caller, listed: Any, difference: str, versions: tuple[str, ...]
) -> None:
    server.versions = versions
    server.tools = [ECHO, *([] if listed is None else [{"name": "get", **listed}])]
    get = tool(server, "get", schema=TEXT)
    caller.tools = (get, tool(server))
    for _ in range(2):
        assert (await caller.call()).ok
        result = await caller.call(used=get)
        assert error_of(result) == REFUSED
        assert not result.ran
    (event,) = caller.events
    assert (event["type"], event["intervention"]) == (
        "intervention",
        "managed_tool_quarantined:desk.get",
    )
    assert event["claw_id"] == "analyst"
    assert difference in event["reason"]
    assert {exchange.message["params"]["name"] for exchange in server.of("tools/call")} == {"echo"}
    assert len(server.of("tools/list")) == 1, "the list is read once for a session"


@pytest.mark.requirement("mcp:drift")
async def test_a_change_that_is_told_while_the_list_is_read_is_not_missed(
    server: ScriptedServer, caller: Caller
) -> None:
    async def changes_meanwhile(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event({"method": "notifications/tools/list_changed"})
        await exchange.event({"id": exchange.message["id"], "result": {"tools": [ECHO]}})
        await exchange.end_stream()

    server.says("tools/list", changes_meanwhile)
    assert (await caller.call()).ok
    server.tools = []
    assert error_of(await caller.call()) == REFUSED
    assert len(server.of("tools/call")) == 1


@pytest.mark.requirement("mcp:drift")
async def test_a_tool_that_changes_later_is_noticed_in_the_next_session(
    server: ScriptedServer, caller: Caller
) -> None:
    assert (await caller.call()).ok
    server.tools = []
    assert (await caller.call()).ok, "the list is read once for a session"
    server.forget_sessions()
    assert error_of(await caller.call()) == REFUSED
    assert len(server.of("tools/call")) == 3, "two that ran, and one in the session that was gone"
    server.tools = [ECHO]
    server.forget_sessions()
    caller.executor.release("analyst")
    assert (await caller.call()).ok


@pytest.mark.requirement("mcp:drift")
async def test_a_server_that_says_its_list_has_changed_is_asked_again(
    server: ScriptedServer, caller: Caller
) -> None:
    async def change(exchange: Exchange) -> None:
        server.tools = []
        await exchange.begin_stream()
        await exchange.event({"method": "notifications/tools/list_changed"})
        await exchange.event({"id": exchange.message["id"], "result": {"content": []}})
        await exchange.end_stream()

    server.says("tools/call", change)
    assert (await caller.call()).ok
    assert error_of(await caller.call()) == REFUSED
    assert (len(server.of("initialize")), len(server.of("tools/list"))) == (1, 2)
    server.tools = [ECHO]
    await caller.executor.close()
    await until(lambda: server.of("DELETE"))


@pytest.mark.requirement("mcp:drift", "mcp:gone-session")
async def test_a_changed_list_is_read_in_a_new_session_if_the_old_one_is_gone(
    server: ScriptedServer, caller: Caller
) -> None:
    async def change(exchange: Exchange) -> None:
        server.forget_sessions()
        await exchange.begin_stream()
        await exchange.event({"method": "notifications/tools/list_changed"})
        await exchange.event({"id": exchange.message["id"], "result": {"content": []}})
        await exchange.end_stream()

    server.says("tools/call", change)
    for _ in range(3):
        assert (await caller.call()).ok
    assert (len(server.of("initialize")), len(server.of("tools/list"))) == (2, 3)


@pytest.mark.requirement("mcp:drift")
async def test_texts_of_a_schema_may_change(server: ScriptedServer, caller: Caller) -> None:
    server.tools = [
        {
            "name": "echo",
            "title": "Echo",
            "description": "Other words.",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": "Arguments",
                "properties": {"text": {"description": "Say it.", "type": "string", "default": ""}},
            },
        }
    ]
    assert (await caller.call()).ok
    assert caller.events == []


@pytest.mark.requirement("mcp:list-bounded")
async def test_all_pages_are_read_and_of_equal_names_the_first_one_counts(
    server: ScriptedServer, caller: Caller
) -> None:
    other = {"name": "echo", "inputSchema": {"type": "object", "required": ["x"]}}
    server.says(
        "tools/list",
        *pages(
            {"tools": [{"name": "a", "inputSchema": {}}, 5, {"name": 5}, {}], "nextCursor": "2"},
            {"tools": [], "nextCursor": ""},
            {"tools": [ECHO, other]},
        ),
    )
    assert (await caller.call()).ok
    assert [exchange.message["params"].get("cursor") for exchange in server.of("tools/list")] == [
        None,
        "2",
        "",
    ]


@pytest.mark.requirement("mcp:list-bounded")
@pytest.mark.parametrize(("repeats", "reads"), [(True, 2), (False, 100)])
async def test_a_list_without_end_is_read_no_further(
    server: ScriptedServer, caller: Caller, repeats: bool, reads: int
) -> None:
    server.says(
        "tools/list",
        *pages(*({"tools": [ECHO], "nextCursor": str(n * (not repeats))} for n in range(150))),
    )
    assert (await caller.call()).ok
    assert len(server.of("tools/list")) == reads


@pytest.mark.requirement("mcp:list-bounded")
async def test_a_list_of_many_bytes_is_read_no_further(
    server: ScriptedServer, caller: Caller
) -> None:
    page = {"tools": [ECHO, {"name": "big", "inputSchema": {"description": "x" * 3_000_000}}]}
    server.says("tools/list", *pages(*({**page, "nextCursor": str(n)} for n in range(50))))
    assert (await caller.call(annotations=READ)).ok
    assert len(server.of("tools/list")) == 3, "the third page is the one above 8 MiB"


@pytest.mark.requirement("mcp:list-bounded")
async def test_a_thousand_tools_are_kept(server: ScriptedServer, caller: Caller) -> None:
    server.tools = [{**ECHO, "name": f"t{number}"} for number in range(MAX_TOOLS + 5)]
    for number, is_kept in ((0, True), (MAX_TOOLS - 1, True), (MAX_TOOLS, False)):
        assert (await caller.call(used=tool(server, f"t{number}"))).ok is is_kept


@pytest.mark.requirement("mcp:drift")
@pytest.mark.parametrize(
    ("granted", "listed", "place"),
    [
        (
            {"properties": {"title": {"type": "string"}}},
            {"properties": {"title": {"type": "number"}}},
            "properties.title.type",
        ),
        (
            {"properties": {"properties": {"title": "a"}}},
            {"properties": {"properties": {"title": "b"}}},
            None,
        ),
        ({"properties": {"description": {}}}, {"properties": {}}, "properties.description"),
        ({"const": {"title": 1}}, {"const": {"title": 2}}, "const"),
        ({"enum": [{"title": 1}]}, {"enum": [{"title": 2}]}, "enum"),
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, None),
        ({"enum": [1, True]}, {"enum": [1, 1]}, "enum"),
        ({"required": ["a", "b"]}, {"required": ["b", "a"]}, None),
        ({"anyOf": [{"type": "null"}, {"title": "x"}]}, {"anyOf": [{"type": "null"}, {}]}, None),
        ({"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}, {}]}, "anyOf"),
        ({"minimum": 1}, {"minimum": 1.0}, None),
        ({"minimum": 1}, {"minimum": True}, "minimum"),
    ],
)
def test_schemas_differ_where_they_accept_other_values(
    granted: Any, listed: Any, place: str | None
) -> None:
    found = next(find_differences(granted, listed), None)
    assert (None if found is None else ".".join(found)) == place
