"""Calls to real HTTP services on loopback: the request that is sent, and that no
credential ever comes back.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import READ, call, serve, told
from tests.peers import Answer as Said
from tests.peers import Service

TOKEN = "t0k3n-of-the-tool"


@pytest.mark.requirement("service:request")
async def test_a_write_carries_who_asks_in_which_turn_and_a_stable_key(
    pod: ToolExecutor, service: Service
) -> None:
    url = serve(service, JSONResponse({"id": 1}), "POST")
    for _ in range(2):
        assert (await call(pod, url, text='{"n": 1.0}', method="POST")).ok
    sent = service.received
    assert [one.body for one in sent] == [b'{"n":1.0}'] * 2
    headers = sent[0].headers
    assert (headers["x-claw-id"], headers["x-claw-turn"]) == ("analyst", "turn_1")
    assert (headers["accept"], headers["content-type"]) == ("application/json", "application/json")
    assert [one.headers["idempotency-key"] for one in sent] == ["turn_1.1.0"] * 2
    assert "authorization" not in headers


@pytest.mark.requirement("service:request")
@pytest.mark.parametrize(
    ("method", "annotations", "keyed"),
    [("GET", READ, False), ("GET", {}, True), ("DELETE", READ, True)],
)
async def test_only_what_may_write_has_an_idempotency_key(
    pod: ToolExecutor, service: Service, method: str, annotations: dict[str, Any], keyed: bool
) -> None:
    await call(
        pod, serve(service, JSONResponse({}), method), method=method, annotations=annotations
    )
    assert ("idempotency-key" in service.received[0].headers) is keyed


@pytest.mark.requirement("calls:path-segment", "calls:query-and-body")
async def test_path_and_query_arrive_as_they_were_encoded(
    pod: ToolExecutor, service: Service
) -> None:
    await call(
        pod, f"{service.url}/base/", text='{"a":"é ?#%2","q":"a&b=c"}', path="/of/{a}/{claw_id}"
    )
    assert service.received[0].path == "/base/of/%C3%A9%20%3F%23%252/analyst?q=a%26b%3Dc"


@pytest.mark.requirement("service:credentials")
@pytest.mark.parametrize("stored", [TOKEN, {"secret": "tool-token"}])
@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"type": "bearer", "token": None}, ("authorization", f"Bearer {TOKEN}")),
        ({"type": "header", "header": "X-Key", "token": None}, ("x-key", TOKEN)),
        (
            {"type": "basic", "username": "ü", "password": None},
            ("authorization", "Basic " + base64.b64encode(f"ü:{TOKEN}".encode()).decode()),
        ),
    ],
)
async def test_each_kind_of_credential_is_sent_in_its_form(
    pod: ToolExecutor,
    service: Service,
    tmp_path: Path,
    auth: dict[str, Any],
    header: tuple[str, str],
    stored: Any,
) -> None:
    (tmp_path / "tool-token").write_text(f"{TOKEN}\n", encoding="utf-8")
    filled = {key: stored if part is None else part for key, part in auth.items()}
    assert (await call(pod, serve(service, JSONResponse({})), auth=filled)).ok
    assert service.received[0].headers[header[0]] == header[1]


@pytest.mark.requirement("service:credentials")
@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
async def test_a_reference_that_leads_nowhere_sends_nothing(
    pod: ToolExecutor, service: Service, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "tool-token").write_bytes(content)
    answer = await call(
        pod, service.url, auth={"type": "bearer", "token": {"secret": "tool-token"}}
    )
    assert told(answer)["error"] == {
        "code": "request_failed",
        "message": "The tool's credential is not available.",
    }
    assert not answer.ran
    assert service.received == []


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tök€n", "a\0b"])
async def test_a_credential_that_is_no_header_is_a_result_and_no_fault(
    pod: ToolExecutor, service: Service, token: str
) -> None:
    answer = await call(
        pod, serve(service, JSONResponse({})), auth={"type": "bearer", "token": token}
    )
    assert answer.code == "request_failed"
    assert service.received == []


ECHOES: list[tuple[dict[str, Any], Said]] = [
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
    pod: ToolExecutor, service: Service, auth: dict[str, Any], said: Said
) -> None:
    answer = await call(pod, serve(service, said), auth=auth)
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
    pod: ToolExecutor, service: Service, limit: int
) -> None:
    url = serve(service, Response(f"you sent {TOKEN}, {TOKEN}, " + "x" * 200))
    answer = await call(pod, url, auth={"type": "bearer", "token": TOKEN}, result_bytes=limit)
    data = told(answer)["data"]
    assert "t0k3" not in data
    assert len(data.encode()) <= limit
