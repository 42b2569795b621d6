"""Time: streams that are kept alive, runners that leave, services that are slow, huge or down."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from tests.peers import DelayedAnswer, calls, text
from tests.proxy.pod import Pod
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "Go"}]


def body(stream: bool) -> dict[str, Any]:
    return {"model": "gpt-test", "messages": HI, "stream": stream}


@pytest.mark.requirement("stream:keepalive")
def test_a_stream_is_kept_alive_for_as_long_as_a_tool_takes(running: Pod) -> None:
    held = DelayedAnswer(JSONResponse({"usd": 1}))
    running.service.routes["GET", "/balance"] = held
    running.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    comments: list[str] = []
    data: list[str] = []
    headers = {"authorization": f"Bearer {running.token()}"}
    with httpx2.stream(
        "POST",
        f"{running.url}/v1/chat/completions",
        json=body(stream=True),
        headers=headers,
        timeout=30,
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            (comments if line.startswith(":") else data).append(line)
            if (
                len(comments) >= 6
            ):  # more than a second, with a comment every 200 ms: now the tool may answer
                held.go.set()
    assert ": claw round=1 waiting=desk.balance" in comments
    assert [line for line in data if line][-1] == "data: [DONE]"


@pytest.mark.requirement("stream:keepalive")
def test_an_sdk_whose_read_timeout_is_shorter_than_a_tool_survives_it(running: Pod) -> None:
    # A machine under load stands still for a second or two, which is no silence of the proxy's.
    read_timeout = 4.0

    async def slow(_request: Request) -> Response:
        await asyncio.sleep(read_timeout + 0.5)
        return JSONResponse({"usd": 1})

    running.service.routes["GET", "/balance"] = slow
    running.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    with running.client(timeout=read_timeout).chat.completions.stream(
        model="gpt-test", messages=HI
    ) as stream:
        assert stream.get_final_completion().choices[0].message.content == "Done."


@pytest.mark.requirement("stream:status-until-it-goes-on")
@pytest.mark.usefixtures("unhurried")
def test_a_providers_first_refusal_keeps_its_status_also_for_a_stream(
    running: Pod,
) -> None:
    running.provider.says(
        JSONResponse({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400)
    )
    with pytest.raises(openai.BadRequestError) as raised:
        running.client().chat.completions.create(model="gpt-test", messages=HI, stream=True)
    assert raised.value.code == "context_length_exceeded"


@pytest.mark.requirement("stream:error-event")
def test_an_error_behind_the_headers_is_an_event_that_the_sdk_raises(running: Pod) -> None:
    held = DelayedAnswer(JSONResponse({"error": {"message": "bad gateway"}}, 400))
    running.provider.says(calls(("c1", "desk__balance", {})), held)
    stream = running.client().chat.completions.create(model="gpt-test", messages=HI, stream=True)
    assert held.asked.wait(30)
    held.go.set()
    with pytest.raises(openai.APIError):
        list(stream)


@pytest.mark.requirement("runner:leaves")
@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_that_leaves_cancels_the_model_call(running: Pod, stream: bool) -> None:
    held = DelayedAnswer(text("too late"))
    running.provider.says(held)
    leave_while(running, held, body(stream))
    assert running.provider.gone.wait(30)
    entry = eventually(lambda: running.history("analyst"), "the turn is in history")[0]
    assert (entry["status"], entry["status_code"]) == ("error", 499)


@pytest.mark.requirement("runner:leaves-while-writing")
@pytest.mark.parametrize("stream", [False, True])
def test_a_write_may_finish_and_is_recorded_though_the_runner_has_left(
    running: Pod, stream: bool
) -> None:
    held = DelayedAnswer(JSONResponse({"bought": "NVDA"}))
    running.service.routes["POST", "/trade"] = held
    running.provider.says(calls(("c1", "desk__trade", {"symbol": "NVDA"})), text("never asked for"))
    leave_while(running, held, body(stream))
    held.go.set()
    assert held.finished.wait(30)
    entry = eventually(lambda: running.history("analyst"), "the turn is in history")[0]
    assert entry["status_code"] == 499
    assert entry["tool_trace"][0]["tool_calls"][0]["result"]["data"] == {"bought": "NVDA"}
    assert not running.service.gone.is_set()
    assert len(running.provider.received) == 1


@pytest.mark.requirement("runner:leaves-before-the-first-chunk")
@pytest.mark.parametrize("kind", ["off", "comment"])
def test_runners_that_leave_a_stream_before_they_read_of_it_take_their_turns_along(
    pod: Pod, kind: str
) -> None:
    """They leave at once or after the headers, alone or two at one turn.

    The model never answers.
    """
    held = DelayedAnswer(text("too late"))
    pod.environment.update({"CLLAMA_KEEPALIVE_FIRST_MS": "1", "CLLAMA_KEEPALIVE_OPENAI": kind})
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    pod.provider.says(*[held] * 40)

    async def leave(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", pod.port)
        asked = {
            **body(stream=True),
            "messages": [{"role": "user", "content": f"Go {number // 2 * 2}"}],
        }
        payload = json.dumps(asked).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
            f"{pod.token()}\r\n"
        )
        writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
        await writer.drain()
        if number % 4:
            await reader.readuntil(b"\r\n")
        writer.transport.abort()

    async def leave_all() -> None:
        await asyncio.gather(*map(leave, range(40)))

    asyncio.run(leave_all())

    def all_are_over() -> bool:
        begun = [line for line in pod.log() if line["type"] == "request"]
        return len(begun) >= 10 and len(pod.history("analyst")) == len(begun)

    eventually(all_are_over, "each turn that was begun is over")
    assert {entry["status_code"] for entry in pod.history("analyst")} == {499}
    assert not held.finished.is_set()
    held.go.set()


def leave_while(pod: Pod, held: DelayedAnswer, request: dict[str, Any]) -> None:
    """Send the request, and close the connection once the peer behind the proxy has
    received its request.
    """

    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", pod.port)
        payload = json.dumps(request).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
            f"{pod.token()}\r\n"
        )
        writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
        await writer.drain()
        assert await asyncio.to_thread(held.asked.wait, 30)
        writer.close()
        del reader

    asyncio.run(run())


async def huge(_request: Request) -> Response:
    return PlainTextResponse("é" * 500_000)


async def not_json(_request: Request) -> Response:
    return PlainTextResponse("<html>oops</html>", media_type="text/html")


async def elsewhere(_request: Request) -> Response:
    return RedirectResponse("http://169.254.169.254/latest")


@pytest.mark.requirement("service:structured-results")
@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (huge, {"ok": True, "truncated": True, "original_bytes": 1_000_000}),
        (not_json, {"ok": True, "data": "<html>oops</html>"}),
        (elsewhere, {"ok": False, "code": "redirect_refused"}),
        (JSONResponse({"why": "busy"}, 503), {"ok": False, "code": "http_503"}),
        (DelayedAnswer(JSONResponse({})), {"ok": False, "code": "timeout"}),
    ],
)
def test_whatever_a_service_does_the_model_is_told_and_the_turn_goes_on(
    pod: Pod, route: Any, expected: dict[str, Any]
) -> None:
    patience = {"timeout_per_tool_ms": 1500} if isinstance(route, DelayedAnswer) else {}
    pod.agent("analyst", pod.tool("balance"), **patience)
    pod.start()
    pod.service.routes["GET", "/balance"] = route
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    assert (
        pod.client()
        .chat.completions.create(model="gpt-test", messages=HI)
        .choices[0]
        .message.content
        == "Done."
    )
    envelope = json.loads(pod.provider.received[-1].json["messages"][-1]["content"])
    found = {**envelope, **envelope.get("error", {})}
    assert {name: found.get(name) for name in expected} == expected
    assert len(pod.provider.received[-1].body) < 40_000


@pytest.mark.requirement("service:structured-results")
def test_a_service_that_is_down_is_a_result_without_its_address(pod: Pod, nobody: str) -> None:
    down = pod.tool("balance")
    down["execution"]["base_url"] = nobody
    pod.agent("analyst", down)
    pod.start()
    pod.provider.says(calls(("c1", "desk__balance", {})), text("It is down."))
    pod.client().chat.completions.create(model="gpt-test", messages=HI)
    told = pod.provider.received[-1].json["messages"][-1]["content"]
    assert json.loads(told)["error"]["code"] == "request_failed"
    assert "127.0.0.1" not in told
