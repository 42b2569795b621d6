"""The client for feeds and memories: one word for each failure, connections of each agent's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.responses import RedirectResponse, Response

from claw_mediate.prompt.fetch import ContextClient, FetchRequest, identity_headers
from tests.mediate.counting_host import counting_host
from tests.mediate.prompt.agent_context import analyst
from tests.peers import Service
from tests.waiting import nobody_listens

WHO = ("analyst", "analyst", "executor", "analyst", "executor")


@pytest.fixture
async def client() -> AsyncIterator[ContextClient]:
    made = ContextClient()
    yield made
    await made.close()


def get(url: str, *, max_bytes: int = 100, seconds: float = 20.0) -> FetchRequest:
    return FetchRequest("GET", url, [], None, max_bytes, seconds)


@pytest.mark.requirement("feeds:bounded")
async def test_a_host_that_does_not_listen_or_exist_is_unreachable(client: ContextClient) -> None:
    with nobody_listens() as address:
        for url in (f"{address}/x", "http://does-not-exist.invalid/x"):
            result = await client.fetch("analyst", get(url))
            assert (result.problem, result.status, result.body) == ("unreachable", None, b"")


@pytest.mark.requirement("feeds:bounded")
async def test_a_host_that_is_silent_times_out(client: ContextClient) -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    result = await client.fetch("analyst", get(f"http://127.0.0.1:{port}/x", seconds=0.05))
    server.close()
    assert result.problem == "timed_out"


@pytest.mark.requirement("feeds:bounded")
@pytest.mark.parametrize("url", ["http://", "ftp://x/y", "http://[::1/x", "not a url"])
async def test_an_invalid_address_is_misconfigured(client: ContextClient, url: str) -> None:
    assert (await client.fetch("analyst", get(url))).problem == "misconfigured"


@pytest.mark.requirement("feeds:bounded")
async def test_a_header_that_is_not_ascii_is_misconfigured_and_sends_nothing(
    client: ContextClient, service: Service
) -> None:
    request = FetchRequest("GET", f"{service.url}/x", [("x-a", "tök€n")], None, 100, 20.0)
    assert (await client.fetch("analyst", request)).problem == "misconfigured"
    assert service.received == []


@pytest.mark.requirement("feeds:caps")
@pytest.mark.parametrize(("size", "is_cut"), [(100, False), (101, True)])
async def test_no_more_is_read_than_the_limit(
    client: ContextClient, service: Service, size: int, is_cut: bool
) -> None:
    service.routes["GET", "/x"] = Response(b"x" * size)
    result = await client.fetch("analyst", get(f"{service.url}/x"))
    assert (result.problem, result.body, result.is_cut) == (None, b"x" * 100, is_cut)


@pytest.mark.requirement("feeds:own-host-only")
async def test_a_redirect_is_a_result_and_not_followed(
    client: ContextClient, service: Service
) -> None:
    service.routes["GET", "/x"] = RedirectResponse(f"{service.url}/secret")
    result = await client.fetch("analyst", get(f"{service.url}/x"))
    assert (result.status, result.problem) == (307, "http_307")
    assert [request.path for request in service.received] == ["/x"]


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_feeds_and_memories(client: ContextClient) -> None:
    with counting_host() as host:
        for agent_id in WHO:
            await client.fetch(agent_id, get(f"{host.url}/feed"))
    assert host.connections() == [0, 0, 1, 0, 1]


@pytest.mark.requirement("feeds:fetch")
@pytest.mark.parametrize(
    ("pod", "is_named"), [("desk", True), ("süd", False), ("a\r\nb: c", False)]
)
def test_a_pods_name_that_no_header_can_hold_is_left_out(pod: str, is_named: bool) -> None:
    headers = dict(identity_headers(analyst(pod=pod)))
    assert headers["x-claw-id"] == "analyst"
    assert headers.get("x-claw-pod") == (pod if is_named else None)
