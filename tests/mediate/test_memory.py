"""Memory from a real service: recalled in time or not at all, retained beside the turn, and without
credentials both ways.
"""

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
from tests.mediate.gathered import Gathering
from tests.peers import Answer as Said
from tests.peers import Service
from tests.waiting import DEADLINE, eventually_async


@pytest.fixture
async def desk(service: Service, tmp_path: Path) -> AsyncIterator[Gathering]:
    made = Gathering(service, tmp_path)
    made.has(memory=made.memory())
    yield made
    await made.close()


def recalls(desk: Gathering, *memories: Any) -> None:
    desk.service.routes["POST", "/recall"] = JSONResponse({"memories": memories})


@pytest.mark.requirement("memory:recall")
async def test_what_is_recalled_stands_in_the_prompt_with_its_kind_and_source(
    desk: Gathering,
) -> None:
    recalls(
        desk,
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
    ) in await desk.text()
    (sent,) = desk.service.received
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
    (told,) = desk.said("memory_op")
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
async def test_a_request_that_only_counts_tokens_asks_for_no_memory(desk: Gathering) -> None:
    recalls(desk, {"text": "x"})
    assert await desk.text(recall=False) == ""
    assert desk.service.received == []


@pytest.mark.requirement("memory:recall")
async def test_of_a_long_conversation_the_latest_is_sent(desk: Gathering) -> None:
    recalls(desk)
    view = RunnerRequest(
        b"{}",
        "m",
        False,
        False,
        (),
        user_texts=(*(f"{n} " + "é" * 5000 for n in range(100)), "last"),
    )
    await desk.context.text(desk.agent, view, Redactor(()))
    messages = [message["content"] for message in desk.service.received[0].json["messages"]]
    assert messages[-1] == "last"
    assert messages[-2].startswith("99 ")
    assert 30_000 < sum(len(text.encode()) for text in messages) <= 32 * 1024


@pytest.mark.requirement("memory:bounds")
async def test_memories_are_bounded_and_the_conversation_itself_is_none(desk: Gathering) -> None:
    recalls(
        desk,
        {"text": "raw", "kind": "Raw_Transcript"},
        {"text": "tail", "source": "session_tail"},
        {"text": "x" * 9000},
        {"text": ""},
        "no object",
        {"text": 5},
        *({"text": f"memory {n}"} for n in range(10)),
    )
    text = await desk.text()
    assert [f"memory {n}" in text for n in range(10)] == [True] * 8 + [False] * 2
    for absent in ("raw", "tail", "xxx", "no object"):
        assert absent not in text.replace("What stands", "")
    assert (
        desk.said("memory_op")[0]["memory_blocks"],
        desk.said("memory_op")[0]["memory_removed"],
    ) == (8, 8)


FAILURES: list[tuple[Said, str]] = [
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
    desk: Gathering, said: Said, error: str
) -> None:
    desk.service.routes["POST", "/recall"] = said
    assert await desk.text() == ""
    (told,) = desk.said("memory_op")
    assert (told["memory_status"], told["error"]) == ("failed", error)
    assert [one.path for one in desk.service.received] == ["/recall"]


@pytest.mark.requirement("memory:failure")
async def test_a_slow_service_costs_no_more_than_its_time(desk: Gathering) -> None:
    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b'{"memories": ['
            await asyncio.Event().wait()

        return StreamingResponse(body())

    desk.service.routes["POST", "/recall"] = drip
    desk.has(memory=desk.memory(recall={"path": "/recall", "timeout_ms": 50}))
    async with asyncio.timeout(DEADLINE):
        assert await desk.text() == ""
    assert desk.said("memory_op")[0]["memory_status"] == "timed_out"


@pytest.mark.requirement("memory:failure")
async def test_a_service_that_is_down_or_a_credential_that_is_missing_is_told_without_an_address(
    desk: Gathering,
) -> None:
    desk.has(memory=desk.memory(base_url="http://127.0.0.1:9"))
    assert await desk.text() == ""
    desk.has(memory=desk.memory(auth={"type": "bearer", "token": {"secret": "nowhere"}}))
    assert await desk.text() == ""
    assert [event["error"] for event in desk.said("memory_op")] == [
        "unreachable",
        "credential_missing",
    ]
    assert "127.0.0.1" not in json.dumps(desk.events)
    assert desk.service.received == []


@pytest.mark.requirement("memory:recall")
async def test_a_credential_may_be_a_reference(desk: Gathering, tmp_path: Path) -> None:
    recalls(desk, {"text": "You sent from-a-file."})
    (tmp_path / "mem-token").write_text("from-a-file\n", encoding="utf-8")
    desk.has(memory=desk.memory(auth={"type": "bearer", "token": {"secret": "mem-token"}}))
    assert "You sent ••••••." in await desk.text()
    assert desk.service.received[0].headers["authorization"] == "Bearer from-a-file"


PLANTED = ("sk-provider-planted", "analyst:s3cret-planted", "memory-token-planted")


@pytest.mark.requirement("memory:redaction")
async def test_no_credential_goes_to_a_recall_or_comes_back_from_it(desk: Gathering) -> None:
    recalls(
        desk,
        {"text": f"keys: {' '.join(PLANTED)} Bearer abcdefgh123 sk-else0123", "kind": PLANTED[2]},
    )
    view = RunnerRequest(
        b"{}", "m", False, False, (), user_texts=(f"my key is {PLANTED[0]} and {PLANTED[1]}",)
    )
    redactor = Redactor([*desk.agent.secrets, Secret(PLANTED[0])])
    text = await desk.context.text(desk.agent, view, redactor)
    sent = desk.service.received[0].body.decode()
    for planted in (*PLANTED, "abcdefgh123", "sk-else0123"):
        assert planted not in text
        assert planted not in sent
    assert "my key is" in sent


async def arrived(desk: Gathering, path: str = "/retain") -> Any:
    """Wait for the service's answer, and return the request that it got."""
    await eventually_async(lambda: desk.said("memory_op"), "the service has answered")
    return next(one for one in desk.service.received if one.path == path)


@pytest.mark.requirement("memory:retain")
async def test_a_turn_is_retained_with_its_tool_results_and_without_credentials(
    desk: Gathering,
) -> None:
    desk.service.routes["POST", "/retain"] = JSONResponse({})
    entry = {
        "requested_model": "m",
        "request_original": msgspec.Raw(b'{"n": 9007199254740993, "key": "sk-provider-planted"}'),
        "tool_trace": [{"tool_calls": [{"result": {"data": "Bearer abcdefgh123, 50000 dollars"}}]}],
    }
    desk.context.retain(
        desk.agent, entry, Redactor([*desk.agent.secrets, Secret("sk-provider-planted")])
    )
    sent = await arrived(desk)
    assert sent.json["agent_id"] == "analyst"
    assert sent.json["metadata"]["requested_model"] == "m"
    assert sent.json["entry"]["tool_trace"] == [
        {"tool_calls": [{"result": {"data": "••••••, 50000 dollars"}}]}
    ]
    assert b'{"n": 9007199254740993, "key": "' in sent.body
    assert b"planted" not in sent.body
    assert desk.said("memory_op")[0]["memory_status"] == "succeeded"


@pytest.mark.requirement("memory:retain")
async def test_an_agent_without_retain_retains_nothing(desk: Gathering) -> None:
    desk.has(memory=desk.memory(retain=None))
    desk.context.retain(desk.agent, {}, Redactor(()))
    desk.has()
    desk.context.retain(desk.agent, {}, Redactor(()))
    await desk.close()
    assert desk.service.received == []


@pytest.mark.requirement("memory:retain")
async def test_retains_are_bounded_in_number_and_what_is_on_its_way_arrives_before_the_end(
    desk: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 3)
    desk.service.routes["POST", "/retain"] = JSONResponse({})
    for _ in range(5):
        desk.context.retain(desk.agent, {"requested_model": "m"}, Redactor(()))
    assert [(event["memory_status"], event["error"]) for event in desk.said("memory_op")] == [
        ("skipped", "too_many_in_flight")
    ] * 2
    await desk.close()
    assert len(desk.service.received) == 3
    assert [event["memory_status"] for event in desk.said("memory_op")] == ["skipped"] * 2 + [
        "succeeded"
    ] * 3


@pytest.mark.requirement("memory:retain")
async def test_a_service_that_never_answers_is_given_up(
    desk: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(module, "RETAIN_SECONDS", 0.05)
    desk.service.routes["POST", "/retain"] = never
    desk.context.retain(desk.agent, {"requested_model": "m"}, Redactor(()))
    async with asyncio.timeout(DEADLINE):
        await desk.close()
    assert [event["memory_status"] for event in desk.said("memory_op")] == ["timed_out"]
