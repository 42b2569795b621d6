"""Calls to real HTTP services: the request that is sent, and no credential in the result."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import call, serve, told
from tests.peers import Answer, Service

TOKEN = "t0k3n-of-the-tool"


@pytest.mark.requirement("calls:path-segment", "calls:query-and-body")
async def test_path_and_query_arrive_as_they_were_encoded(
    executor: ToolExecutor, service: Service
) -> None:
    await call(
        executor,
        f"{service.url}/base/",
        text='{"a":"é ?#%2","q":"a&b=c"}',
        path="/of/{a}/{claw_id}",
    )
    assert service.received[0].path == "/base/of/%C3%A9%20%3F%23%252/analyst?q=a%26b%3Dc"


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tök€n", "a\0b"])
async def test_a_credential_that_no_header_can_hold_is_a_failed_call(
    executor: ToolExecutor, service: Service, token: str
) -> None:
    answer = await call(
        executor, serve(service, JSONResponse({})), auth={"type": "bearer", "token": token}
    )
    assert answer.code == "request_failed"
    assert service.received == []


ECHOES: list[tuple[dict[str, Any], Answer]] = [
    ({"type": "bearer", "token": TOKEN}, JSONResponse({"you": f"sent {TOKEN}", TOKEN: [TOKEN]})),
    ({"type": "bearer", "token": TOKEN}, Response(f"<b>{TOKEN}</b>")),
    (
        {"type": "bearer", "token": TOKEN},
        JSONResponse({"error": f"Bearer {TOKEN}"}, status_code=401),
    ),
    ({"type": "bearer", "token": "12345678"}, Response(b'{"n": 12345678, "m": 9123456789}')),
    ({"type": "header", "header": "X-Key", "token": 'to"ken/9'}, Response(b'{"k":"to\\"ken\\/9"}')),
    (
        {"type": "basic", "username": "u", "password": TOKEN},
        JSONResponse(
            {"a": "Basic " + base64.b64encode(f"u:{TOKEN}".encode()).decode(), "p": TOKEN}
        ),
    ),
    (
        {"type": "bearer", "token": TOKEN},
        Response(gzip.compress(TOKEN.encode()), headers={"content-encoding": "gzip"}),
    ),
]


@pytest.mark.requirement("service:no-echo")
@pytest.mark.parametrize(("auth", "said"), ECHOES)
async def test_a_credential_that_a_service_says_back_never_reaches_the_result(
    executor: ToolExecutor, service: Service, auth: dict[str, Any], said: Answer
) -> None:
    answer = await call(executor, serve(service, said), auth=auth)
    told(answer)
    text = answer.content.decode()
    token = auth.get("token") or auth["password"]
    assert token not in text
    assert json.dumps(token)[1:-1] not in text
    assert base64.b64encode(f"u:{token}".encode()).decode() not in text
    assert "••••••" in text


@pytest.mark.requirement("service:no-echo")
@pytest.mark.parametrize("limit", range(1, 40, 3))
async def test_truncation_never_leaves_the_first_half_of_a_credential(
    executor: ToolExecutor, service: Service, limit: int
) -> None:
    url = serve(service, Response(f"you sent {TOKEN}, {TOKEN}, " + "x" * 200))
    answer = await call(executor, url, auth={"type": "bearer", "token": TOKEN}, result_bytes=limit)
    data = told(answer)["data"]
    assert "t0k3" not in data
    assert len(data.encode()) <= limit
