"""Turns with tools over MCP through the real proxy, in both dialects: what the model, the server
and the operator see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from starlette.requests import Request
from starlette.responses import Response

from claw_contract.secret import DOTS
from claw_contract.transcript.render import render_transcript
from claw_mediate.mitm.view.turn_view import describe
from tests.mcp.scripted_server import ECHO, STATELESS, Exchange, ScriptedServer
from tests.peers import calls, text
from tests.proxy.looking import SavingPod
from tests.proxy.pod import TOOL_TOKEN, Pod
from tests.waiting import eventually
from tests.wires import MadeCall, anthropic

HI = [{"role": "user", "content": "Say it again."}]
SAID = {"ok": True, "data": 'you said {"text": "hi"}'}


@pytest.fixture(params=[("2025-11-25",), (STATELESS,)], ids=["handshake", "stateless"])
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(versions=request.param, streams=True).start()
    yield scripted
    scripted.stop()


def echo(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    """A manifest entry of the server's tool."""
    execution = {
        "transport": "mcp",
        "service": "desk",
        "base_url": server.url,
        "path": "/mcp",
        "tool_name": "echo",
        "auth": {"type": "bearer", "token": TOOL_TOKEN},
    }
    return {
        "name": "desk.echo",
        "description": "",
        "inputSchema": ECHO["inputSchema"],
        "execution": execution,
        **more,
    }


@pytest.mark.requirement("mcp:runs", "mcp:records")
def test_a_turn_of_openais_dialect_calls_a_tool_over_mcp(pod: Pod, server: ScriptedServer) -> None:
    pod.agent("analyst", echo(server))
    pod.start()
    for _ in range(2):
        pod.provider.says(calls(("c1", "desk__echo", {"text": "hi"})), text("Done."))
        answer = pod.client().chat.completions.create(model="gpt-test", messages=HI)
        assert answer.choices[0].message.content == "Done."
        assert json.loads(pod.provider.received[-1].json["messages"][-1]["content"]) == SAID
    assert len(server.of("initialize")) == 1
    assert {exchange.headers["authorization"] for exchange in server.received} == {
        f"Bearer {TOOL_TOKEN}"
    }
    session = None if server.is_stateless else "session-…"
    record = {"server": "scripted 1.2", "session": session, "protocol": server.versions[0]}
    for entry in eventually(
        lambda: entries if len(entries := pod.history("analyst")) == 2 else None, "two turns"
    ):
        (call,) = entry["tool_trace"][0]["tool_calls"]
        assert f"MCP {server.versions[0]} · scripted 1.2 ·" in render_transcript(entry)
        assert (call["service"], call["status"], call["ran"]) == ("desk", "ok", True)
        assert call["mcp"] == {name: value for name, value in record.items() if value is not None}
    events = [event for event in pod.log() if event["type"] == "tool_call"]
    assert [(event["name"], event["status"], event["mcp"]) for event in events] == [
        ("desk.echo", "ok", record)
    ] * 2
    pod.stop()
    assert server.sessions == set()
    assert len(server.of("DELETE")) == (not server.is_stateless)
    assert TOOL_TOKEN not in pod.said()


@pytest.mark.requirement("mcp:records-resumed", "mcp:at-most-once")
def test_a_turn_that_goes_on_after_kill_9_records_the_session_of_the_call_before_it(
    pod: Pod, server: ScriptedServer
) -> None:
    pod.agent("analyst", echo(server))
    pod.start()

    async def dies(_request: Request) -> Response:
        pod.kill()
        return Response(status_code=500)

    pod.provider.says(calls(("c1", "desk__echo", {"text": "hi"})), dies)
    with pytest.raises(openai.APIConnectionError):
        pod.client().chat.completions.create(model="gpt-test", messages=HI)
    pod.start()
    pod.provider.says(text("Done."))
    pod.client().chat.completions.create(model="gpt-test", messages=HI)
    assert len(server.of("tools/call")) == 1
    (entry,) = pod.history("analyst")
    (call,) = entry["tool_trace"][0]["tool_calls"]
    session = {} if server.is_stateless else {"session": "session-…"}
    assert call["mcp"] == {"server": "scripted 1.2", "protocol": server.versions[0], **session}
    assert entry["resumed"]


@pytest.mark.requirement("mcp:runs")
def test_a_turn_of_anthropics_dialect_calls_a_tool_over_mcp(
    pod: Pod, server: ScriptedServer
) -> None:
    pod.agent("analyst", echo(server))
    pod.start()
    pod.provider.says(
        anthropic_reply("", [MadeCall("toolu_1", "desk__echo", '{"text": "hi"}')]),
        anthropic_reply("Done.", []),
    )
    answer = pod.claude().messages.create(model="claude-test", max_tokens=100, messages=HI)
    assert answer.content[0].text == "Done."
    (result,) = pod.provider.received[-1].json["messages"][-1]["content"]
    assert json.loads(result["content"]) == SAID


@pytest.mark.requirement("mcp:images")
@pytest.mark.parametrize("is_claude", [True, False])
def test_an_image_reaches_a_model_whose_protocol_has_it(
    pod: Pod, server: ScriptedServer, is_claude: bool
) -> None:
    async def paint(exchange: Exchange) -> None:
        await exchange.result(
            {"content": [{"type": "image", "data": "eHg=", "mimeType": "image/png"}]}
        )

    server.says("tools/call", paint)
    pod.agent("analyst", echo(server))
    pod.start()
    if is_claude:
        pod.provider.says(
            anthropic_reply("", [MadeCall("toolu_1", "desk__echo", "{}")]),
            anthropic_reply("Done.", []),
        )
        pod.claude().messages.create(model="claude-test", max_tokens=100, messages=HI)
        (result,) = pod.provider.received[-1].json["messages"][-1]["content"]
        words, image = result["content"]
        assert image == {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "eHg="},
        }
        text_shown = words["text"]
    else:
        pod.provider.says(calls(("c1", "desk__echo", {})), text("Done."))
        pod.client().chat.completions.create(model="gpt-test", messages=HI)
        text_shown = pod.provider.received[-1].json["messages"][-1]["content"]
    assert json.loads(text_shown) == {"ok": True, "data": "[image, image/png, 2 bytes]"}


@pytest.mark.requirement("mcp:records")
def test_the_call_is_a_flow_that_names_server_session_and_version(
    pod: Pod, server: ScriptedServer
) -> None:
    pod.agent("analyst", echo(server))
    pod.start("-w", str(pod.home / "flows"))
    pod.provider.says(calls(("c1", "desk__echo", {"text": "hi"})), text("Done."))
    pod.client().chat.completions.create(model="gpt-test", messages=HI)
    _, (_, flow, _) = SavingPod(pod).last_turn(3)
    assert flow.metadata["claw.server"] == "scripted 1.2"
    assert flow.request.url == f"{server.url}/mcp"
    assert flow.request.headers["mcp-protocol-version"] == server.versions[0]
    assert flow.request.headers.get("mcp-session-id") == (
        None if server.is_stateless else "session-…"
    )
    assert flow.request.headers["authorization"] == DOTS
    assert flow.request.json()["params"]["name"] == "echo"
    assert flow.response is not None
    assert flow.response.json()["result"]["content"] == [{"type": "text", "text": SAID["data"]}]
    assert "desk.echo · scripted 1.2 · round 1" in describe(flow)


@pytest.mark.requirement("mcp:ends", "mcp:drift")
def test_an_agent_that_is_compiled_again_gets_a_new_session(
    pod: Pod, server: ScriptedServer
) -> None:
    pod.agent("analyst", echo(server))
    pod.start()

    def turn() -> Any:
        pod.provider.says(calls(("c1", "desk__echo", {"text": "hi"})), text("Done."))
        pod.client().chat.completions.create(model="gpt-test", messages=HI)
        return json.loads(pod.provider.received[-1].json["messages"][-1]["content"])

    assert turn() == SAID
    listed = len(server.of("tools/list"))
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}}
    pod.agent("analyst", echo(server, inputSchema=schema))
    assert turn()["error"]["code"] == "request_failed"
    assert len(server.of("tools/list")) == listed + 1
    if not server.is_stateless:
        eventually(lambda: len(server.of("DELETE")) == 1, "the old session has ended")
    (event,) = [event for event in pod.log() if event["type"] == "intervention"]
    assert event["intervention"] == "managed_tool_quarantined:desk.echo"
    assert "properties.text.maxLength" in event["reason"]


def anthropic_reply(words: str, made: list[MadeCall]) -> Response:
    return Response(anthropic.reply(words, made, {}), media_type="application/json")
