"""Services that are slow, huge or odd: each gives a structured result."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response

from claw_mediate.tools import http as module
from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import READ, call, serve, told
from tests.peers import Answer, Service


@pytest.mark.requirement("service:too-large")
async def test_a_body_that_is_too_large_is_given_up(
    executor: ToolExecutor, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 100_000)
    answer = await call(executor, serve(service, Response(b"x" * 100_001)))
    assert (answer.code, answer.ran) == ("response_too_large", True)
    bomb = gzip.compress(b"\0" * 5_000_000)
    answer = await call(
        executor, serve(service, Response(bomb, headers={"content-encoding": "gzip"}))
    )
    assert answer.code == "response_too_large"


@pytest.mark.requirement("results:truncation")
async def test_a_long_body_is_cut_at_the_tools_limit_else_the_agents(
    executor: ToolExecutor, service: Service
) -> None:
    url = serve(service, Response("é" * 500))
    assert told(await call(executor, url, result_bytes=11))["data"] == "é" * 5
    own = told(
        await call(executor, url, annotations={"x-claw.max_result_bytes": 21}, result_bytes=11)
    )
    assert (own["data"], own["truncated"], own["original_bytes"]) == ("é" * 10, True, 1000)
    packed = Response(gzip.compress(b"y" * 900), headers={"content-encoding": "gzip"})
    assert (
        told(await call(executor, serve(service, packed), result_bytes=3))["original_bytes"] == 900
    )


@pytest.mark.requirement("results:redirect")
async def test_a_redirect_is_not_followed(executor: ToolExecutor, service: Service) -> None:
    service.routes["GET", "/secret"] = JSONResponse({"stolen": True})
    answer = await call(executor, serve(service, RedirectResponse(f"{service.url}/secret")))
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
    executor: ToolExecutor, service: Service, said: Answer, data: Any
) -> None:
    assert told(await call(executor, serve(service, said)))["data"] == data


async def test_a_body_that_lies_about_its_encoding_is_a_broken_answer(
    executor: ToolExecutor, service: Service
) -> None:
    url = serve(service, Response(b"not gzip", headers={"content-encoding": "gzip"}))
    assert (await call(executor, url, annotations=READ)).code == "request_failed"


@pytest.mark.requirement("service:own-host-only")
async def test_proxies_of_the_environment_are_not_used(
    executor: ToolExecutor, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await call(executor, serve(service, JSONResponse({})))).ok


async def test_arguments_that_make_no_request_are_told_and_not_sent(
    executor: ToolExecutor, service: Service
) -> None:
    answer = await call(executor, service.url, text='{"a":"../x"}', path="/{a}")
    assert (answer.code, answer.ran) == ("invalid_arguments", False)
    assert service.received == []


async def test_an_argument_may_be_as_long_as_a_url_allows(
    executor: ToolExecutor, service: Service
) -> None:
    long = json.dumps({"a": "x" * 20_000})
    assert (await call(executor, service.url, text=long, path="/{a}")).code == "http_404"
    assert (
        await call(executor, service.url, text=json.dumps({"a": "x" * 200_000}), path="/{a}")
    ).code == "invalid_arguments"
    assert [len(one.path) for one in service.received] == [20_001]
