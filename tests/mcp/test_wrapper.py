"""``claw mcp-stdio`` as its clients see it: many sessions over one honest server."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from claw_mcp.protocol import CAPABILITIES_META, STATELESS_VERSION, VERSION_META
from tests.mcp.wrapped import JSON_AND_EVENTS, Client, RunningWrapper, messages, stateless
from tests.waiting import eventually

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.requirement("wrapper:both-eras")
@pytest.mark.parametrize("version", [*VERSIONS, "1999-01-01"])
def test_each_handshake_version_is_spoken_and_another_one_becomes_the_newest(
    wrapped: RunningWrapper, version: str
) -> None:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params}
    response = httpx2.post(wrapped.url, json=message, headers=JSON_AND_EVENTS)
    result = response.json()["result"]
    assert result["protocolVersion"] == (version if version in VERSIONS else "2025-11-25")
    assert (result["serverInfo"], result["capabilities"]) == (
        {"name": "child", "version": "1.0"},
        {"tools": {}},
    )
    assert result["instructions"] == "Be brief."


@pytest.mark.requirement("wrapper:both-eras")
def test_the_stateless_era_needs_no_session(wrapped: RunningWrapper) -> None:
    found = stateless(wrapped.url, "server/discover").json()["result"]
    assert (found["supportedVersions"], found["resultType"]) == (["2026-07-28"], "complete")
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "child"
    called = stateless(
        wrapped.url, "tools/call", {"name": "echo", "arguments": {"n": 1}, "_meta": {"mine": 2}}
    )
    assert called.json()["result"]["arguments"] == {"n": 1}
    assert called.json()["result"]["resultType"] == "complete"
    assert called.json()["result"]["meta"] == {"mine": 2}, (
        "what is of the era stays here, and the client's own passes"
    )
    assert "mcp-session-id" not in called.headers
    unknown = stateless(wrapped.url, "tools/none")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)


@pytest.mark.requirement("wrapper:exact")
def test_line_breaks_between_tokens_do_not_break_the_servers_lines(wrapped: RunningWrapper) -> None:
    client = wrapped.open()
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"a": [1, {}]}},
    }
    body = json.dumps(message, indent=2).replace("\n", "\r\n")
    response = httpx2.post(wrapped.url, content=body, headers=client.headers)
    assert response.json()["result"]["arguments"] == {"a": [1, {}]}


@pytest.mark.requirement("wrapper:exact")
def test_an_error_of_the_server_passes_with_its_data(wrapped: RunningWrapper) -> None:
    (answer,) = messages(wrapped.open().send("prompts/none"))
    assert answer["error"] == {
        "code": -32601,
        "message": "no prompts/none",
        "data": {"exact": 2**70},
    }


@pytest.mark.requirement("wrapper:broadcast")
def test_a_client_of_the_stateless_era_subscribes_to_changed_lists(wrapped: RunningWrapper) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {
        "notifications": {"toolsListChanged": True, "promptsListChanged": False},
        "_meta": meta,
    }
    message = {"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": params}
    headers = {
        **JSON_AND_EVENTS,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
    }
    with httpx2.stream("POST", wrapped.url, json=message, headers=headers, timeout=60) as response:
        events = (
            json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data:")
        )
        acknowledged = next(events)
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        wrapped.open().result("change", kind="tools")
        changed = next(events)
    assert changed["method"] == "notifications/tools/list_changed"
    assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}


@pytest.mark.requirement("wrapper:cancel")
def test_a_cancelled_call_ends_and_the_server_is_told_under_the_id_that_it_knows(
    wrapped: RunningWrapper,
) -> None:
    client = wrapped.open()
    before = len(client.seen("tools/call"))
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(client.call, "hang", request_id="mine")
        eventually(lambda: len(client.seen("tools/call")) > before, "the call is at the server")
        assert (
            client.send(
                "notifications/cancelled", {"requestId": "mine"}, request_id=False
            ).status_code
            == 202
        )
        assert hanging.result(30)["error"]["code"] == -32800
    cancelled, hung = client.seen("notifications/cancelled")[-1], client.seen("tools/call")[-1]
    assert cancelled["params"]["requestId"] == hung["id"] != "mine"
    assert (
        client.send(
            "notifications/cancelled", {"requestId": "unknown"}, request_id=False
        ).status_code
        == 202
    )


@pytest.mark.requirement("wrapper:cancel")
def test_a_client_that_leaves_cancels_its_call_in_the_stateless_era_only(
    wrapped: RunningWrapper,
) -> None:
    client = wrapped.open()
    before = len(client.seen("notifications/cancelled"))
    leave_in_a_call(client, client.headers, {})
    assert len(client.seen("notifications/cancelled")) == before
    meta = {VERSION_META: STATELESS_VERSION, CAPABILITIES_META: {}}
    named = {
        "mcp-protocol-version": STATELESS_VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "hang",
    }
    leave_in_a_call(client, JSON_AND_EVENTS | named, {"_meta": meta})
    eventually(
        lambda: len(client.seen("notifications/cancelled")) == before + 1, "the server is told"
    )
    assert client.seen("notifications/cancelled")[-1]["params"] == {
        "requestId": client.seen("tools/call")[-1]["id"],
        "reason": "cancelled by the client",
    }


def leave_in_a_call(client: Client, headers: dict[str, str], params: dict[str, Any]) -> None:
    """Make a call that hangs, and leave when it is at the server."""
    before = len(client.seen("tools/call"))
    message = {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": "hang", **params},
    }
    body = json.dumps(message).encode()
    place = urlsplit(client.url)
    fields = {"host": place.netloc, "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(f"POST {place.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        eventually(lambda: len(client.seen("tools/call")) > before, "the call is at the server")


@pytest.mark.requirement("wrapper:hosts")
@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("web", "", 200),
        ("WEB:8080", "", 200),
        ("localhost", "http://localhost:3000", 200),
        ("[::1]:9", "", 200),
        ("127.0.0.1:8080", "http://web", 200),
        ("web:9", "", 421),
        ("evil.example", "", 421),
        ("localhost.evil.example", "", 421),
        ("localhost:80@evil.example", "", 421),
        ("web", "http://evil.example", 403),
        ("web", "null", 403),
    ],
)
def test_host_and_origin_are_checked(
    wrapped: RunningWrapper, host: str, origin: str, status: int
) -> None:
    headers = {**wrapped.open().headers, "host": host} | ({"origin": origin} if origin else {})
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert httpx2.post(wrapped.url, json=message, headers=headers).status_code == status


@pytest.mark.requirement("wrapper:body-size")
def test_a_body_over_the_limit_is_refused_whether_or_not_it_says_its_length(
    wrapped: RunningWrapper,
) -> None:
    client = wrapped.open()
    at_limit = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'.ljust(100_000)
    chunks = [at_limit[:50_000], at_limit[50_000:], b" "]
    sizes = {
        "exact": at_limit,
        "longer": at_limit + b" ",
        "chunked": iter(chunks),
        "endless": iter([b" " * 65_536] * 100),
    }
    statuses = {
        name: httpx2.post(wrapped.url, content=content, headers=client.headers).status_code
        for name, content in sizes.items()
    }
    assert statuses == {"exact": 200, "longer": 413, "chunked": 413, "endless": 413}


@pytest.mark.requirement("wrapper:environment")
def test_the_server_has_the_environment_of_the_container_and_none_of_the_wrappers_settings(
    wrapped: RunningWrapper,
) -> None:
    environment = wrapped.open().result("environment")
    assert environment["SERVICE_TOKEN"] == "planted-credential"
    assert [name for name in environment if name.startswith(("CLAW_MCP_", "LISTEN_ADDR"))] == []


@pytest.mark.requirement("wrapper:stderr")
def test_standard_error_goes_to_the_log_line_by_line_without_credentials_and_bounded(
    wrapped: RunningWrapper,
) -> None:
    client = wrapped.open()
    client.result("flood", lines=3, text="token planted-credential of")

    def shown() -> list[str]:
        return [line["line"] for line in wrapped.lines("mcp_stderr") if "token" in line["line"]]

    eventually(lambda: len(shown()) == 3, "the lines are logged")
    assert [line.rpartition(" ")[2] for line in shown()] == ["0", "1", "2"]
    assert "planted-credential" not in wrapped.log.read_text("utf-8")
    client.result("flood", lines=1, text="x" * 50_000)
    client.result("flood", lines=20_000)
    eventually(lambda: wrapped.lines("mcp_lines_dropped"), "lines were dropped")
    lines = [line["line"] for line in wrapped.lines("mcp_stderr")]
    assert max(map(len, lines)) == 8192
    assert len(lines) < 5_000
    assert client.result("echo", a=1)["arguments"] == {"a": 1}


@pytest.mark.requirement("wrapper:sessions")
def test_a_session_ends_by_delete_and_others_live_on(wrapped: RunningWrapper) -> None:
    first, second = wrapped.open(), wrapped.open()
    assert httpx2.delete(wrapped.url, headers=first.headers).status_code == 200
    assert (first.send("ping").status_code, second.send("ping").status_code) == (404, 200)
