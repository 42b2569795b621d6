"""Calls to real HTTP services on loopback: what is sent, what comes back, and every way in which it can go wrong."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from claw_contract.metadata import Metadata
from claw_mediate.io import services as module
from claw_mediate.io.agents import Agent
from claw_mediate.io.services import Caller, Services
from claw_mediate.model import Answer
from tests.mediate.made import called, granted, limits
from tests.peers import Answer as Said
from tests.peers import Received, Service

TOKEN = "t0k3n-of-the-tool"
METADATA = Metadata.model_validate({"service": "analyst", "pod": "p", "token": "analyst:s"})
READ = {"readOnly": True}


@pytest.fixture
def service() -> Iterator[Service]:
    peer = Service()
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Services]:
    services = Services(tmp_path)
    yield services
    await services.close()


async def call(
    pod: Services,
    url: str,
    *,
    text: str = "{}",
    annotations: dict[str, Any] | None = None,
    seconds: float = 20.0,
    result_bytes: int = 16384,
    **execution: Any,
) -> Answer:
    tool = granted(annotations=annotations, base_url=url, **execution)
    agent = Agent("analyst", METADATA, (tool,), limits(result_bytes=result_bytes), "d")
    return await pod.call(Caller(agent, "turn_1"), called(tool, text), "turn_1.1.0", seconds)


def told(answer: Answer) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(answer.content)
    return envelope


def serve(service: Service, said: Said, method: str = "GET") -> str:
    service.routes[method, "/x"] = said
    return service.url


async def endless(_request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.requirement("service:request")
async def test_a_write_carries_who_asks_in_which_turn_and_a_stable_key(pod: Services, service: Service) -> None:
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
    ("method", "annotations", "keyed"), [("GET", READ, False), ("GET", {}, True), ("DELETE", READ, True)]
)
async def test_only_what_may_write_has_an_idempotency_key(
    pod: Services, service: Service, method: str, annotations: dict[str, Any], keyed: bool
) -> None:
    await call(pod, serve(service, JSONResponse({}), method), method=method, annotations=annotations)
    assert ("idempotency-key" in service.received[0].headers) is keyed


async def test_path_and_query_arrive_as_they_were_encoded(pod: Services, service: Service) -> None:
    await call(pod, f"{service.url}/base/", text='{"a":"é ?#%2","q":"a&b=c"}', path="/of/{a}/{claw_id}")
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
    pod: Services, service: Service, tmp_path: Path, auth: dict[str, Any], header: tuple[str, str], stored: Any
) -> None:
    (tmp_path / "tool-token").write_text(f"{TOKEN}\n", encoding="utf-8")
    filled = {key: stored if part is None else part for key, part in auth.items()}
    assert (await call(pod, serve(service, JSONResponse({})), auth=filled)).ok
    assert service.received[0].headers[header[0]] == header[1]


@pytest.mark.requirement("service:credentials")
@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
async def test_a_reference_that_leads_nowhere_sends_nothing(
    pod: Services, service: Service, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "tool-token").write_bytes(content)
    answer = await call(pod, service.url, auth={"type": "bearer", "token": {"secret": "tool-token"}})
    assert told(answer)["error"] == {"code": "request_failed", "message": "The tool's credential is not available."}
    assert not answer.ran
    assert service.received == []


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tök€n", "a\0b"])
async def test_a_credential_that_is_no_header_is_a_result_and_no_fault(
    pod: Services, service: Service, token: str
) -> None:
    answer = await call(pod, serve(service, JSONResponse({})), auth={"type": "bearer", "token": token})
    assert answer.code == "request_failed"
    assert service.received == []


ECHOES: list[tuple[dict[str, Any], Said]] = [
    ({"type": "bearer", "token": TOKEN}, JSONResponse({"you": f"sent {TOKEN}", TOKEN: [TOKEN]})),
    ({"type": "bearer", "token": TOKEN}, Response(f"<b>{TOKEN}</b>")),
    ({"type": "bearer", "token": TOKEN}, JSONResponse({"error": f"Bearer {TOKEN}"}, status_code=401)),
    ({"type": "bearer", "token": "12345678"}, Response(b'{"n": 12345678, "m": 9123456789}')),
    ({"type": "header", "header": "X-Key", "token": 'to"ken/9'}, Response(b'{"k":"to\\"ken\\/9"}')),
    (
        {"type": "basic", "username": "u", "password": TOKEN},
        JSONResponse({"a": "Basic " + base64.b64encode(f"u:{TOKEN}".encode()).decode(), "p": TOKEN}),
    ),
    ({"type": "bearer", "token": TOKEN}, Response(gzip.compress(TOKEN.encode()), headers={"content-encoding": "gzip"})),
]


@pytest.mark.requirement("service:no-echo")
@pytest.mark.parametrize(("auth", "said"), ECHOES)
async def test_a_credential_that_a_service_says_back_never_reaches_the_result(
    pod: Services, service: Service, auth: dict[str, Any], said: Said
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
    pod: Services, service: Service, limit: int
) -> None:
    url = serve(service, Response(f"you sent {TOKEN}, {TOKEN}, " + "x" * 200))
    answer = await call(pod, url, auth={"type": "bearer", "token": TOKEN}, result_bytes=limit)
    data = told(answer)["data"]
    assert "t0k3" not in data
    assert len(data.encode()) <= limit


@pytest.mark.requirement("service:unreachable")
async def test_a_service_that_is_down_was_certainly_not_reached(pod: Services) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    answer = await call(pod, f"http://127.0.0.1:{port}", method="POST")
    assert told(answer)["error"] == {"code": "request_failed", "message": "The service can't be reached."}
    assert not answer.ran
    nowhere = await call(pod, "http://does-not-exist.invalid")
    assert (nowhere.code, nowhere.ran) == ("request_failed", False)


@pytest.mark.requirement("service:broken-off")
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\npart", b"not http at all\r\n\r\n"]
)
@pytest.mark.parametrize(
    ("method", "annotations", "code"), [("GET", READ, "request_failed"), ("POST", {}, "outcome_unknown")]
)
async def test_a_service_that_breaks_off_leaves_a_writes_outcome_unknown(
    pod: Services, said: bytes, method: str, annotations: dict[str, Any], code: str
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
@pytest.mark.parametrize(("method", "annotations", "unknown"), [("GET", READ, False), ("POST", {}, True)])
async def test_a_slow_service_is_cut_off_and_told_so(
    pod: Services, service: Service, method: str, annotations: dict[str, Any], unknown: bool
) -> None:
    answer = await call(pod, serve(service, endless, method), method=method, annotations=annotations, seconds=0.05)
    assert (answer.code, answer.ran) == ("timeout", True)
    assert ("outcome is unknown" in told(answer)["error"]["message"]) is unknown
    assert await asyncio.to_thread(service.gone.wait, 10)


@pytest.mark.requirement("calls:timeout")
async def test_a_tool_may_have_less_time_than_the_turn_gives_it(pod: Services, service: Service) -> None:
    answer = await call(pod, serve(service, endless), annotations={**READ, "x-claw.timeout_ms": 50})
    assert answer.code == "timeout"


async def test_a_body_that_never_ends_is_cut_off_by_time(pod: Services, service: Service) -> None:
    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        return StreamingResponse(body())

    assert (await call(pod, serve(service, drip), seconds=0.05)).code == "timeout"


@pytest.mark.requirement("service:too-large")
async def test_a_body_that_is_too_large_is_given_up(
    pod: Services, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 100_000)
    answer = await call(pod, serve(service, Response(b"x" * 100_001)))
    assert (answer.code, answer.ran) == ("response_too_large", True)
    bomb = gzip.compress(b"\0" * 5_000_000)
    answer = await call(pod, serve(service, Response(bomb, headers={"content-encoding": "gzip"})))
    assert answer.code == "response_too_large"


@pytest.mark.requirement("results:truncation")
async def test_a_long_body_is_cut_at_the_limit_of_the_tool_else_of_the_agent(pod: Services, service: Service) -> None:
    url = serve(service, Response("é" * 500))
    assert told(await call(pod, url, result_bytes=11))["data"] == "é" * 5
    own = told(await call(pod, url, annotations={"x-claw.max_result_bytes": 21}, result_bytes=11))
    assert (own["data"], own["truncated"], own["original_bytes"]) == ("é" * 10, True, 1000)
    packed = Response(gzip.compress(b"y" * 900), headers={"content-encoding": "gzip"})
    assert told(await call(pod, serve(service, packed), result_bytes=3))["original_bytes"] == 900


@pytest.mark.requirement("results:redirect")
async def test_a_redirect_is_not_followed(pod: Services, service: Service) -> None:
    service.routes["GET", "/secret"] = JSONResponse({"stolen": True})
    answer = await call(pod, serve(service, RedirectResponse(f"{service.url}/secret")))
    assert answer.code == "redirect_refused"
    assert [one.path for one in service.received] == ["/x"]


@pytest.mark.parametrize(
    ("said", "data"),
    [
        (JSONResponse({"a": 1}), {"a": 1}),
        (Response(b"not json"), "not json"),
        (Response(b"\xff\xff"), "\ufffd\ufffd"),
        (Response(gzip.compress(b'{"g":1}'), headers={"content-encoding": "gzip"}), {"g": 1}),
    ],
)
async def test_bodies_of_every_kind_are_data(pod: Services, service: Service, said: Said, data: Any) -> None:
    assert told(await call(pod, serve(service, said)))["data"] == data


async def test_a_body_that_lies_about_its_encoding_is_a_broken_answer(pod: Services, service: Service) -> None:
    url = serve(service, Response(b"not gzip", headers={"content-encoding": "gzip"}))
    assert (await call(pod, url, annotations=READ)).code == "request_failed"


@pytest.mark.requirement("service:own-host-only")
async def test_the_environments_proxies_are_not_used(
    pod: Services, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await call(pod, serve(service, JSONResponse({})))).ok


async def test_arguments_that_make_no_request_are_told_and_not_sent(pod: Services, service: Service) -> None:
    answer = await call(pod, service.url, text='{"a":"../x"}', path="/{a}")
    assert (answer.code, answer.ran) == ("invalid_arguments", False)
    assert service.received == []


async def test_an_argument_may_be_as_long_as_a_url_allows(pod: Services, service: Service) -> None:
    long = json.dumps({"a": "x" * 20_000})
    assert (await call(pod, service.url, text=long, path="/{a}")).code == "http_404"
    assert (
        await call(pod, service.url, text=json.dumps({"a": "x" * 200_000}), path="/{a}")
    ).code == "invalid_arguments"
    assert [len(one.path) for one in service.received] == [20_001]


async def test_every_answer_says_how_long_it_took(pod: Services, service: Service) -> None:
    assert (await call(pod, serve(service, JSONResponse({})))).latency_ms >= 0
    assert isinstance(service.received[0], Received)
