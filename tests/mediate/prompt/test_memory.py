"""Memory from a real service: recalled in time or not at all, and retained beside the turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.prompt import memory as module
from tests.mediate.prompt.agent_context import AgentContext
from tests.peers import Answer, Service
from tests.waiting import DEADLINE, eventually_async


@pytest.fixture
async def context(service: Service, tmp_path: Path) -> AsyncIterator[AgentContext]:
    made = AgentContext(service, tmp_path)
    made.has(memory=made.memory())
    yield made
    await made.close()


def recalls(context: AgentContext, *memories: Any) -> None:
    context.service.routes["POST", "/recall"] = JSONResponse({"memories": memories})


@pytest.mark.requirement("memory:recall")
async def test_recalled_memories_are_in_the_prompt_with_kind_and_source(
    context: AgentContext,
) -> None:
    recalls(
        context,
        {
            "text": " Likes tea. ",
            "kind": "fact",
            "source": "chat",
            "ts": "2026-01-01",
            "score": 0.9,
        },
        {"text": "Lives in Paris."},
    )
    assert (
        "Memory (from mem):\n```\n[kind=fact, source=chat, ts=2026-01-01]\nLikes "
        "tea.\n\nLives in Paris.\n```"
    ) in await context.text()
    (sent,) = context.service.received
    assert (sent.path, sent.headers["authorization"]) == ("/recall", "Bearer memory-token-planted")
    assert sent.headers["x-claw-id"] == "analyst"
    assert sent.json == {
        "agent_id": "analyst",
        "pod": "desk",
        "messages": [
            {"role": "user", "content": "I live in Paris."},
            {"role": "user", "content": "What should I buy?"},
        ],
        "metadata": {
            "service": "analyst",
            "type": "openclaw",
            "timezone": "UTC",
            "requested_model": "m",
        },
    }
    (told,) = context.said("memory_op")
    assert (
        told["memory_op"],
        told["memory_status"],
        told["memory_blocks"],
        told["status_code"],
    ) == (
        "recall",
        "succeeded",
        2,
        200,
    )


@pytest.mark.requirement("memory:recall")
async def test_a_request_that_only_counts_tokens_asks_for_no_memory(context: AgentContext) -> None:
    recalls(context, {"text": "x"})
    assert await context.text(recall=False) == ""
    assert context.service.received == []


@pytest.mark.requirement("memory:recall")
async def test_the_latest_messages_of_a_long_conversation_are_sent(context: AgentContext) -> None:
    recalls(context)
    view = RunnerRequest(
        b"{}",
        "m",
        False,
        False,
        (),
        user_texts=(*(f"{n} " + "é" * 5000 for n in range(100)), "last"),
    )
    await context.prompt.text(context.agent, view, Redactor(()))
    messages = [message["content"] for message in context.service.received[0].json["messages"]]
    assert messages[-1] == "last"
    assert messages[-2].startswith("99 ")
    assert 30_000 < sum(len(text.encode()) for text in messages) <= 32 * 1024


@pytest.mark.requirement("memory:bounds")
async def test_memories_are_bounded_and_those_that_repeat_the_conversation_are_left_out(
    context: AgentContext,
) -> None:
    recalls(
        context,
        {"text": "raw", "kind": "Raw_Transcript"},
        {"text": "tail", "source": "session_tail"},
        {"text": "x" * 9000},
        {"text": ""},
        "no object",
        {"text": 5},
        *({"text": f"memory {n}"} for n in range(10)),
    )
    text = await context.text()
    assert [f"memory {n}" in text for n in range(10)] == [True] * 8 + [False] * 2
    for absent in ("raw", "tail", "xxx", "no object"):
        assert absent not in text.replace("What stands", "")
    assert (
        context.said("memory_op")[0]["memory_blocks"],
        context.said("memory_op")[0]["memory_removed"],
    ) == (8, 8)


FAILURES: list[tuple[Answer, str]] = [
    (Response(b"", status_code=500), "http_500"),
    (Response(b"no json"), "answer_not_readable"),
    (Response(b"[" * 9000), "answer_not_readable"),
    (JSONResponse({"memories": "x"}), "answer_not_readable"),
    (JSONResponse([]), "answer_not_readable"),
    (Response(b"x" * 17_000), "answer_too_large"),
    (RedirectResponse("/retain"), "http_307"),
]


@pytest.mark.requirement("memory:failure")
@pytest.mark.parametrize(("said", "error"), FAILURES)
async def test_a_service_that_fails_costs_the_memory_and_nothing_else(
    context: AgentContext, said: Answer, error: str
) -> None:
    context.service.routes["POST", "/recall"] = said
    assert await context.text() == ""
    (told,) = context.said("memory_op")
    assert (told["memory_status"], told["error"]) == ("failed", error)
    assert [one.path for one in context.service.received] == ["/recall"]


@pytest.mark.requirement("memory:failure")
async def test_a_slow_service_costs_no_more_than_its_time(context: AgentContext) -> None:
    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b'{"memories": ['
            await asyncio.Event().wait()

        return StreamingResponse(body())

    context.service.routes["POST", "/recall"] = drip
    context.has(memory=context.memory(recall={"path": "/recall", "timeout_ms": 50}))
    async with asyncio.timeout(DEADLINE):
        assert await context.text() == ""
    assert context.said("memory_op")[0]["memory_status"] == "timed_out"


@pytest.mark.requirement("memory:failure")
async def test_the_event_of_a_memory_service_that_failed_has_no_address(
    context: AgentContext,
) -> None:
    context.has(memory=context.memory(base_url="http://127.0.0.1:9"))
    assert await context.text() == ""
    context.has(memory=context.memory(auth={"type": "bearer", "token": {"secret": "nowhere"}}))
    assert await context.text() == ""
    assert [event["error"] for event in context.said("memory_op")] == [
        "unreachable",
        "credential_missing",
    ]
    assert "127.0.0.1" not in json.dumps(context.events)
    assert context.service.received == []


@pytest.mark.requirement("memory:recall")
async def test_a_credential_may_be_a_reference(context: AgentContext, tmp_path: Path) -> None:
    recalls(context, {"text": "You sent from-a-file."})
    (tmp_path / "mem-token").write_text("from-a-file\n", encoding="utf-8")
    context.has(memory=context.memory(auth={"type": "bearer", "token": {"secret": "mem-token"}}))
    assert "You sent ••••••." in await context.text()
    assert context.service.received[0].headers["authorization"] == "Bearer from-a-file"


PLANTED = ("sk-provider-planted", "analyst:s3cret-planted", "memory-token-planted")


@pytest.mark.requirement("memory:redaction")
async def test_no_credential_goes_to_a_recall_or_comes_back_from_it(context: AgentContext) -> None:
    recalls(
        context,
        {"text": f"keys: {' '.join(PLANTED)} Bearer abcdefgh123 sk-else0123", "kind": PLANTED[2]},
    )
    view = RunnerRequest(
        b"{}", "m", False, False, (), user_texts=(f"my key is {PLANTED[0]} and {PLANTED[1]}",)
    )
    redactor = Redactor([*context.agent.secrets, Secret(PLANTED[0])])
    text = await context.prompt.text(context.agent, view, redactor)
    sent = context.service.received[0].body.decode()
    for planted in (*PLANTED, "abcdefgh123", "sk-else0123"):
        assert planted not in text
        assert planted not in sent
    assert "my key is" in sent


async def arrived(context: AgentContext, path: str = "/retain") -> Any:
    """Wait for the service's answer, and return the request that it got."""
    await eventually_async(lambda: context.said("memory_op"), "the service has answered")
    return next(one for one in context.service.received if one.path == path)


@pytest.mark.requirement("memory:retain")
async def test_a_turn_is_retained_with_its_tool_results_and_without_credentials(
    context: AgentContext,
) -> None:
    context.service.routes["POST", "/retain"] = JSONResponse({})
    entry = {
        "requested_model": "m",
        "request_original": msgspec.Raw(b'{"n": 9007199254740993, "key": "sk-provider-planted"}'),
        "tool_trace": [{"tool_calls": [{"result": {"data": "Bearer abcdefgh123, 50000 dollars"}}]}],
    }
    context.prompt.retain(
        context.agent, entry, Redactor([*context.agent.secrets, Secret("sk-provider-planted")])
    )
    sent = await arrived(context)
    assert sent.json["agent_id"] == "analyst"
    assert sent.json["metadata"]["requested_model"] == "m"
    assert sent.json["entry"]["tool_trace"] == [
        {"tool_calls": [{"result": {"data": "••••••, 50000 dollars"}}]}
    ]
    assert b'{"n": 9007199254740993, "key": "' in sent.body
    assert b"planted" not in sent.body
    assert context.said("memory_op")[0]["memory_status"] == "succeeded"


@pytest.mark.requirement("memory:retain")
async def test_an_agent_without_retain_retains_nothing(context: AgentContext) -> None:
    context.has(memory=context.memory(retain=None))
    context.prompt.retain(context.agent, {}, Redactor(()))
    context.has()
    context.prompt.retain(context.agent, {}, Redactor(()))
    await context.close()
    assert context.service.received == []


@pytest.mark.requirement("memory:retain")
async def test_retains_are_bounded_in_number_and_those_under_way_arrive_before_the_end(
    context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 3)
    context.service.routes["POST", "/retain"] = JSONResponse({})
    for _ in range(5):
        context.prompt.retain(context.agent, {"requested_model": "m"}, Redactor(()))
    assert [(event["memory_status"], event["error"]) for event in context.said("memory_op")] == [
        ("skipped", "too_many_in_flight")
    ] * 2
    await context.close()
    assert len(context.service.received) == 3
    assert [event["memory_status"] for event in context.said("memory_op")] == ["skipped"] * 2 + [
        "succeeded"
    ] * 3


@pytest.mark.requirement("memory:retain")
async def test_a_service_that_never_answers_is_given_up(
    context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(module, "RETAIN_SECONDS", 0.05)
    context.service.routes["POST", "/retain"] = never
    context.prompt.retain(context.agent, {"requested_model": "m"}, Redactor(()))
    async with asyncio.timeout(DEADLINE):
        await context.close()
    assert [event["memory_status"] for event in context.said("memory_op")] == ["timed_out"]
