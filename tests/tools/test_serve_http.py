"""``claw tools serve`` over HTTP, as a process, with tools of an installed package."""

from __future__ import annotations

import hmac
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claw_contract.secret import Secret
from claw_tools.serve import principal_finder
from tests.tools.hosting import (
    CONFIG,
    TOKENS,
    Client,
    RunningHost,
    last_message,
    request,
    run,
    serving,
    stateless_request,
)
from tests.tools.logged_shell import principal
from tests.waiting import eventually

ALL = ["made__echo", "made__environ", "made__fail", "made__noise", "made__wait"]
A, B = TOKENS["TOKEN_A"], TOKENS["TOKEN_B"]


@pytest.fixture(scope="module")
def host(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    with serving(tmp_path_factory.mktemp("host"), packages) as running:
        yield running


@pytest.mark.requirement("host:principals", "tools:entry-points")
def test_each_principal_lists_and_calls_the_tools_of_its_globs(host: RunningHost) -> None:
    a, b = host.client().open(), host.client("b").open()
    assert (a.names(), b.names()) == (ALL, ["made__echo"])
    assert a.call("made__echo", text="hi")["result"]["structuredContent"] == {"text": "hi"}
    hidden, unknown = b.call("made__fail"), b.call("made__none")
    assert json.dumps(hidden["error"]).replace("fail", "none") == json.dumps(unknown["error"])
    assert hidden["error"]["code"] == -32602


@pytest.mark.requirement("host:principals")
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        f"Basic {A}",
        A,
        f"Bearer {A}x",
        f"Bearer {A[:-1]}",
        f"Bearer  {A}",
        f"Bearer {A},{B}",
    ],
)
def test_without_a_right_token_it_is_401_whatever_else_the_request_says(
    host: RunningHost, authorization: str | None
) -> None:
    headers = {"x-claw-id": "a", "mcp-session-id": "x"} | (
        {} if authorization is None else {"authorization": authorization}
    )
    for method in ("POST", "GET", "DELETE"):
        response = httpx2.request(method, f"{host.base}/mcp", headers=headers, timeout=60)
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.requirement("host:principals")
def test_no_header_makes_another_principal_of_a_caller(host: RunningHost) -> None:
    client = Client(f"{host.base}/mcp", B)
    headers = {
        "x_claw_id": "a",
        "x_forwarded_user": "a",
        "x_principal": "a",
        "cookie": "principal=a",
    }
    message, own = stateless_request("tools/list")
    tools = last_message(client.post(message, **own, **headers))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["made__echo"]


@pytest.mark.requirement("host:constant-time", "host:principals")
def test_the_token_alone_finds_its_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        hmac,
        "compare_digest",
        lambda *both: compared.append((len(both[0]), len(both[1]))) or real(*both),
    )
    find = principal_finder(
        [principal(name, token=Secret(name * 20)) for name in "abc"] + [principal("none")]
    )
    found = [find(f"Bearer {name * 20}") for name in "abcd"]
    assert found == ["a", "b", "c", None]
    assert find("bearer " + "b" * 20) == "b"
    assert [find(each) for each in ("Bearer é", "Bearer \udc80", "", "Bearer ", "Bearer")] == [
        None
    ] * 5
    assert compared == [(32, 32)] * 3 * 10, "each with all, and none shows its length"


@pytest.mark.requirement("host:sessions")
def test_a_session_belongs_to_the_principal_that_opened_it(host: RunningHost) -> None:
    mine = host.client().open()
    theirs = Client(mine.url, B, mine.session)
    for response in (
        theirs.post(request("tools/list")),
        httpx2.delete(mine.url, headers=headers_of(theirs), timeout=60),
    ):
        assert response.status_code == 404
    assert mine.names() == ALL


def headers_of(client: Client) -> dict[str, str]:
    return {"authorization": f"Bearer {client.token}", "mcp-session-id": client.session}


@pytest.mark.requirement("host:admission")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "toolhost:8080"}, 200),
        ({"host": "TOOLHOST:8080"}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "toolhost"}, 421),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "localhost:80@evil"}, 421),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_a_host_or_origin_that_is_not_allowed_is_refused(
    host: RunningHost, headers: dict[str, str], status: int
) -> None:
    message, own = stateless_request("tools/list")
    assert host.client().post(message, **own, **headers).status_code == status


@pytest.mark.requirement("host:admission")
def test_a_body_that_is_too_long_is_refused(host: RunningHost) -> None:
    client = host.client().open()
    limit = 64 << 10
    message = json.dumps(request("tools/list", None, 1)).encode()
    assert client.post(message + b" " * (limit - len(message))).status_code == 200
    assert client.post(message + b" " * (limit - len(message) + 1)).status_code == 413


@pytest.mark.requirement("host:health")
def test_the_health_tells_the_state_of_each_part_and_nothing_else(host: RunningHost) -> None:
    response = httpx2.get(f"{host.base}/health", timeout=60)
    health = response.json()
    assert (response.status_code, health["ok"], health["servers"]) == (200, True, {})
    assert {"read_file", "exec_shell", "web_fetch", "message"} <= health["tools"].keys()
    assert set(health["tools"].values()) <= {"registered", "off", "fault"}
    assert health["tools"]["exec_shell"] == "off"
    assert httpx2.get(f"{host.base}/other", timeout=60).status_code == 404


@pytest.mark.requirement("host:eras")
def test_the_stateless_era_is_served_too(host: RunningHost) -> None:
    client = host.client()
    message, headers = stateless_request("server/discover")
    result = last_message(client.post(message, **headers))["result"]
    assert (result["supportedVersions"], result["capabilities"]) == (
        ["2026-07-28"],
        {"tools": {"listChanged": True}},
    )
    message, headers = stateless_request(
        "tools/call", {"name": "made__echo", "arguments": {"text": "hi"}}
    )
    result = last_message(client.post(message, **headers))["result"]
    assert (result["structuredContent"], result["resultType"]) == ({"text": "hi"}, "complete")
    message, headers = stateless_request(
        "tools/list", {"_meta": {"claw/allowedTools": ["made__e*"]}}
    )
    tools = last_message(client.post(message, **headers))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["made__echo", "made__environ"]


@pytest.mark.requirement("host:cancel")
def test_a_call_ends_when_it_is_cancelled_or_its_client_leaves(
    host: RunningHost, tmp_path: Path
) -> None:
    client = host.client().open()
    for way in ("cancelled", "left"):
        note = tmp_path / way
        call = {"name": "made__wait", "arguments": {"text": str(note)}}
        message, headers = (
            (request("tools/call", call, 7), {})
            if way == "cancelled"
            else stateless_request("tools/call", call)
        )
        with raw_post(
            host, message, {**headers_of(client), **headers} if way == "cancelled" else {**headers}
        ) as peer:
            eventually(
                lambda note=note: note.exists() and note.read_text() == "runs", "the tool runs"
            )
            if way == "cancelled":
                client.post(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/cancelled",
                        "params": {"requestId": 7},
                    }
                )
                received = b""
                while b'"code":-32800' not in received:
                    received += peer.recv(65536)
        eventually(lambda note=note: note.read_text() == "ended", "the tool has ended")
    outcomes = [
        line["outcome"] for line in host.lines("tool_host_call") if line["tool"] == "made__wait"
    ]
    assert outcomes == ["cancelled", "cancelled"]


def raw_post(host: RunningHost, message: Any, headers: dict[str, str]) -> socket.socket:
    """Send a request, and return its connection."""
    address = host.base.removeprefix("http://")
    body = json.dumps(message).encode()
    fields = {
        "authorization": f"Bearer {A}",
        "accept": "application/json, text/event-stream",
        **headers,
    }
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()]
    head = (
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
        f"application/json\r\ncontent-length: {len(body)}\r\n"
    )
    peer = socket.create_connection(
        (address.partition(":")[0], int(address.partition(":")[2])), timeout=60
    )
    peer.sendall(head.encode() + "".join(lines).encode() + b"\r\n" + body)
    return peer


@pytest.mark.requirement("host:log")
def test_a_line_of_the_log_holds_no_secret_even_where_a_call_has_it(host: RunningHost) -> None:
    client = host.client().open()
    for text in (A, json.dumps({"inner": B})):
        assert client.call("made__echo", text=text)["result"]["structuredContent"] == {"text": text}
    assert (
        client.call("made__fail", text=A)["result"]["structuredContent"]["error"]["code"]
        == "execution_failed"
    )
    log = host.log.read_bytes()
    assert A.encode() not in log
    assert B.encode() not in log
    faults = [line for line in host.lines("tool_host") if line["state"] == "fault"]
    assert any("made__fail failed: ValueError" in line["reason"] for line in faults)


@pytest.mark.requirement("host:stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_host_cleanly_while_a_call_runs(
    packages: Path, tmp_path: Path, number: int
) -> None:
    with serving(tmp_path, packages) as running:
        client, note = running.client().open(), tmp_path / "note"
        call = request("tools/call", {"name": "made__wait", "arguments": {"text": str(note)}}, 1)
        with raw_post(running, call, headers_of(client)):
            eventually(lambda: note.exists() and note.read_text() == "runs", "the tool runs")
            assert running.end(number) == 0
        assert note.read_text() == "ended"
        assert [line["state"] for line in running.lines("tool_host")] == ["listening", "stopped"]


@pytest.mark.requirement("host:config-served")
def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "toolhost.yml").write_text(CONFIG.replace("port: 0", f"port: {port}"))
        result = run("serve", home=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"error: 127.0.0.1:{port}: Address already in use\n"
