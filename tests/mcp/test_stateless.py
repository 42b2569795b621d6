"""The stateless era on the server side."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from claw_mcp.protocol import VERSION_META
from tests.mcp.http_host import META, STATELESS, Host
from tests.waiting import eventually_async


@pytest.mark.requirement("wrapper:http")
@pytest.mark.parametrize(
    ("method", "params", "headers", "status", "code"),
    [
        ("note", {}, {}, 400, -32602),
        ("note", {"_meta": {VERSION_META: "2026-07-28"}}, {}, 400, -32602),
        ("note", {"_meta": META}, {"Mcp_Method": ""}, 400, -32020),
        ("note", {"_meta": META}, {"Mcp_Method": "other"}, 400, -32020),
        ("note", {"_meta": META}, {"MCP_Protocol_Version": ""}, 400, -32020),
        ("note", {"_meta": {**META, VERSION_META: "2027-01-01"}}, {}, 400, -32020),
        (
            "note",
            {"_meta": {**META, VERSION_META: "2027-01-01"}},
            {"MCP_Protocol_Version": "2027-01-01"},
            400,
            -32022,
        ),
        ("tools/call", {"_meta": META, "name": "a"}, {}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "a"}, {"Mcp_Name": "b"}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "é"}, {"Mcp_Name": "=?base64?w6k?="}, 400, -32020),
        ("tools/call", {"_meta": META, "name": "é"}, {"Mcp_Name": "=?base64?w6k=?="}, 200, None),
        ("resources/read", {"_meta": META, "uri": "u"}, {"Mcp_Name": "u"}, 200, None),
        ("ping", {"_meta": META}, {}, 404, -32601),
        ("initialize", {"_meta": META}, {}, 404, -32601),
        ("none", {"_meta": META}, {}, 404, -32601),
        ("subscriptions/listen", {"_meta": META}, {"Accept": "application/json"}, 400, -32600),
    ],
)
async def test_the_stateless_era_has_statuses_of_its_own(
    host: Host, method: str, params: Any, headers: dict[str, str], status: int, code: int | None
) -> None:
    fields = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method, **headers}
    answered, message = await host.ask(method, params=params, **fields)
    assert answered == status, message
    assert (message.get("error") or {}).get("code") == code
    if code is None:
        assert message["result"]["resultType"] == "complete"
        assert ("ttlMs" in message["result"]) == (method == "resources/read")
        assert message["result"]["big"] == 123456789012345678901234567890
    if code == -32022:
        assert message["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


@pytest.mark.requirement("wrapper:streams")
async def test_a_thousand_subscriptions_keep_no_request_out(host: Host) -> None:
    subscription = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": META},
    }
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(1000):
            stream = await host.send(
                "POST", subscription, **STATELESS, Mcp_Method="subscriptions/listen"
            )
            assert stream.status == 200
            await stack.enter_async_context(contextlib.aclosing(stream.chunks))  # type: ignore[type-var]
            await asyncio.sleep(0)  # one that was ended has a turn of the loop to end

        status, _ = await host.ask("quiet", params={"_meta": META}, **STATELESS, Mcp_Method="quiet")
        assert status == 200
        assert host.server.listening() == {""}
    await eventually_async(lambda: host.server.listening() == set(), "nobody listens any more")
