"""What every transport sends of a call, and what it says where a call could not be made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import JSONResponse

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import READ, call, serve, told
from tests.peers import Service
from tests.waiting import nobody_listens


@pytest.mark.requirement("service:request")
async def test_a_write_names_agent_and_turn_and_has_a_stable_key(
    executor: ToolExecutor, service: Service
) -> None:
    url = serve(service, JSONResponse({"id": 1}), "POST")
    for _ in range(2):
        assert (await call(executor, url, text='{"n": 1.0}', method="POST")).ok
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
    executor: ToolExecutor, service: Service, method: str, annotations: dict[str, Any], keyed: bool
) -> None:
    await call(
        executor, serve(service, JSONResponse({}), method), method=method, annotations=annotations
    )
    assert ("idempotency-key" in service.received[0].headers) is keyed


@pytest.mark.requirement("service:unreachable")
async def test_a_service_that_is_down_was_certainly_not_reached(executor: ToolExecutor) -> None:
    with nobody_listens() as address:
        answer = await call(executor, address, method="POST")
    assert told(answer)["error"] == {
        "code": "request_failed",
        "message": "The service can't be reached.",
    }
    assert not answer.ran
    nowhere = await call(executor, "http://does-not-exist.invalid")
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
    executor: ToolExecutor, said: bytes, method: str, annotations: dict[str, Any], code: str
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answer = await call(
            executor, f"http://127.0.0.1:{port}", method=method, annotations=annotations
        )
    assert (answer.code, answer.ran, answer.ok) == (code, True, False)
