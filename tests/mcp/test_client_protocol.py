"""The same answers of a server, to ``claw discover`` and to the proxy: both judge them alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.toolhost_file import McpServerSection
from claw_mcp.channels import DiscoveryError
from claw_mcp.discovery import ServerListing, discover
from claw_mcp.http_channel import HttpServer
from tests.mcp.scripted_server import ECHO, HANDSHAKE, STATELESS, Exchange, ScriptedServer
from tests.mediate.tools.mcp_calling import Caller, error_of, tool
from tests.tools.serving import NamedSection, behind
from tests.waiting import eventually_async

CLIENT = {"name": "test", "version": "1"}
MIB = 1024 * 1024

type Script = Callable[[Exchange], Awaitable[None]]


async def discovered(server: ScriptedServer) -> ServerListing:
    at = HttpServer("the server", server.url)
    return await discover(at, Redactor(()), lambda _: None, client=CLIENT)


async def refused_discovery(server: ScriptedServer) -> str:
    """Return the words of the error with which a discovery ends."""
    with pytest.raises(DiscoveryError) as caught:
        await discovered(server)
    return str(caught.value)


def refusal(code: int, status: int, data: Any = None) -> Script:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(code, "no licence", data, status=status)

    return refuse


def page(tools: list[Any] | str, cursor: Any = None) -> Script:
    async def say(exchange: Exchange) -> None:
        following = {} if cursor is None else {"nextCursor": cursor}
        await exchange.result({"tools": tools, **following})

    return say


def named(name: str, padding: int = 0) -> dict[str, Any]:
    """A tool whose entry has more than ``padding`` bytes."""
    return {**ECHO, "name": name, "description": "x" * padding}


ONLY_STATELESS = {"supported": [STATELESS]}
ONLY_HANDSHAKE = {"supported": list(HANDSHAKE)}

# (code, HTTP status, data): whether the server is asked in the stateless era then
REFUSALS: dict[tuple[int, int, str], bool] = {
    (-32000, 400, ""): True,
    (-32020, 400, ""): True,
    (-32022, 400, ""): True,
    (-32602, 400, ""): True,
    (-32601, 200, ""): True,
    (-32601, 400, ""): True,
    (-32000, 200, ""): False,
    (-32020, 200, ""): False,
    (-32022, 200, ""): False,
    (-32602, 200, ""): False,
    (-32600, 200, ""): False,
    (-32600, 400, ""): False,
    (-32603, 200, ""): False,
    (-32600, 200, "stateless"): True,
    (-32022, 400, "handshake"): False,
    (-32601, 404, "handshake"): False,
}
DATA = {"": None, "stateless": ONLY_STATELESS, "handshake": ONLY_HANDSHAKE}


@pytest.mark.requirement("mcp:eras", "discovery:eras", "mcp:one-client")
@pytest.mark.parametrize(("code", "status", "data"), REFUSALS)
async def test_a_refusal_of_the_handshake_means_the_same_to_both(
    server: ScriptedServer, caller: Caller, code: int, status: int, data: str
) -> None:
    server.versions = (STATELESS,)
    refuse = refusal(code, status, DATA[data])
    server.says("initialize", refuse, refuse)

    try:
        found = (await discovered(server)).version
    except DiscoveryError as error:
        found = str(error)
    result = await caller.call()

    if REFUSALS[code, status, data]:
        assert found == STATELESS
        assert result.ok
    else:
        assert found == "it refused 'initialize': 'no licence'"
        assert error_of(result)[1] == f"The service refused to open a session (error {code})."
        assert server.of("tools/list") == []


@pytest.mark.requirement("mcp:refused-words", "mcp:one-client")
@pytest.mark.parametrize(
    ("code", "counts"), [(-32000, True), (-32602, True), (-32601, False), (-32022, False)]
)
async def test_the_first_refusal_counts_for_both_where_it_may_mean_the_session(
    server: ScriptedServer, caller: Caller, code: int, counts: bool
) -> None:
    server.versions = (STATELESS,)
    for method, words in (("initialize", "no licence"), ("tools/list", "no list")):

        async def refuse(exchange: Exchange, words: str = words) -> None:
            await exchange.error(
                code if words == "no licence" else -32603,
                words,
                status=400 if words == "no licence" else 200,
            )

        server.says(method, refuse, refuse)

    words = await refused_discovery(server)
    result = await caller.call()

    if counts:
        assert words == "it refused 'initialize': 'no licence'"
        assert error_of(result)[1] == f"The service refused to open a session (error {code})."
    else:
        assert words == "it refused 'tools/list': 'no list'"
        assert error_of(result)[1] == "The service refused to open a session (error -32603)."


@pytest.mark.requirement("mcp:one-client")
async def test_a_session_whose_begin_is_refused_is_open_for_neither(
    server: ScriptedServer, caller: Caller
) -> None:
    refuse = refusal(-32603, 500)
    server.says("notifications/initialized", refuse, refuse)
    assert await refused_discovery(server) == "it refused 'initialize': 'no licence'"
    assert (await caller.call()).code == "http_500"
    assert server.of("tools/list") == []


@pytest.mark.requirement("mcp:one-client")
async def test_a_session_id_that_no_header_can_hold_opens_a_session_for_neither(
    server: ScriptedServer, caller: Caller
) -> None:
    async def odd(exchange: Exchange) -> None:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}}
        await exchange.result(result, "mcp-session-id: a b")

    server.says("initialize", odd, odd)
    assert await refused_discovery(server) == (
        "it opened a session without a valid id: a fault of the server"
    )
    assert error_of(await caller.call())[1] == "The service opened a session without a valid id."


@pytest.mark.requirement("mcp:list-bounded", "discovery:pages", "mcp:one-client")
async def test_a_list_of_six_mebibytes_is_read_to_its_end_by_both(
    server: ScriptedServer, caller: Caller
) -> None:
    script = (
        page([named("one", 3 * MIB)], "2"),
        page([named("two", 3 * MIB)], "3"),
        page([named("three")]),
    )
    server.says("tools/list", *script, *script)
    assert len((await discovered(server)).tools) == 3
    assert (await caller.call(used=tool(server, "three"))).ok


BROKEN_LISTS: dict[str, tuple[list[Script], str, str]] = {
    "bytes": (
        [page([named("one", 3 * MIB)], str(number)) for number in range(4)],
        "its list of tools has more than 8388608 bytes",
        "let the server offer fewer",
    ),
    "tools": (
        [page([named(f"tool-{number}") for number in range(1001)])],
        "its list of tools has more than 1000 tools",
        "let the server offer fewer",
    ),
    "pages": (
        [page([named(f"tool-{number}")], str(number)) for number in range(101)],
        "its list of tools has more than 100 pages",
        "a fault of the server",
    ),
    "circle": (
        [page([named("one")], "2"), page([named("two")], "2")],
        "page 2 of its tools leads back to an earlier one",
        "a fault of the server",
    ),
    "no list": (
        [page("none")],
        "its answer to 'tools/list' has no list of tools",
        "a fault of the server",
    ),
    "cursor": (
        [page([named("one")], 5)],
        "the cursor of its tools is no text, or too long",
        "a fault of the server",
    ),
}


@pytest.mark.requirement("mcp:list-bounded", "discovery:pages", "mcp:one-client")
@pytest.mark.parametrize("name", BROKEN_LISTS)
async def test_a_list_that_is_above_a_limit_or_broken_is_named_so_by_both(
    server: ScriptedServer, caller: Caller, name: str
) -> None:
    script, problem, remedy = BROKEN_LISTS[name]

    server.says("tools/list", *script)
    assert await refused_discovery(server) == f"{problem}: {remedy}"

    server.scripts.clear()
    server.says("tools/list", *script)
    result = await caller.call(used=tool(server, "absent"))
    message = (
        f"The service's list of tools could not be read in full ({problem}), and this tool is not "
        "in the part that was read, so that it is not called. Use another tool."
    )
    assert error_of(result) == ("request_failed", message)
    assert not result.ran
    (event,) = caller.events
    assert event["intervention"] == "managed_tool_quarantined:desk.absent"
    assert event["reason"] == f"'absent' is not in what was read of the server's list: {problem}"


@pytest.mark.requirement("mcp:list-bounded", "discovery:pages", "mcp:one-client")
async def test_an_empty_cursor_is_a_cursor_to_both(server: ScriptedServer, caller: Caller) -> None:
    script = (page([named("one")], ""), page([named("two")]))
    server.says("tools/list", *script, *script)
    assert [each["name"] for each in (await discovered(server)).tools] == ["one", "two"]
    assert (await caller.call(used=tool(server, "two"))).ok
    assert [each.message["params"].get("cursor") for each in server.of("tools/list")] == [
        *(None, ""),
        *(None, ""),
    ]


@pytest.mark.requirement("mcp:list-bounded", "discovery:pages", "mcp:one-client")
@pytest.mark.parametrize("pages", [1, 2])
async def test_a_server_that_means_the_end_by_an_empty_cursor_lists_no_tool_twice(
    server: ScriptedServer, caller: Caller, pages: int
) -> None:
    whole = [page([named("one")], "")]
    if pages > 1:
        whole = [page([named("one")], "2"), page([named("two")], "")]
    # It begins again when it is asked with the empty cursor.
    server.says("tools/list", *whole, *whole)
    names = [each["name"] for each in (await discovered(server)).tools]
    assert names == ["one", "two"][:pages]

    server.scripts.clear()
    server.says("tools/list", *whole, *whole)
    assert (await caller.call(used=tool(server, "one"))).ok
    assert (await caller.call(used=tool(server, "absent"))).code == "request_failed"
    assert caller.events[-1]["reason"] == "the server does not list 'absent' any more"


# (era, HTTP status, code of a JSON-RPC error or None): whether the next call opens a new session
DOUBTS: dict[tuple[str, int, int | None], bool] = {
    ("handshake", 400, None): True,
    ("handshake", 400, -32600): True,
    ("handshake", 400, -32000): True,
    ("handshake", 400, -32001): True,
    ("handshake", 400, -32602): False,
    ("handshake", 500, -32600): False,
    ("handshake", 200, -32600): False,
    ("stateless", 400, None): True,
    ("stateless", 400, -32022): True,
    ("stateless", 400, -32020): True,
    ("stateless", 400, -32021): False,
    ("stateless", 400, -32602): False,
    ("stateless", 404, -32601): False,
}


@pytest.mark.requirement("mcp:once", "mcp:one-client", "servers:not-repeated")
@pytest.mark.parametrize(("era", "status", "code"), DOUBTS)
async def test_the_same_refusals_of_a_call_end_a_session_for_the_proxy_and_the_tools_host(
    server: ScriptedServer, caller: Caller, era: str, status: int, code: int | None
) -> None:
    server.versions = (STATELESS,) if era == "stateless" else HANDSHAKE

    async def refuse(exchange: Exchange) -> None:
        if code is None:
            await exchange.respond(status, b"no", content_type="text/plain")
        else:
            await exchange.error(code, "no", status=status)

    sessions = 2 if DOUBTS[era, status, code] else 1

    assert (await caller.call()).ok
    server.says("tools/call", refuse)
    assert not (await caller.call()).ok
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == sessions
    assert len(server.of("tools/call")) == 3

    server.received.clear()
    async with behind(NamedSection("desk", McpServerSection(url=server.url))) as desk:
        await desk.call("echo", text="a")
        server.says("tools/call", refuse)
        await desk.fails("echo", text="b")
        await desk.call("echo", text="c")
        assert len(server.of("initialize")) == sessions
        assert len(server.of("tools/call")) == 3


@pytest.mark.requirement("mcp:one-client", "servers:not-repeated")
@pytest.mark.parametrize("versions", [HANDSHAKE, (STATELESS,)])
async def test_a_server_that_refuses_the_answer_to_its_ping_ends_no_session(
    server: ScriptedServer, caller: Caller, versions: tuple[str, ...]
) -> None:
    server.versions = versions

    async def ping_first(exchange: Exchange) -> None:
        pongs = len(server.of(""))
        await exchange.begin_stream()
        await exchange.event({"id": "p", "method": "ping"})
        await eventually_async(lambda: len(server.of("")) > pongs, "the ping is answered")
        await exchange.event({"id": exchange.message["id"], "result": {"content": []}})
        await exchange.end_stream()

    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(400)

    server.says("tools/call", ping_first)
    server.says("", refuse)
    assert (await caller.call()).ok
    assert (await caller.call()).ok
    assert len(server.of("initialize")) == 1

    server.received.clear()
    async with behind(NamedSection("desk", McpServerSection(url=server.url))) as desk:
        server.says("tools/call", ping_first)
        server.says("", refuse)
        await desk.call("echo", text="a")
        await desk.call("echo", text="b")
        await desk.call("echo", text="c")
        assert len(server.of("initialize")) == 1
