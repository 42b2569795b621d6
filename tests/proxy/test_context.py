"""Context and side requests through the real proxy: the text that the model gets,
and that no runner or service sees.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from tests.peers import calls, events, text
from tests.proxy.pod import PROVIDER_KEY, TOOL_TOKEN, Pod, headers
from tests.waiting import eventually

HI: Any = [
    {"role": "system", "content": "You trade."},
    {"role": "user", "content": f"What now? {PROVIDER_KEY}"},
]
FEED_TOKEN = "feed-token-planted-0005"
MEMORY_TOKEN = "memory-token-planted-0006"
TITLE = "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>"


def informed(pod: Pod, agent_id: str = "analyst") -> None:
    """Give the agent a feed, a memory and a block of its operator."""
    url = pod.service.url
    feed = {
        "name": "prices",
        "source": "market",
        "path": "/p",
        "ttl": 60,
        "url": f"{url}/prices",
        "auth": FEED_TOKEN,
    }
    pod.put(agent_id, "feeds.json", [feed])
    auth = {"type": "bearer", "token": MEMORY_TOKEN}
    recall = {"path": "/recall", "timeout_ms": 20_000}
    memory = {
        "version": 1,
        "service": "mem",
        "base_url": url,
        "auth": auth,
        "recall": recall,
        "retain": {"path": "/retain"},
    }
    pod.put(agent_id, "memory.json", memory)
    pod.put(
        agent_id,
        "context-blocks.json",
        {"version": 1, "blocks": [{"id": "house", "kind": "rule", "text": "Be brief."}]},
    )
    pod.service.routes |= {
        ("GET", "/prices"): JSONResponse({"NVDA": 1, "echo": f"{FEED_TOKEN} ``` {PROVIDER_KEY}"}),
        ("POST", "/recall"): JSONResponse({"memories": [{"text": f"Likes tea. {MEMORY_TOKEN}"}]}),
        ("POST", "/retain"): Response(status_code=204),
        ("GET", "/balance"): JSONResponse({"usd": 50_000, "echo": TOOL_TOKEN}),
    }


def asked(pod: Pod, path: str) -> list[Any]:
    return [one for one in pod.service.received if one.path == path]


def intervened(pod: Pod) -> list[str]:
    return [line["intervention"] for line in pod.log() if line["type"] == "intervention"]


@pytest.mark.requirement("context:end-to-end")
def test_a_mediated_turn_knows_its_feeds_and_memories_and_is_remembered(running: Pod) -> None:
    informed(running)
    running.provider.says(
        calls(("c1", "desk__balance", {})), text("You have 50,000 dollars."), text("Tea?")
    )
    client = running.client()
    client.chat.completions.create(model="gpt-test", messages=HI)
    first, second = (sent.json["messages"] for sent in running.provider.received)
    system = first[0]["content"]
    marks = ["You trade.", "no instruction of the user", "Likes tea.", '"NVDA"', "Be brief."]
    assert [system.index(mark) for mark in marks] == sorted(system.index(mark) for mark in marks)
    assert second[0] == first[0]
    assert first[1]["role"] == "user"
    sent = eventually(lambda: asked(running, "/retain"), "the turn is retained")[0]
    assert sent.json["entry"]["tool_trace"][0]["tool_calls"][0]["result"]["data"]["usd"] == 50_000
    assert (
        sent.json["entry"]["response"]["json"]["choices"][0]["message"]["content"]
        == "You have 50,000 dollars."
    )
    client.chat.completions.create(model="gpt-test", messages=HI)
    assert len(asked(running, "/prices")) == 1
    assert len(asked(running, "/recall")) == 2
    kinds = {line["type"] for line in running.log()}
    assert {"feed_fetch", "feed_injection", "memory_op"} <= kinds


@pytest.mark.requirement("context:end-to-end")
def test_nothing_that_is_hidden_crosses_a_border_with_the_context(running: Pod) -> None:
    informed(running)
    running.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    running.client().chat.completions.create(model="gpt-test", messages=HI)
    eventually(lambda: asked(running, "/retain"), "the turn is retained")
    told = [
        line
        for one in running.provider.received
        for line in json.dumps(one.json["messages"][0]).split("\\n")
    ]
    services = [
        one.body.decode() for path in ("/recall", "/retain") for one in asked(running, path)
    ]
    logged = [running.stdout.read_text(encoding="utf-8"), json.dumps(running.history("analyst"))]
    for hidden in (
        FEED_TOKEN,
        MEMORY_TOKEN,
        TOOL_TOKEN,
        PROVIDER_KEY,
        str(running.service.port),
        running.token(),
    ):
        assert not [line for line in told + services + logged if hidden in line], hidden


@pytest.mark.requirement("context:forwarded")
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_without_tools_gets_the_context_and_passes_as_it_is_otherwise(
    pod: Pod, stream: bool
) -> None:
    pod.agent("plain")
    informed(pod, "plain")
    pod.start()
    pod.provider.says(events({"choices": []}) if stream else text("Hi."))
    body = (
        b' {"model" : "gpt-test",\n "messages":[ {"role":"system","content":"A\\/"} ,{"role":"user","content":"B"} ],'
        b' "seed": 1.0, "stream": %b, "x":9007199254740993 } ' % (b"true" if stream else b"false")
    )
    assert (
        httpx2.post(
            f"{pod.url}/v1/chat/completions", content=body, headers=headers(pod)
        ).status_code
        == 200
    )
    (sent,) = pod.provider.received
    before, _, rest = body.partition(b'A\\/"')
    added = sent.body.removeprefix(before + b"A\\/\\n\\n").removesuffix(rest)
    assert len(sent.body) == len(before) + len(b"A\\/\\n\\n") + len(added) + len(rest)
    assert "Likes tea." in json.loads(b'"' + added)
    eventually(lambda: asked(pod, "/retain"), "the turn is retained")


@pytest.mark.requirement("context:forwarded")
def test_what_no_rule_reads_passes_as_it_is(pod: Pod) -> None:
    pod.agent("plain")
    informed(pod, "plain")
    pod.start()
    pod.provider.says(text("Hi."))
    body = b'{"model":"gpt-test","messages":{"odd":[1,2]}}'
    assert (
        httpx2.post(
            f"{pod.url}/v1/chat/completions", content=body, headers=headers(pod)
        ).status_code
        == 200
    )
    assert pod.provider.received[0].body == body
    assert asked(pod, "/prices") == []


@pytest.mark.requirement("context:forwarded")
def test_tokens_are_counted_with_the_context_and_without_asking_for_memories(running: Pod) -> None:
    informed(running)
    counted = JSONResponse({"input_tokens": 7})
    running.provider.says(counted, text("Hi."))
    client = running.claude()
    more: Any = {
        "model": "claude-test",
        "system": [{"type": "text", "text": "You trade."}],
        "messages": HI[1:],
    }
    assert client.messages.count_tokens(**more).input_tokens == 7
    assert asked(running, "/recall") == []
    client.messages.create(max_tokens=10, **more)
    counting, asking = (sent.json["system"] for sent in running.provider.received)
    assert [block["text"] for block in (counting[0], asking[0])] == ["You trade."] * 2
    assert '"NVDA"' in counting[1]["text"]
    assert "Likes tea." not in counting[1]["text"]
    assert "Likes tea." in asking[1]["text"]


@pytest.mark.requirement("housekeeping:forwarded")
def test_a_runners_side_request_gets_no_tools_and_no_context_and_is_not_remembered(
    running: Pod,
) -> None:
    informed(running)
    running.provider.says(text("A title"))
    body = json.dumps(
        {"model": "gpt-test", "messages": [{"role": "system", "content": TITLE}, *HI[1:]]}
    ).encode()
    answer = httpx2.post(
        f"{running.url}/v1/chat/completions", content=body, headers=headers(running, "analyst")
    )
    assert answer.json()["choices"][0]["message"]["content"] == "A title"
    assert running.provider.received[0].body == body
    eventually(lambda: running.history("analyst"), "its history is written")
    assert running.service.received == []
    assert intervened(running) == ["housekeeping:opencode-title"]


@pytest.mark.requirement("context:broken-file")
def test_a_broken_context_file_closes_the_agent_and_its_repair_opens_it(running: Pod) -> None:
    running.put("analyst", "feeds.json", {"not": "an array"})
    body = {"model": "gpt-test", "messages": HI}
    answer = httpx2.post(
        f"{running.url}/v1/chat/completions", json=body, headers=headers(running, "analyst")
    )
    assert answer.status_code == 403
    running.put("analyst", "feeds.json", [])
    running.provider.says(text("Hi."))
    answer = httpx2.post(
        f"{running.url}/v1/chat/completions", json=body, headers=headers(running, "analyst")
    )
    assert answer.status_code == 200
    assert running.provider.received[0].json["messages"] == HI
