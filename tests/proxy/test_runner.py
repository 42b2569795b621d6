"""A runner's view of a pod, on the real ``openai`` SDK and behind the real mitmdump: what it sees,
and what is hidden.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Reply, calls, text
from tests.proxy.pod import PROVIDER_KEY, TOOL_TOKEN, Pod

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How am I doing?"}]
SHELL: Any = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}


def balance(pod: Pod) -> None:
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})


@pytest.mark.requirement("proxy:hidden-loop")
def test_a_managed_call_is_run_by_the_proxy_and_the_runner_sees_the_answer_only(
    running: Pod,
) -> None:
    balance(running)
    running.provider.says(calls(("c1", "desk__balance", {})), text("You have 50,000 dollars."))
    answer = running.client().chat.completions.create(model="gpt-test", messages=HI)
    assert answer.choices[0].message.content == "You have 50,000 dollars."
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == 20
    assert [call.path for call in running.service.received] == ["/balance"]
    sent = running.service.received[0].headers
    assert (sent["authorization"], sent["x-claw-id"]) == (f"Bearer {TOOL_TOKEN}", "analyst")


@pytest.mark.requirement("proxy:streaming")
def test_a_streaming_runner_gets_one_well_formed_stream(running: Pod) -> None:
    balance(running)
    words = "You have 50,000 dollars. " * 10
    running.provider.says(calls(("c1", "desk__balance", {})), text(words))
    with running.client().chat.completions.stream(
        model="gpt-test", messages=HI, stream_options={"include_usage": True}
    ) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == words
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 20
    assert len(chunks) > 5
    assert json.loads(running.provider.received[0].body)["stream"] is False


@pytest.mark.requirement("proxy:native-handed-back")
@pytest.mark.parametrize("stream", [False, True])
def test_a_native_call_is_handed_back_and_the_conversation_goes_on(
    running: Pod, stream: bool
) -> None:
    balance(running)
    running.provider.says(
        calls(("c1", "desk__balance", {}), ("n0", "shell", {"cmd": "ls"})),
        calls(("n1", "shell", {"cmd": "ls"})),
        text("Done."),
    )
    client, messages = running.client(), list(HI)
    message = ask(client, messages, stream)
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("shell", '{"cmd": "ls"}')
    ]
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": "n1", "content": "a file"},
    ]
    assert ask(client, messages, stream).content == "Done."
    roles = [entry["role"] for entry in running.provider.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


def ask(client: openai.OpenAI, messages: Any, stream: bool) -> Any:
    if not stream:
        return (
            client.chat.completions.create(model="gpt-test", messages=messages, tools=[SHELL])
            .choices[0]
            .message
        )
    with client.chat.completions.stream(
        model="gpt-test", messages=messages, tools=[SHELL]
    ) as events:
        return events.get_final_completion().choices[0].message


@pytest.mark.requirement("proxy:execution-hidden")
def test_the_model_sees_names_and_schemas_and_never_where_or_how(running: Pod) -> None:
    running.provider.says(text("Hi."))
    running.client().chat.completions.create(model="gpt-test", messages=HI, tools=[SHELL])
    sent = running.provider.received[0]
    assert [entry["function"]["name"] for entry in sent.json["tools"]] == [
        "shell",
        "desk__balance",
        "desk__trade",
    ]
    assert sent.json["tools"][0] == SHELL
    assert set(sent.json["tools"][1]["function"]) == {"name", "description", "parameters"}
    for hidden in (
        running.service.url,
        str(running.service.port),
        TOOL_TOKEN,
        "execution",
        "/trade",
    ):
        assert hidden not in sent.body.decode()


@pytest.mark.requirement("proxy:credentials-swapped")
def test_no_credential_crosses_a_border_that_it_does_not_belong_to(running: Pod) -> None:
    async def leaks(_request: Request) -> Response:
        return JSONResponse({"echo": TOOL_TOKEN, "also": PROVIDER_KEY})

    running.service.routes["GET", "/balance"] = leaks
    running.provider.says(
        calls(("c1", "desk__balance", {})), JSONResponse({"error": {"message": PROVIDER_KEY}}, 400)
    )
    with pytest.raises(openai.BadRequestError) as raised:
        running.client().chat.completions.create(
            model="gpt-test",
            messages=HI,
            extra_headers={"cookie": running.token(), "x-api-key": running.token()},
        )
    upstream = "".join(f"{sent.headers} {sent.body.decode()}" for sent in running.provider.received)
    assert f"Bearer {PROVIDER_KEY}" in upstream
    for secret in (running.token(), running.token().partition(":")[2], TOOL_TOKEN):
        assert secret not in upstream
    downstream = raised.value.response.text + str(raised.value.response.headers)
    recorded = "".join(
        file.read_text(encoding="utf-8") for file in (running.home / "history").rglob("*.jsonl")
    )
    for secret in (PROVIDER_KEY, TOOL_TOKEN):
        assert secret not in downstream
        assert secret not in running.said()
        assert secret not in recorded
    assert running.token() not in running.said() + recorded


@pytest.mark.requirement("proxy:identity")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer nonsense"}, 401),
        ({"authorization": "Bearer analyst:"}, 401),
        ({"authorization": "Bearer :secret"}, 401),
        ({"authorization": "Basic YTpi"}, 401),
        ({"authorization": "Bearer analyst:wrong"}, 403),
        ({"authorization": "Bearer nobody:wrong"}, 403),
        ({"authorization": "Bearer ../analyst:wrong"}, 403),
        ({"x-api-key": "analyst:wrong"}, 403),
        ({"authorization": "Bearer analyst:one", "x-api-key": "analyst:two"}, 401),
    ],
)
def test_who_is_not_admitted_is_refused_and_nothing_goes_upstream(
    identified: Pod, headers: dict[str, str], status: int
) -> None:

    for path in ("/v1/chat/completions", "/v1/models", "/v1/files"):
        method = "GET" if path == "/v1/models" else "POST"
        answer = httpx2.request(method, identified.url + path, headers=headers, content=b"{}")
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    anthropic = httpx2.post(identified.url + "/v1/messages", headers=headers, content=b"{}")
    assert (anthropic.status_code, anthropic.json()["type"]) == (status, "error")
    assert identified.provider.received == []


@pytest.mark.requirement("proxy:identity")
def test_an_unknown_agent_and_a_wrong_secret_are_told_the_same(identified: Pod) -> None:

    told = {
        httpx2.post(
            f"{identified.url}/v1/chat/completions",
            headers={"authorization": f"Bearer {who}:x"},
            content=b"{}",
        ).content
        for who in ("analyst", "nobody")
    }
    assert len(told) == 1


@pytest.mark.requirement("proxy:agents-live")
def test_grants_and_agents_change_while_the_proxy_runs(running: Pod) -> None:
    running.provider.says(text("1"), text("2"), text("3"))
    running.client().chat.completions.create(model="gpt-test", messages=HI)
    running.agent("analyst", running.tool("balance"))
    running.client().chat.completions.create(model="gpt-test", messages=HI)
    running.agent("newcomer", running.tool("quote"))
    running.client("newcomer").chat.completions.create(model="gpt-test", messages=HI)
    offered = [
        [entry["function"]["name"] for entry in sent.json["tools"]]
        for sent in running.provider.received
    ]
    assert offered == [["desk__balance", "desk__trade"], ["desk__balance"], ["desk__quote"]]


@pytest.mark.requirement("proxy:broken-agent")
def test_a_broken_manifest_fails_that_agent_alone_with_one_line_in_the_log(running: Pod) -> None:
    running.agent("executor", running.tool("balance"))
    (running.home / "context" / "analyst" / "tools.json").write_text(
        '{"version": 1, "tools": [', encoding="utf-8"
    )
    for _ in range(3):
        with pytest.raises(openai.PermissionDeniedError):
            running.client().chat.completions.create(model="gpt-test", messages=HI)
    running.provider.says(text("fine"))
    assert (
        running.client("executor")
        .chat.completions.create(model="gpt-test", messages=HI)
        .choices[0]
        .message.content
    )
    broken = [event for event in running.log() if event.get("error") == "agent_context_broken"]
    assert [(event["claw_id"], event["file"]) for event in broken] == [("analyst", "tools.json")]


@pytest.mark.requirement("proxy:two-conversations")
def test_two_conversations_of_one_agent_at_once_do_not_disturb_each_other(running: Pod) -> None:

    async def echo(request: Request) -> Reply:
        body = json.loads(await request.body())
        who = body["messages"][0]["content"]
        if body["messages"][-1]["role"] == "tool":
            return text(f"done {who}")
        return calls((f"c{who}", "desk__trade", {"symbol": who}))

    async def trade(request: Request) -> Response:
        return JSONResponse({"bought": json.loads(await request.body())["symbol"]})

    running.service.routes["POST", "/trade"] = trade
    running.provider.says(*[echo] * 40)
    client = running.client()

    def converse(number: int) -> str | None:
        messages: Any = [{"role": "user", "content": f"S{number}"}]
        return (
            client.chat.completions.create(model="gpt-test", messages=messages)
            .choices[0]
            .message.content
        )

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(converse, range(20)))
    assert answers == [f"done S{number}" for number in range(20)]
    assert len(running.history("analyst")) == 20
    assert sorted(json.loads(sent.body)["symbol"] for sent in running.service.received) == sorted(
        f"S{number}" for number in range(20)
    )
