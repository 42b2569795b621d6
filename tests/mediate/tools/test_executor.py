"""The time and the credentials of managed calls, by whichever transport they are made."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.tools.calling import READ, call, serve, told
from tests.peers import Service
from tests.waiting import DEADLINE, growing_times

TOKEN = "t0k3n-of-the-tool"


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
    executor: ToolExecutor,
    service: Service,
    tmp_path: Path,
    auth: dict[str, Any],
    header: tuple[str, str],
    stored: Any,
) -> None:
    (tmp_path / "tool-token").write_text(f"{TOKEN}\n", encoding="utf-8")
    filled = {key: stored if part is None else part for key, part in auth.items()}
    assert (await call(executor, serve(service, JSONResponse({})), auth=filled)).ok
    assert service.received[0].headers[header[0]] == header[1]


@pytest.mark.requirement("service:credentials")
@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
async def test_a_reference_that_leads_nowhere_sends_nothing(
    executor: ToolExecutor, service: Service, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "tool-token").write_bytes(content)
    answer = await call(
        executor, service.url, auth={"type": "bearer", "token": {"secret": "tool-token"}}
    )
    assert told(answer)["error"] == {
        "code": "request_failed",
        "message": "The tool's credential is not available.",
    }
    assert not answer.ran
    assert service.received == []


async def endless(_request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.requirement("calls:timeout")
@pytest.mark.parametrize(
    ("method", "annotations", "unknown"), [("GET", READ, False), ("POST", {}, True)]
)
async def test_a_slow_service_is_cut_off_and_told_so(
    executor: ToolExecutor,
    service: Service,
    method: str,
    annotations: dict[str, Any],
    unknown: bool,
) -> None:
    for seconds in growing_times(0.05):
        answer = await call(
            executor,
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
    executor: ToolExecutor, service: Service
) -> None:
    answer = await call(
        executor, serve(service, endless), annotations={**READ, "x-claw.timeout_ms": 50}
    )
    assert answer.code == "timeout"


@pytest.mark.requirement("calls:timeout")
async def test_a_body_that_never_ends_is_cut_off_by_time(
    executor: ToolExecutor, service: Service
) -> None:
    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        return StreamingResponse(body())

    assert (await call(executor, serve(service, drip), seconds=0.05)).code == "timeout"


async def test_every_answer_says_how_long_it_took(executor: ToolExecutor, service: Service) -> None:
    assert (await call(executor, serve(service, JSONResponse({})))).latency_ms >= 0
    assert len(service.received) == 1
