"""The broker through the real mitmdump, by raw HTTP: sessions, streams, disconnects, the drain,
what an operator sees.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse
from typer.testing import CliRunner, Result

from claw_cli.app import app
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.mitm.view.replay import NotReplayableError, replay
from claw_mediate.mitm.view.turn_view import describe
from tests.peers import DelayedAnswer, calls, text
from tests.proxy.looking import SavingPod, told
from tests.proxy.pod import Pod
from tests.waiting import eventually

SYMBOL = {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]}
INFO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@dataclass
class RawClient:
    """An MCP client of the handshake era, with one connection of its own."""

    pod: Pod
    agent_id: str = "analyst"
    headers: dict[str, str] = field(default_factory=dict)
    last_id: int = 0

    def __post_init__(self) -> None:
        self.headers = {
            "authorization": f"Bearer {self.pod.token(self.agent_id)}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **self.headers,
        }
        self.http = self.pod.clients.enter_context(httpx2.Client(timeout=60))

    @property
    def url(self) -> str:
        return f"{self.pod.url}/mcp/{self.agent_id}"

    def body(self, method: str, params: Any = None, request_id: Any = None) -> dict[str, Any]:
        self.last_id += 1
        message = {
            "jsonrpc": "2.0",
            "id": self.last_id if request_id is None else request_id,
            "method": method,
        }
        return {**message, **({} if params is None else {"params": params})}

    def ask(
        self, method: str, params: Any = None, request_id: Any = None, **headers: str
    ) -> httpx2.Response:
        body = self.body(method, params, request_id)
        return self.http.post(self.url, json=body, headers=self.headers | headers)

    def open(self) -> RawClient:
        response = self.ask("initialize", INFO)
        assert response.status_code == 200, response.text
        self.headers |= {
            "mcp-session-id": response.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        accepted = self.http.post(self.url, json=note, headers=self.headers)
        assert (accepted.status_code, accepted.content) == (202, b"")
        return self

    def call(self, name: str, arguments: Any = None, request_id: Any = None) -> dict[str, Any]:
        response = self.ask("tools/call", {"name": name, "arguments": arguments or {}}, request_id)
        result: dict[str, Any] = response.json()["result"]
        return result

    def raw(self, method: str, params: Any, request_id: Any) -> bytes:
        """A POST as bytes, for a client that leaves."""
        content = json.dumps(self.body(method, params, request_id)).encode()
        fields = {"host": "cllama", **self.headers, "content-length": str(len(content))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST /mcp/{self.agent_id} HTTP/1.1\r\n{head}\r\n".encode() + content


@pytest.fixture
def native(pod: Pod) -> Pod:
    """The proxy runs; ``analyst`` has two native tools and one that is mediated,
    ``clerk`` another.
    """
    pod.agent(
        "analyst",
        pod.tool("quote"),
        {**pod.tool("balance"), "delivery": "native"},
        {**pod.tool("trade", "POST", schema=SYMBOL), "delivery": "native"},
    )
    pod.agent("clerk", {**pod.tool("stamp"), "delivery": "native"})
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 12})
    pod.service.routes["GET", "/quote"] = JSONResponse({"price": 3})
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 7})
    pod.environment["CLLAMA_DRAIN_MS"] = "30000"
    pod.start("-w", str(pod.home / "flows"))
    return pod


@pytest.mark.requirement("broker:endpoint")
def test_the_proxys_own_port_serves_an_mcp_server_to_each_agent(native: Pod) -> None:
    client = RawClient(native).open()
    assert [tool["name"] for tool in client.ask("tools/list").json()["result"]["tools"]] == [
        "desk__balance",
        "desk__trade",
    ]
    assert client.call("desk__trade", {"symbol": "X"})["structuredContent"] == {"order": 7}
    clerk = RawClient(native, "clerk").open()
    assert [tool["name"] for tool in clerk.ask("tools/list").json()["result"]["tools"]] == [
        "desk__stamp"
    ]
    assert client.http.delete(client.url, headers=client.headers).status_code == 200
    assert client.ask("tools/list").status_code == 404
    assert client.http.put(client.url, headers=client.headers).status_code == 405
    assert native.provider.received == []


@pytest.mark.requirement(
    "broker:identity", "broker:session-owner", "broker:origin", "broker:any-host"
)
def test_who_asks_is_the_agent_of_the_bearer_from_no_page_and_by_any_name(native: Pod) -> None:
    client, clerk = RawClient(native).open(), RawClient(native, "clerk").open()
    assert client.ask("tools/list", authorization="").status_code == 401
    assert (
        client.ask("tools/list", authorization=f"Bearer {native.token('clerk')}").status_code == 403
    )
    theirs = {"mcp-session-id": clerk.headers["mcp-session-id"]}
    assert client.ask("tools/list", **theirs).status_code == 404
    with client.http.stream("GET", client.url, headers=client.headers | theirs) as response:
        assert response.status_code == 404
    assert client.ask("tools/list", origin="http://evil.example").status_code == 403
    assert client.ask("tools/list", host="any.example").status_code == 200
    assert native.service.received == []


@pytest.mark.requirement("broker:not-injected")
def test_a_native_tool_is_not_offered_to_the_model(native: Pod) -> None:
    native.provider.says(calls(("c1", "desk__quote", {})), text("Three."))
    native.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "How much?"}]
    )
    for asked in native.provider.received:
        assert [tool["function"]["name"] for tool in asked.json["tools"]] == ["desk__quote"]
    (line,) = native.history("analyst")
    assert line["tools_withheld"] == [
        {"name": f"desk.{name}", "reason": "native"} for name in ("balance", "trade")
    ]
    native.provider.received.clear()
    native.provider.says(text("Hello."))
    native.client("clerk").chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "Hello"}]
    )
    assert "tools" not in native.provider.received[0].json


@pytest.mark.requirement("broker:endpoint", "broker:list-changed")
def test_the_stream_of_get_says_that_the_tools_have_changed_though_nobody_asks(native: Pod) -> None:
    client = RawClient(native).open()
    listening = native.clients.enter_context(httpx2.Client(timeout=60))
    with listening.stream("GET", client.url, headers=client.headers) as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = response.iter_lines()
        assert next(lines) == ": open"
        native.agent("analyst", {**native.tool("balance"), "delivery": "native"})
        event = next(line for line in lines if line.startswith("data: "))
        assert (
            json.loads(event.removeprefix("data: "))["method"] == "notifications/tools/list_changed"
        )
    assert len(client.ask("tools/list").json()["result"]["tools"]) == 1


@pytest.mark.requirement("broker:disconnect")
def test_a_client_that_leaves_in_a_write_neither_repeats_nor_loses_it(native: Pod) -> None:
    held = native.service.routes["POST", "/trade"] = DelayedAnswer(JSONResponse({"order": 8}))
    client = RawClient(native).open()
    params = {"name": "desk__trade", "arguments": {"symbol": "X"}}
    with socket.create_connection(("127.0.0.1", native.port), timeout=30) as connection:
        connection.sendall(client.raw("tools/call", params, 5))
        assert held.asked.wait(30)
    assert not native.service.gone.is_set()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(client.call, "desk__trade", {"symbol": "X"}, 5)
        held.go.set()
        assert again.result(30)["structuredContent"] == {"order": 8}
    assert [asked.path for asked in native.service.received] == ["/trade"]
    (line,) = eventually(lambda: native.history("analyst"), "the call is in history")
    assert (line["status"], line["delivery"]) == ("ok", "native")


@pytest.mark.requirement("broker:disconnect", "broker:journal")
def test_a_write_under_which_the_proxy_dies_is_not_made_again(native: Pod) -> None:
    held = native.service.routes["POST", "/trade"] = DelayedAnswer(JSONResponse({"order": 8}))
    client = RawClient(native).open()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.call, "desk__trade", {"symbol": "X"}, 5)
        assert held.asked.wait(30)
        native.kill()
        assert isinstance(call.exception(30), httpx2.HTTPError)
    held.go.set()
    native.start()
    params = {"name": "desk__trade", "arguments": {"symbol": "X"}}
    assert client.ask("tools/call", params, 5).status_code == 404
    assert len(client.open().ask("tools/list").json()["result"]["tools"]) == 2
    assert [asked.path for asked in native.service.received] == ["/trade"]


@pytest.mark.requirement("broker:drain")
def test_at_the_stop_a_call_ends_and_a_client_that_listens_does_not_keep_the_proxy(
    native: Pod,
) -> None:
    held = native.service.routes["POST", "/trade"] = DelayedAnswer(JSONResponse({"order": 8}))
    client = RawClient(native).open()
    listening = native.clients.enter_context(httpx2.Client(timeout=60))
    with (
        ThreadPoolExecutor(1) as pool,
        listening.stream("GET", client.url, headers=client.headers) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == ": open"
        call = pool.submit(client.call, "desk__trade", {"symbol": "X"})
        assert held.asked.wait(30)
        assert native.process is not None
        native.process.send_signal(signal.SIGTERM)
        assert list(lines) == [""]
        held.go.set()
        assert call.result(30)["structuredContent"] == {"order": 8}
    assert native.process.wait(timeout=20) == 0
    assert native.history("analyst")[0]["status"] == "ok"


@pytest.mark.requirement("broker:hostile")
def test_a_body_that_is_too_long_is_refused_before_it_is_sent(native: Pod) -> None:
    client = RawClient(native).open()
    assert client.ask("tools/list", {"x": "y" * (5 << 20)}).status_code == 413
    assert client.ask("tools/list").status_code == 200


def audited(pod: Pod, *arguments: str) -> Result:
    log_file = pod.home / "audited.log"
    log_file.write_text("".join(json.dumps(event) + "\n" for event in pod.log()), encoding="utf-8")
    named = ["--history", str(pod.home / "history")]
    log = [] if arguments[:1] == ("show",) else ["--log", str(log_file)]
    result = CliRunner().invoke(app, ["audit", *arguments, *named, *log])
    assert result.stderr == ""
    return result


@pytest.fixture
def worked(native: Pod) -> Pod:
    """One mediated turn with a call, and three native calls, of which one is refused."""
    native.provider.says(calls(("c1", "desk__quote", {})), text("Three."))
    native.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "How much?"}]
    )
    client = RawClient(native).open()
    client.call("desk__balance")
    client.call("desk__trade", {"symbol": "X"})
    assert client.call("desk__trade")["isError"] is True
    eventually(
        lambda: len([one for one in native.log() if "total_rounds" in one]) == 4,
        "all ends are logged",
    )
    return native


@pytest.mark.requirement("broker:audit", "broker:log")
def test_audit_lists_shows_and_verifies_native_calls_beside_mediated_ones(worked: Pod) -> None:
    report = json.loads(audited(worked, "--json").stdout)
    assert {
        name: report["turns"][name]
        for name in ("total", "ok", "failed", "unfinished", "only_in_log")
    } == {
        "total": 4,
        "ok": 4,
        "failed": 0,
        "unfinished": 0,
        "only_in_log": 0,
    }
    counts = {
        tool["tool"]: (tool["calls"], tool["failed"], tool["ran"]) for tool in report["tools"]
    }
    assert counts == {"desk.balance": (1, 0, 1), "desk.quote": (1, 0, 1), "desk.trade": (2, 1, 1)}
    assert {one["name"]: one["count"] for one in report["interventions"]} == {
        "managed_tool_schema_rejected:desk.trade": 1
    }
    assert report["proxy_errors"] == []
    from_log = CliRunner().invoke(
        app, ["audit", "--json", "--log", str(worked.home / "audited.log")]
    )
    tools = json.loads(from_log.stdout)["tools"]
    assert {tool["tool"]: (tool["calls"], tool["failed"], tool["ran"]) for tool in tools} == counts
    verdict = audited(worked, "verify")
    assert (verdict.exit_code, verdict.stdout) == (0, "analyst: 4 lines, the chain holds\n")
    refused = worked.history("analyst")[-1]["turn_id"]
    shown = audited(worked, "show", refused).stdout
    for words in (
        "/mcp/analyst",
        "0 model calls",
        "runner → cllama: desk.trade",
        "schema_validation; nothing ran",
    ):
        assert words in shown
    bought = audited(worked, "show", worked.history("analyst")[2]["turn_id"]).stdout
    assert "cllama → desk → runner: " in bought
    assert '{"order": 7}' in bought


@pytest.mark.requirement("broker:view")
def test_an_operator_sees_a_native_call_as_a_turn_with_its_hidden_request(worked: Pod) -> None:
    turn_id = worked.history("analyst")[2]["turn_id"]

    def turn() -> Any:
        flows = [
            flow for flow in SavingPod(worked).flows() if flow.metadata.get("claw.turn") == turn_id
        ]
        return flows if len(flows) == 2 else None

    child, parent = eventually(turn, "both flows are saved")
    assert (parent.request.path, child.request.path) == ("/mcp/analyst", "/trade")
    assert (child.metadata["claw.tool"], child.metadata["claw.parent"]) == ("desk.trade", parent.id)
    assert json.loads(parent.metadata["claw.entry"])["delivery"] == "native"
    assert "runner → cllama: desk.trade" in describe(parent)
    assert "part of turn" in describe(child)
    with pytest.raises(NotReplayableError, match="no model was asked"):
        asyncio.run(replay(parent, [child, parent], AgentDirectory(worked.home / "context")))
    assert told(Path(worked.home / "flows").read_bytes()) == []
