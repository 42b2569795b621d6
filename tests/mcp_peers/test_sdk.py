"""The official SDK, in both of its major versions: its servers behind the proxy,
its clients at wrapper and broker.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp.discovery import discover
from claw_mcp.http_channel import HttpServer
from tests.mcp_peers.peers import wrapper
from tests.mcp_peers.sdk import SDKS, Mode, Sdk, SdkServer, ask, job, sdk_server, stdio_command
from tests.peers import calls, text
from tests.proxy.pod import Pod
from tests.waiting import eventually

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
SERVERS: tuple[tuple[Sdk, Mode], ...] = ((1, "json"), (1, "stateless"), (2, "json"), (2, "sse"))
BIG = 2**60 + 1
BEARER = "bearer-of-the-sdk-server-0008"
WORDS = "Grüße, 世界"
RESULTS: dict[str, tuple[dict[str, Any], Any]] = {
    "echo": ({"text": WORDS}, {"result": WORDS}),
    "add": ({"a": BIG, "b": BIG}, str(2 * BIG)),
    "structured": ({"symbol": "NVDA"}, {"symbol": "NVDA", "shares": 3}),
    "write": ({"text": "once"}, {"result": "1"}),
    "slow": ({"seconds": 0.1}, {"result": "done"}),
    "routed": ({"region": "eu"}, {"result": "eu"}),
}
"""Tools of ``sdk_server.py``, with arguments and what a model reads."""


def granted(server: SdkServer, tool: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a manifest for a tool that the server lists."""
    auth = {"type": "bearer", "token": server.bearer}
    base_url = server.url.removesuffix("/mcp")
    execution = {
        "transport": "mcp",
        "service": "sdk",
        "base_url": base_url,
        "tool_name": tool["name"],
        "auth": auth,
    }
    return {
        "name": f"sdk.{tool['name']}",
        "inputSchema": tool["inputSchema"],
        "execution": execution,
    }


@pytest.mark.long
@pytest.mark.requirement("mcp:sdk-servers")
@pytest.mark.parametrize(("sdk", "mode"), SERVERS)
def test_a_model_calls_the_tools_of_a_server_of_the_sdk(pod: Pod, sdk: Sdk, mode: Mode) -> None:
    wanted = {
        **RESULTS,
        "fails": ({"message": "no"}, None),
        "asks_back": ({"what": "elicitation"}, None),
        "image": ({}, None),
    }
    with sdk_server(sdk, mode, pod.home / "server", BEARER) as server:
        pod.agent("analyst", *(granted(server, tool) for tool in tools_of(server)))
        pod.start()
        before = len(server.requests())
        made = [
            (f"call{name}", f"sdk__{name}", arguments) for name, (arguments, _) in wanted.items()
        ]
        pod.provider.says(calls(*made), text("Done."))
        pod.client().chat.completions.create(
            model="gpt-test", messages=[{"role": "user", "content": "Do it"}]
        )
        requests = server.requests()[before:]
        written = server.calls("write")
    results = read_results(pod, len(made))
    assert {name: results[name]["data"] for name in RESULTS} == {
        name: data for name, (_, data) in RESULTS.items()
    }
    assert (results["fails"]["ok"], results["fails"]["error"]["code"]) == (False, "tool_error")
    assert "refused" in json.dumps(results["asks_back"])
    assert "image/png" in json.dumps(results["image"])
    assert len(written) == 1
    assert {request["headers"]["authorization"] for request in requests} == {f"Bearer {BEARER}"}
    assert rpc_methods(requests).count("initialize") == 1
    assert rpc_methods(requests).count("tools/call") == len(made)


@pytest.mark.long
@pytest.mark.requirement("mcp:sdk-servers")
@pytest.mark.parametrize(("sdk", "mode"), [(1, "json"), (2, "sse")])
def test_a_server_of_the_sdk_is_told_to_cancel_and_may_restart_and_may_die(
    pod: Pod, sdk: Sdk, mode: Mode
) -> None:
    impatient = {"annotations": {"x-claw.timeout_ms": 400}}
    with sdk_server(sdk, mode, pod.home / "server", BEARER) as server:
        entries = [granted(server, tool) for tool in tools_of(server)]
        pod.agent(
            "analyst",
            *(entry | impatient if entry["name"] == "sdk.slow" else entry for entry in entries),
        )
        pod.start()
        slow = call_once(pod, "slow", {"seconds": 30.0})
        while not server.calls(
            "slow"
        ):  # on a busy machine its time may be over before the server has it
            slow = call_once(pod, "slow", {"seconds": 30.0})
        eventually(
            lambda: [call for call in server.calls("slow") if call.get("cancelled")],
            "the server has cancelled the call",
        )
        server.kill()
        server.start()
        written = call_once(pod, "write", {"text": "once"})
        dead = call_once(pod, "dies", {})
        writes = server.calls("write")
    assert (slow["ok"], slow["error"]["code"]) == (False, "timeout")
    assert (written["ok"], len(writes)) == (True, 1)
    assert (dead["ok"], dead["error"]["code"]) == (False, "outcome_unknown")


def call_once(pod: Pod, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what the model reads when it makes this call in a turn of its own."""
    pod.provider.says(calls(("call1", f"sdk__{tool}", arguments)), text("Done."))
    pod.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": tool}]
    )
    result: dict[str, Any] = json.loads(pod.provider.received[-1].json["messages"][-1]["content"])
    return result


def tools_of(server: SdkServer) -> tuple[dict[str, Any], ...]:
    """Return the tools as discovery finds them."""
    place = HttpServer(
        server.url, server.url, (("authorization", Secret(f"Bearer {server.bearer}")),)
    )
    us = {"name": "tests", "version": "1"}
    return asyncio.run(discover(place, Redactor(()), lambda _: None, client=us)).tools


def read_results(pod: Pod, count: int) -> dict[str, dict[str, Any]]:
    """Return what the model read, by tool."""
    messages = pod.provider.received[-1].json["messages"][-count:]
    return {
        message["tool_call_id"].removeprefix("call"): json.loads(message["content"])
        for message in messages
    }


def rpc_methods(requests: list[dict[str, Any]]) -> list[str]:
    return [request["body"].get("method", "") for request in requests if request["body"]]


def ask_as_each_client(*jobs: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the outcomes of the jobs for each kind of client, with the version of
    the protocol that it must get.
    """
    legacy, stateless = (
        [one | {"mode": "legacy"} for one in jobs],
        [one | {"mode": "auto"} for one in jobs],
    )
    outcomes = ask(2, *legacy, *stateless)
    return [
        (HANDSHAKE, ask(1, *jobs)),
        (HANDSHAKE, outcomes[: len(jobs)]),
        (STATELESS, outcomes[len(jobs) :]),
    ]


@pytest.mark.long
@pytest.mark.requirement("mcp:sdk-clients")
def test_a_client_of_the_sdk_gets_the_same_from_the_wrapper_as_from_the_server_itself(
    tmp_path: Path,
) -> None:
    calls = [(name, arguments) for name, (arguments, _) in RESULTS.items() if name != "write"]
    calls += [("fails", {"message": "no"}), ("image", {}), ("no_such_tool", {})]
    with ExitStack() as running:
        servers = [
            running.enter_context(sdk_server(sdk, "sse", tmp_path / f"server-{sdk}"))
            for sdk in SDKS
        ]
        homes = [tmp_path / f"wrapper-{sdk}" for sdk in SDKS]
        for home in homes:
            home.mkdir()
        wrappers = [
            running.enter_context(wrapper(stdio_command(sdk, home), home))
            for sdk, home in zip(SDKS, homes, strict=True)
        ]
        expected = ask(2, *(job(server.url, *calls, mode="legacy") for server in servers))
        answers = ask_as_each_client(*(job(url, *calls) for url in wrappers))
    for version, outcomes in answers:
        assert [
            (each.get("failure"), each.get("version"), each.get("server")) for each in outcomes
        ] == [(None, version, "sdk-server") for _ in SDKS]
        assert [names_of(outcome) for outcome in outcomes] == [
            names_of(outcome) for outcome in expected
        ]
        assert [results_of(outcome) for outcome in outcomes] == [
            results_of(outcome) for outcome in expected
        ]


def names_of(outcome: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in outcome["tools"]]


def results_of(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results without what the protocol of a newer client adds."""
    added = {"_meta", "resultType"}
    return [
        {name: value for name, value in result.items() if name not in added}
        for result in outcome["results"]
    ]


@pytest.mark.long
@pytest.mark.requirement("mcp:sdk-clients")
def test_clients_of_the_sdk_list_and_call_native_tools_at_the_broker(pod: Pod) -> None:
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": BIG})
    pod.agent("analyst", pod.tool("balance") | {"delivery": "native"}, pod.tool("mediated"))
    pod.agent("other", pod.tool("balance") | {"delivery": "native"})
    pod.start()
    url, calls = f"{pod.url}/mcp/analyst", (("desk__balance", {}), ("desk__mediated", {}))
    clients = ask_as_each_client(
        job(url, *calls, bearer=pod.token()), job(url, bearer=pod.token("other"))
    )
    for version, (answer, foreign) in clients:
        assert (answer.get("failure"), answer.get("version")) == (None, version)
        assert names_of(answer) == ["desk__balance"]
        balance, unknown = answer["results"]
        assert balance["structuredContent"] == {"usd": BIG}
        assert unknown.get("isError") or "error" in unknown
        assert "failure" in foreign
    assert [request.path for request in pod.service.received] == ["/balance"] * len(clients)
    assert [line["delivery"] for line in pod.history("analyst")] == ["native"] * 2 * len(clients)
