"""A runner's view of a pod, on the real ``anthropic`` SDK and behind the real mitmdump: what it
sees, and what is hidden.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest
from starlette.responses import JSONResponse

from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, TOOL_TOKEN, Pod
from tests.wires.anthropic import message, tool_use

HI: list[Any] = [{"role": "user", "content": "How am I doing?"}]
ASKED: dict[str, Any] = {"model": "claude-test", "max_tokens": 100, "messages": HI}
BASH: Any = {"name": "bash", "input_schema": {"type": "object"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def says(pod: Pod, *messages: Any) -> None:
    pod.provider.says(
        *(JSONResponse(message(*(said if isinstance(said, list) else [said]))) for said in messages)
    )


def balance(pod: Pod) -> None:
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})


def ask(client: anthropic.Anthropic, stream: bool, **more: Any) -> anthropic.types.Message:
    if not stream:
        answer: anthropic.types.Message = client.messages.create(**ASKED | more)
        return answer
    with client.messages.stream(**ASKED | more) as events:
        return events.get_final_message()


@pytest.mark.requirement("anthropic:hidden-loop")
@pytest.mark.parametrize("stream", [False, True])
def test_a_managed_call_is_run_by_the_proxy_and_the_runner_sees_the_answer_only(
    running: Pod, stream: bool
) -> None:
    balance(running)
    says(
        running,
        [THINKING, "Looking.", tool_use("t1", "desk__balance", {})],
        [THINKING, "You have 50,000 dollars."],
    )
    answer = ask(running.claude(), stream)
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.stop_reason) == (
        10,
        10,
        "end_turn",
    )
    first, second = (sent.json for sent in running.provider.received)
    assert [tool["name"] for tool in first["tools"]] == ["desk__balance", "desk__trade"]
    assert not first.get("stream")
    said, heard = second["messages"][1:]
    assert said["content"][0] == THINKING
    assert json.loads(heard["content"][0]["content"]) == {
        "ok": True,
        "status_code": 200,
        "data": {"usd": 50_000},
    }
    assert running.service.received[0].headers["authorization"] == f"Bearer {TOOL_TOKEN}"


@pytest.mark.requirement("anthropic:native-handed-back")
@pytest.mark.parametrize("stream", [False, True])
def test_a_native_call_is_handed_back_and_the_conversation_goes_on(
    running: Pod, stream: bool
) -> None:
    balance(running)
    native = tool_use("n1", "bash", {"cmd": "ls", "n": 1.0})
    says(
        running,
        [tool_use("t1", "desk__balance", {}), tool_use("n0", "bash", {})],
        [THINKING, native],
        "Done.",
    )
    client = running.claude()
    answer = ask(client, stream, tools=[BASH])
    assert [block.type for block in answer.content] == ["thinking", "tool_use"]
    assert answer.content[1].model_dump()["input"] == {"cmd": "ls", "n": 1.0}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "n1", "content": "a file"}],
    }
    messages = [*HI, {"role": "assistant", "content": answer.content}, result]
    assert (
        ask(client, stream, tools=[BASH], messages=messages).content[0].model_dump()["text"]
        == "Done."
    )
    roles = [entry["role"] for entry in running.provider.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.requirement("anthropic:credentials-swapped")
@pytest.mark.parametrize("form", ["bearer", "x-api-key"])
def test_the_agents_credential_is_taken_in_either_form_and_the_providers_own_goes_on(
    running: Pod, form: str
) -> None:
    says(running, "Hi.")
    shown = (
        {"x-api-key": running.token()}
        if form == "x-api-key"
        else {"authorization": f"Bearer {running.token()}"}
    )
    headers = {**shown, "anthropic-version": "2023-06-01", "anthropic-beta": "one,two"}
    answer = httpx2.post(f"{running.url}/v1/messages?beta=true", headers=headers, json=ASKED)
    assert answer.status_code == 200
    (sent,) = running.provider.received
    assert sent.path == "/v1/messages?beta=true"
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (
        ANTHROPIC_KEY,
        "2023-06-01",
    )
    assert sent.headers["anthropic-beta"] == "one,two"
    for secret in (running.token(), PROVIDER_KEY):
        assert secret not in f"{sent.headers}{sent.body.decode()}"


@pytest.mark.requirement("anthropic:count-tokens")
def test_tokens_are_counted_with_the_managed_tools_and_the_hidden_rounds(running: Pod) -> None:
    balance(running)
    says(running, [tool_use("t1", "desk__balance", {})], "You have 50,000 dollars.")
    client = running.claude()
    answer = ask(client, False)
    running.provider.says(JSONResponse({"input_tokens": 321}))
    messages = [
        *HI,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": "Sure?"},
    ]
    counted = client.messages.count_tokens(model="claude-test", messages=messages, tools=[BASH])
    assert counted.input_tokens == 321
    sent = running.provider.received[-1]
    assert sent.path == "/v1/messages/count_tokens"
    assert [tool["name"] for tool in sent.json["tools"]] == ["bash", "desk__balance", "desk__trade"]
    assert [entry["role"] for entry in sent.json["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert len(running.history("analyst")) == 1  # counting tokens is no turn


@pytest.mark.requirement("anthropic:errors")
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("stream", [False, True])
def test_a_providers_error_keeps_its_status_and_shape(running: Pod, stream: bool) -> None:
    error = {
        "type": "error",
        "error": {"type": "overloaded_error", "message": f"busy {ANTHROPIC_KEY}"},
    }
    running.provider.says(JSONResponse(error, 529))
    with pytest.raises(anthropic.InternalServerError) as raised:
        ask(running.claude(), stream)
    assert raised.value.status_code == 529
    assert "busy" in str(raised.value)
    assert ANTHROPIC_KEY not in raised.value.response.text


@pytest.mark.requirement("anthropic:errors")
def test_a_refusal_of_ours_has_the_dialects_shape(running: Pod) -> None:
    with pytest.raises(anthropic.PermissionDeniedError) as raised:
        ask(running.claude(api_key="analyst:wrong"), False)
    assert raised.value.response.json()["type"] == "error"
    assert raised.value.response.json()["error"]["type"] == "permission_error"


@pytest.mark.requirement("anthropic:credentials-swapped")
def test_two_dialects_of_one_agent_reach_their_own_providers(running: Pod) -> None:
    says(running, "Hi.")
    ask(running.claude(), False)
    assert running.provider.received[0].headers["x-api-key"] == ANTHROPIC_KEY
    assert "authorization" not in running.provider.received[0].headers
