"""Budgets in dollars through the real proxy: they hold though runners leave, ask at
one time, and ask for no usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sqlite3
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod, authority, headers
from tests.waiting import eventually, eventually_async
from tests.wires.anthropic import message

TWO_DOLLARS = {"prompt_tokens": 500_000, "completion_tokens": 500_000, "total_tokens": 1_000_000}
PRICES = {"gpt": {"input": 2, "output": 2}, "claude": {"input": 2, "output": 2}}
WORDS: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-test",
}
SAID = {
    **WORDS,
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Once upon a time"}}],
}
ENDED = {**WORDS, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USED = {**WORDS, "choices": [], "usage": TWO_DOLLARS}
ASKED = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}
CHAT, LEGACY, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"


def priced(pod: Pod, agent_id: str = "plain", **budget: Any) -> Pod:
    """Give an agent without tools a budget in dollars, and the models their prices."""
    if agent_id == "plain":
        pod.agent("plain")
    file = pod.home / "auth" / "prices.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(PRICES), encoding="utf-8")
    pod.budget(agent_id, **{"limit_usd": 1.0, "window": "1h", **budget})
    return pod


def stream(*chunks: dict[str, Any], end: str = "\n\n") -> bytes:
    return (
        b"".join(f"data: {json.dumps(chunk)}{end}".encode() for chunk in chunks)
        + f"data: [DONE]{end}".encode()
    )


def as_asked(
    end: str = "\n\n", coding: str = "", *, is_cut_in_pieces: bool = False
) -> Callable[[Request], Any]:
    """Return a provider's stream, whose usage comes only if the request asks for it."""

    async def answer(request: Request) -> Response:
        asked = json.loads(await request.body())
        wants = (asked.get("stream_options") or {}).get("include_usage") is True
        body = stream(SAID, ENDED, *([USED] if wants else []), end=end)
        more = {}
        if coding:
            body, more = gzip.compress(body), {"content-encoding": "gzip"}
        if not is_cut_in_pieces:
            return Response(body, media_type="text/event-stream", headers=more)

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 7):
                yield body[start : start + 7]
                await asyncio.sleep(0)

        return StreamingResponse(pieces(), media_type="text/event-stream", headers=more)

    return answer


def post(
    pod: Pod, body: dict[str, Any], agent_id: str = "plain", path: str = CHAT
) -> httpx2.Response:
    return httpx2.post(f"{pod.url}{path}", json=body, headers=headers(pod, agent_id), timeout=30)


def usages(pod: Pod, agent_id: str = "plain") -> list[dict[str, Any]]:
    return [line["usage"] for line in pod.history(agent_id)]


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize("path", [CHAT, LEGACY])
@pytest.mark.parametrize(
    "options", [..., None, {}, {"include_usage": False}, {"include_usage": None}]
)
def test_a_stream_that_asks_for_no_usage_is_charged_by_its_usage(
    running: Pod, path: str, options: Any
) -> None:
    priced(running).provider.says(as_asked(), as_asked())
    body = {**ASKED, "stream": True, **({} if options is ... else {"stream_options": options})}
    first, second = post(running, body, path=path), post(running, body, path=path)
    assert (first.status_code, second.status_code) == (200, 429)
    assert first.content == stream(SAID, ENDED), "the runner sees what it would have seen"
    assert running.provider.received[0].json["stream_options"] == {"include_usage": True}
    assert usages(running)[0]["reported_cost_usd"] == 2.0


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize("is_cut_in_pieces", [False, True])
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_the_usage_is_taken_out_however_the_stream_comes(
    running: Pod, end: str, coding: str, is_cut_in_pieces: bool
) -> None:
    priced(running).provider.says(as_asked(end, coding, is_cut_in_pieces=is_cut_in_pieces))
    answer = post(running, {**ASKED, "stream": True})
    assert answer.content == stream(SAID, ENDED, end=end)
    eventually(lambda: len(usages(running)) == 1, "the request is recorded")
    assert usages(running)[0]["reported_cost_usd"] == 2.0


@pytest.mark.requirement("budget:usage-asked-for")
def test_a_runner_that_asks_for_the_usage_gets_it_and_one_beside_text_stays(running: Pod) -> None:
    both = {**SAID, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}

    async def answer(_request: Request) -> Response:
        return Response(
            stream(both, {**both, "usage": TWO_DOLLARS}), media_type="text/event-stream"
        )

    priced(running, limit_usd=5.0).provider.says(as_asked(), answer)
    wanted = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
    assert post(running, wanted).content == stream(SAID, ENDED, USED)
    assert running.provider.received[0].json == wanted
    assert post(running, {**ASKED, "stream": True}).content == stream(
        both, {**both, "usage": TWO_DOLLARS}
    )
    eventually(lambda: len(usages(running)) == 2, "both are recorded")
    assert [usage["reported_cost_usd"] for usage in usages(running)] == [2.0, 2.0]


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize("budget", [None, {"max_requests": 9, "window": "1h"}])
def test_without_a_limit_in_dollars_not_a_byte_is_edited(
    running: Pod, budget: dict[str, Any] | None
) -> None:
    running.agent("plain")
    if budget is not None:
        running.budget("plain", **budget)
    sent = b'{"model" : "gpt-test","messages":[ ],"stream":true, "stream_options": null}'
    packed = gzip.compress(stream(SAID, ENDED, USED))
    running.provider.says(
        Response(packed, media_type="text/event-stream", headers={"content-encoding": "gzip"})
    )
    url = f"{running.url}{CHAT}"
    with httpx2.stream("POST", url, content=sent, headers=headers(running), timeout=30) as answer:
        assert b"".join(answer.iter_raw()) == packed
    assert running.provider.received[0].body == sent


@pytest.mark.requirement("budget:usage-asked-for")
def test_options_that_stand_twice_are_refused_and_nothing_stays_reserved(running: Pod) -> None:
    priced(running).provider.says(as_asked())
    twice = b'{"model":"gpt-test","messages":[],"stream":true,"stream_options":{},"stream_options":null}'
    answer = httpx2.post(
        f"{running.url}{CHAT}", content=twice, headers=headers(running), timeout=30
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert post(running, {**ASKED, "stream": True}).status_code == 200


@pytest.mark.requirement("budget:reserved")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("streams", [False, True])
def test_of_forty_requests_at_one_time_one_runs(pod: Pod, workers: int, streams: bool) -> None:
    pod.workers = workers
    priced(pod).start()
    answers = [as_asked() if streams else text("Done.", usage=TWO_DOLLARS) for _ in range(40)]
    pod.provider.says(*answers)

    def one(number: int) -> int:
        return post(pod, {**ASKED, "user": f"{number}", "stream": streams}).status_code

    with ThreadPoolExecutor(40) as runners:
        statuses = [*runners.map(one, range(40))]
    assert (statuses.count(200), statuses.count(429)) == (1, 39)
    assert len(pod.provider.received) == 1


@pytest.mark.requirement("budget:reserved")
def test_of_forty_turns_with_tools_at_one_time_one_runs(running: Pod) -> None:
    priced(running, "analyst")
    running.provider.says(*(text("Done.", usage=TWO_DOLLARS) for _ in range(40)))

    def one(number: int) -> bool:
        with running.client() as client, contextlib.suppress(openai.RateLimitError):
            asked: Any = [{"role": "user", "content": f"Question {number}"}]
            return bool(client.chat.completions.create(model="gpt-test", messages=asked))
        return False

    with ThreadPoolExecutor(40) as runners:
        assert sum(runners.map(one, range(40))) == 1
    assert len(running.provider.received) == 1


@pytest.mark.requirement("budget:reserved")
def test_what_is_only_reserved_is_free_again_in_a_moment(running: Pod) -> None:
    """An error costs nothing; and its reservation, of the whole limit, is gone with it."""
    priced(running)
    release = asyncio.Event()
    held: list[asyncio.AbstractEventLoop] = []

    async def slow(_request: Request) -> Response:
        held.append(asyncio.get_running_loop())
        await release.wait()
        return JSONResponse({"error": {"message": "no"}}, status_code=400)

    running.provider.says(slow, text("Done."))
    with ThreadPoolExecutor(1) as runner:
        waiting = runner.submit(post, running, ASKED)
        eventually(lambda: held, "the first is under way")
        refused = post(running, ASKED)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "reserved for requests under way" in refused.json()["error"]["message"]
        assert "x-should-retry" not in refused.headers
        held[0].call_soon_threadsafe(release.set)
        assert waiting.result().status_code == 400
    assert post(running, ASKED).status_code == 200


def broken_off(*events: bytes) -> Callable[[Request], Any]:
    """Return a stream that stops after these events, and goes on for as long as its
    runner stays.
    """

    async def answer(_request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for event in events:
                yield event
            await asyncio.Event().wait()

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return answer


STARTED = {
    "type": "message_start",
    "message": {**message(""), "content": [], "usage": {"input_tokens": 1000, "output_tokens": 1}},
}
DELTA = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "x" * 4000},
}


def leave(pod: Pod, path: str, until: bytes) -> None:
    """Ask for a stream, and leave when this has come."""
    body = {
        **ASKED,
        "model": "claude-test" if path == MESSAGES else "gpt-test",
        "stream": True,
        "max_tokens": 9000,
    }
    with httpx2.stream(
        "POST", f"{pod.url}{path}", json=body, headers=headers(pod), timeout=30
    ) as answer:
        assert answer.status_code == 200
        seen = b""
        for piece in answer.iter_raw():
            seen += piece
            if until in seen:
                return


@pytest.mark.requirement("budget:broken-off")
def test_a_runner_that_leaves_before_the_usage_is_charged_by_what_it_got(running: Pod) -> None:
    priced(running, limit_usd=100.0)
    long = {**SAID, "choices": [{"index": 0, "delta": {"content": "x" * 4000}}]}
    running.provider.says(
        broken_off(f"data: {json.dumps(long)}\n\n".encode()),
        broken_off(
            *(
                f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode()
                for each in (STARTED, DELTA)
            )
        ),
        broken_off(b": hello\n\n"),
    )
    for number, (path, until) in enumerate(
        [(CHAT, b"xxxx"), (MESSAGES, b"xxxx"), (CHAT, b"hello")]
    ):
        leave(running, path, until)
        eventually(lambda number=number: len(usages(running)) == number + 1, "it is recorded")  # type: ignore[misc]
    assert [usage["reported_cost_usd"] for usage in usages(running)] == [None, None, None]
    chat, claude, nothing = (usage["estimated_cost_usd"] for usage in usages(running))
    assert chat == pytest.approx(1000 * 2 / 1e6, rel=0.1), (
        "4,000 bytes of text, and a short question"
    )
    assert claude == pytest.approx(2000 * 2 / 1e6), (
        "the prompt that it named, and 4,000 bytes of text"
    )
    assert nothing == pytest.approx(9000 * 2 / 1e6, rel=0.1), (
        "nothing came: all that the request allows"
    )
    eventually(
        lambda: [line["type"] for line in running.log()].count("error") == 3,
        "the log has the last one, too",
    )
    unknown = [line for line in running.log() if line.get("intervention") == "budget_cost_unknown"]
    assert [line["reason"] for line in unknown] == ["the answer has no usage"]
    assert [line["estimated_cost_usd"] for line in running.log() if line["type"] == "error"] == [
        chat,
        claude,
        nothing,
    ]


@pytest.mark.requirement("budget:runner-leaves")
async def test_of_many_streams_of_a_runner_that_leaves_none_stays_reserved(running: Pod) -> None:
    """mitmproxy connects five of them to the provider; the others wait for their
    turn when their connection is closed.
    """
    priced(running, limit_usd=100.0)
    asked: list[int] = []

    async def endless(_request: Request) -> Response:
        asked.append(1)
        await asyncio.Event().wait()
        raise AssertionError

    running.provider.says(text("Hi."), *[endless] * 12)
    context = ssl.create_default_context(cafile=authority(running))
    proxy = f"http://127.0.0.1:{running.proxy_port}"
    url = f"https://api.openai.com{CHAT}"
    async with httpx2.AsyncClient(
        http2=True, proxy=proxy, verify=context, trust_env=False, timeout=30
    ) as client:
        await client.post(
            url, json=ASKED, headers=headers(running)
        )  # else each has a connection of its own
        streams = [
            asyncio.ensure_future(
                client.post(url, json={**ASKED, "user": str(number)}, headers=headers(running))
            )
            for number in range(12)
        ]
        await eventually_async(
            lambda: len(asked) == 5 and len(reservations(running)) == 12, "all are under way"
        )
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    await eventually_async(lambda: not reservations(running), "nothing stays reserved")

    def count(*kinds: str) -> int:
        return len([line for line in running.log() if line["type"] in kinds])

    await eventually_async(lambda: count("response", "error") == 13, "each has its end in the log")
    assert count("request") == 13


@pytest.mark.requirement("budget:broken-off")
def test_leaving_again_and_again_is_no_way_round_a_limit(running: Pod) -> None:
    priced(running, limit_usd=0.01)
    running.provider.says(
        *(broken_off(f"data: {json.dumps(DELTA)}\n\n".encode()) for _ in range(40))
    )
    statuses = []
    for number in range(12):
        body = {**ASKED, "stream": True}
        with httpx2.stream(
            "POST", f"{running.url}{CHAT}", json=body, headers=headers(running), timeout=30
        ) as answer:
            statuses.append(answer.status_code)
            if answer.status_code == 429:
                break
            assert next(answer.iter_raw())
        eventually(lambda number=number: len(usages(running)) == number + 1, "it is recorded")  # type: ignore[misc]
    assert statuses == [*[200] * 5, 429], (
        "2 dollars for a million tokens, of which 1,000 came each time"
    )


@pytest.mark.requirement("budget:broken-off")
async def test_a_turn_that_is_cut_is_charged_for_the_call_that_never_answered(
    running: Pod,
) -> None:
    priced(running, "analyst", limit_usd=5.0)
    running.service.routes["GET", "/balance"] = JSONResponse({"balance": 1})
    asked: list[int] = []

    async def endless(_request: Request) -> Response:
        asked.append(1)
        await asyncio.Event().wait()
        raise AssertionError

    running.provider.says(calls(("c1", "desk__balance", {})), endless)
    body = {**ASKED, "max_tokens": 100_000}
    async with httpx2.AsyncClient(timeout=30) as client:
        waiting = asyncio.ensure_future(
            client.post(f"{running.url}{CHAT}", json=body, headers=headers(running, "analyst"))
        )
        await eventually_async(lambda: asked, "the second call is under way")
        held = await eventually_async(lambda: reservations(running), "the turn is reserved")
        waiting.cancel()
        await asyncio.wait([waiting])
    assert held[0][0] == pytest.approx(0.2 + 15 * 2 / 1e6, rel=0.01), (
        "the first call, and as much as was expected of each"
    )
    (usage,) = await eventually_async(lambda: usages(running, "analyst"), "the turn is recorded")
    assert usage["reported_cost_usd"] == pytest.approx(15 * 2 / 1e6)
    assert usage["estimated_cost_usd"] == pytest.approx(0.2, rel=0.01)
    assert await eventually_async(lambda: not reservations(running), "nothing stays reserved")


def reservations(pod: Pod) -> list[tuple[float, float]]:
    """Return estimate and held amount of every reservation in the state."""
    with contextlib.closing(sqlite3.connect(pod.home / "state.db")) as state:
        return state.execute("SELECT estimate, held FROM reservations").fetchall()


@pytest.mark.requirement("budget:reservation-lapses")
def test_a_killed_proxy_leaves_a_reservation_that_lapses_and_is_charged(running: Pod) -> None:
    priced(running)
    running.provider.says(broken_off(b": hello\n\n"), text("Done.", usage=TWO_DOLLARS))
    body = {**ASKED, "stream": True, "max_tokens": 100_000}
    with httpx2.stream(
        "POST", f"{running.url}{CHAT}", json=body, headers=headers(running), timeout=30
    ) as answer:
        parts = (
            answer.iter_raw()
        )  # held by its name: an iterator that is dropped closes the connection
        assert next(parts)
        running.kill()
    assert [held for _, held in reservations(running)] == [1.0], (
        "the whole limit, since nothing is known yet"
    )
    running.start()
    assert post(running, ASKED).status_code == 429
    with contextlib.closing(sqlite3.connect(running.home / "state.db", autocommit=True)) as state:
        state.execute("UPDATE reservations SET seen = seen - 60")  # a minute later
    assert post(running, ASKED).status_code == 200
    refused = post(running, ASKED)
    assert refused.status_code == 429
    assert refused.json()["budget"]["reported_cost_usd"] == pytest.approx(2.2, rel=0.01)


@pytest.mark.requirement("budget:reserved")
def test_a_batch_of_messages_is_charged_by_all_of_its_requests(running: Pod) -> None:
    batch = {"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress"}
    priced(running).provider.says(JSONResponse(batch), JSONResponse(batch))
    params = {
        "model": "claude",
        "max_tokens": 64_000,
        "messages": [{"role": "user", "content": "Go"}],
    }
    requests = {"requests": [{"custom_id": str(number), "params": params} for number in range(200)]}
    first = post(running, requests, path="/v1/messages/batches")
    second = post(running, requests, path="/v1/messages/batches")
    assert (first.status_code, second.status_code) == (200, 429), (
        "the first alone costs up to 25 dollars"
    )


@pytest.mark.requirement("budget:hidden-cost")
def test_what_hides_its_cost_is_refused_under_a_limit_in_dollars(running: Pod) -> None:
    batch = {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    for path in ("/v1/batches", "/v1/evals/eval_1/runs"):
        answer = post(priced(running), batch, path=path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cost_not_known")

    assert running.provider.received == []
