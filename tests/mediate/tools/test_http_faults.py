"""Services that are down, slow, huge or odd: each gives a structured result, and
the truth about a write's outcome.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from claw_mediate.tools import http as module
from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import READ, call, serve, told
from tests.peers import Answer as Said
from tests.peers import Service
from tests.waiting import DEADLINE, growing_times, nobody_listens


async def endless(_request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.requirement("service:unreachable")
async def test_a_service_that_is_down_was_certainly_not_reached(pod: ToolExecutor) -> None:
    with nobody_listens() as address:
        answer = await call(pod, address, method="POST")
    assert told(answer)["error"] == {
        "code": "request_failed",
        "message": "The service can't be reached.",
    }
    assert not answer.ran
    nowhere = await call(pod, "http://does-not-exist.invalid")
    assert (nowhere.code, nowhere.ran) == ("request_failed", False)


@pytest.mark.requirement("service:broken-off")
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\npart", b"not http at all\r\n\r\n"]
)
@pytest.mark.parametrize(
    ("method", "annotations", "code"),
    [("GET", READ, "request_failed"), ("POST", {}, "outcome_unknown")],
)
async def test_a_service_that_breaks_off_leaves_a_writes_outcome_unknown(
    pod: ToolExecutor, said: bytes, method: str, annotations: dict[str, Any], code: str
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answer = await call(pod, f"http://127.0.0.1:{port}", method=method, annotations=annotations)
    assert (answer.code, answer.ran, answer.ok) == (code, True, False)


@pytest.mark.requirement("calls:timeout")
@pytest.mark.parametrize(
    ("method", "annotations", "unknown"), [("GET", READ, False), ("POST", {}, True)]
)
async def test_a_slow_service_is_cut_off_and_told_so(
    pod: ToolExecutor, service: Service, method: str, annotations: dict[str, Any], unknown: bool
) -> None:
    for seconds in growing_times(0.05):
        answer = await call(
            pod,
            serve(service, endless, method),
            method=method,
            annotations=annotations,
            seconds=seconds,
        )
        if service.received:
            break
    assert (answer.code, answer.ran) == ("timeout", True)
    assert ("outcome is unknown" in told(answer)["error"]["message"]) is unknown
    assert await asyncio.to_thread(service.gone.wait, DEADLINE)


@pytest.mark.requirement("calls:timeout")
async def test_a_tool_may_have_less_time_than_the_turn_gives_it(
    pod: ToolExecutor, service: Service
) -> None:
    answer = await call(pod, serve(service, endless), annotations={**READ, "x-claw.timeout_ms": 50})
    assert answer.code == "timeout"


@pytest.mark.requirement("calls:timeout")
async def test_a_body_that_never_ends_is_cut_off_by_time(
    pod: ToolExecutor, service: Service
) -> None:
    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        return StreamingResponse(body())

    assert (await call(pod, serve(service, drip), seconds=0.05)).code == "timeout"


@pytest.mark.requirement("service:too-large")
async def test_a_body_that_is_too_large_is_given_up(
    pod: ToolExecutor, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 100_000)
    answer = await call(pod, serve(service, Response(b"x" * 100_001)))
    assert (answer.code, answer.ran) == ("response_too_large", True)
    bomb = gzip.compress(b"\0" * 5_000_000)
    answer = await call(pod, serve(service, Response(bomb, headers={"content-encoding": "gzip"})))
    assert answer.code == "response_too_large"


@pytest.mark.requirement("results:truncation")
async def test_a_long_body_is_cut_at_the_limit_of_the_tool_else_of_the_agent(
    pod: ToolExecutor, service: Service
) -> None:
    url = serve(service, Response("é" * 500))
    assert told(await call(pod, url, result_bytes=11))["data"] == "é" * 5
    own = told(await call(pod, url, annotations={"x-claw.max_result_bytes": 21}, result_bytes=11))
    assert (own["data"], own["truncated"], own["original_bytes"]) == ("é" * 10, True, 1000)
    packed = Response(gzip.compress(b"y" * 900), headers={"content-encoding": "gzip"})
    assert told(await call(pod, serve(service, packed), result_bytes=3))["original_bytes"] == 900


@pytest.mark.requirement("results:redirect")
async def test_a_redirect_is_not_followed(pod: ToolExecutor, service: Service) -> None:
    service.routes["GET", "/secret"] = JSONResponse({"stolen": True})
    answer = await call(pod, serve(service, RedirectResponse(f"{service.url}/secret")))
    assert answer.code == "redirect_refused"
    assert [one.path for one in service.received] == ["/x"]


@pytest.mark.requirement("results:body-kinds")
@pytest.mark.parametrize(
    ("said", "data"),
    [
        (JSONResponse({"a": 1}), {"a": 1}),
        (Response(b"not json"), "not json"),
        (Response(b"\xff\xff"), "\ufffd\ufffd"),
        (Response(gzip.compress(b'{"g":1}'), headers={"content-encoding": "gzip"}), {"g": 1}),
    ],
)
async def test_bodies_of_every_kind_are_data(
    pod: ToolExecutor, service: Service, said: Said, data: Any
) -> None:
    assert told(await call(pod, serve(service, said)))["data"] == data


async def test_a_body_that_lies_about_its_encoding_is_a_broken_answer(
    pod: ToolExecutor, service: Service
) -> None:
    url = serve(service, Response(b"not gzip", headers={"content-encoding": "gzip"}))
    assert (await call(pod, url, annotations=READ)).code == "request_failed"


@pytest.mark.requirement("service:own-host-only")
async def test_the_environments_proxies_are_not_used(
    pod: ToolExecutor, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await call(pod, serve(service, JSONResponse({})))).ok


async def test_arguments_that_make_no_request_are_told_and_not_sent(
    pod: ToolExecutor, service: Service
) -> None:
    answer = await call(pod, service.url, text='{"a":"../x"}', path="/{a}")
    assert (answer.code, answer.ran) == ("invalid_arguments", False)
    assert service.received == []


async def test_an_argument_may_be_as_long_as_a_url_allows(
    pod: ToolExecutor, service: Service
) -> None:
    long = json.dumps({"a": "x" * 20_000})
    assert (await call(pod, service.url, text=long, path="/{a}")).code == "http_404"
    assert (
        await call(pod, service.url, text=json.dumps({"a": "x" * 200_000}), path="/{a}")
    ).code == "invalid_arguments"
    assert [len(one.path) for one in service.received] == [20_001]


async def test_every_answer_says_how_long_it_took(pod: ToolExecutor, service: Service) -> None:
    assert (await call(pod, serve(service, JSONResponse({})))).latency_ms >= 0
    assert len(service.received) == 1
