"""MCP sessions that another worker has: their requests go there, and its answers come back."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse, StreamingResponse

from claw_mediate.broker.siblings import SessionRouter
from claw_mediate.core.http import Request
from claw_mediate.workers import worker as workers
from claw_mediate.workers.worker import Place
from tests.mediate.broker.pod import Reply, read
from tests.peers import Service
from tests.waiting import nobody_listens

PATH = "/mcp/analyst"
OWN, OTHER = 1, 2


@pytest.fixture
def channel() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


def router_to(port: int, channel: socket.socket, monkeypatch: pytest.MonkeyPatch) -> SessionRouter:
    """Return the router of the first of two workers; the other one listens at a port."""
    place = Place(OWN, 2, channel, channel, {OWN: 1, OTHER: port})
    monkeypatch.setattr(workers, "_current", [workers.Worker(place)])
    return SessionRouter()


def in_session(*ids: str, body: bytes = b"") -> Request:
    headers = [("authorization", "Bearer analyst:s"), ("keep-alive", "timeout=5")]
    headers += [("mcp-session-id", session_id) for session_id in ids]
    return Request("POST", PATH, headers, body)


@pytest.mark.requirement("workers:sessions")
@pytest.mark.parametrize(
    ("ids", "is_others"),
    [
        (["2-0af3"], True),
        (["1-0af3"], False),
        (["3-0af3"], False),
        (["0af3"], False),
        (["2-"], False),
        (["02-0af3"], False),
        (["2-0af3\n"], False),
        (["99999-0af3"], False),
        (["2-0af3", "2-0af3"], False),
        ([], False),
    ],
)
async def test_a_session_is_another_workers_if_its_id_begins_with_that_number(
    channel: socket.socket, monkeypatch: pytest.MonkeyPatch, ids: list[str], is_others: bool
) -> None:
    router = router_to(7001, channel, monkeypatch)
    assert router.prefix == "1-"
    assert router.find(in_session(*ids)) == (7001 if is_others else None)
    await router.close()


@pytest.mark.requirement("workers:sessions")
async def test_a_proxy_without_workers_leads_no_session_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_current", [])
    router = SessionRouter()
    assert (router.prefix, router.find(in_session("2-0af3"))) == ("", None)
    await router.close()


@pytest.mark.requirement("workers:sessions")
async def test_a_request_goes_to_the_other_worker_unchanged_and_its_answer_comes_back(
    service: Service, channel: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.routes["POST", PATH] = JSONResponse({"ok": 1}, 404, {"mcp-session-id": "2-0af3"})
    router = router_to(service.port, channel, monkeypatch)
    reply = await read(await router.ask(service.port, in_session("2-0af3", body=b"{}")))
    await router.close()
    assert (reply.status, reply.body) == (404, b'{"ok":1}')
    assert reply.headers["mcp-session-id"] == "2-0af3"
    (sent,) = service.received
    assert (sent.path, sent.body) == (PATH, b"{}")
    assert (sent.headers["authorization"], sent.headers["mcp-session-id"]) == (
        "Bearer analyst:s",
        "2-0af3",
    )
    assert "keep-alive" not in sent.headers, "it is about another connection"


@pytest.mark.requirement("workers:sessions")
async def test_a_stream_of_the_other_worker_is_passed_on_as_a_stream(
    service: Service, channel: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = ["data: 1\n\n", "data: 2\n\n"]
    service.routes["POST", PATH] = StreamingResponse(iter(events), media_type="text/event-stream")
    router = router_to(service.port, channel, monkeypatch)
    response = await router.ask(service.port, in_session("2-0af3"))
    assert response.streaming
    assert (await read(response)).body == "".join(events).encode()
    await router.close()


@pytest.mark.requirement("workers:sessions")
async def test_the_client_of_a_worker_that_has_died_is_told_to_ask_again(
    channel: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nobody_listens() as address:
        port = int(address.rpartition(":")[2])
        router = router_to(port, channel, monkeypatch)
        reply: Reply = await read(await router.ask(port, in_session("2-0af3")))
        await router.close()
    assert reply.status == 502
    assert b"worker_died" in reply.body
