"""The channel to a URL: both eras, JSON and events, and servers that break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.discovering import DiscoveryPod, at, tool
from tests.mcp.http_server import ListingServer

PLANTED = "planted-credential-4711"


@pytest.fixture
def server() -> Iterator[ListingServer]:
    server = ListingServer(pages=[[tool("a")], [tool("b", annotations={"readOnlyHint": True})]])
    server.start()
    yield server
    server.stop()


@pytest.mark.requirement("discovery:http", "discovery:eras", "discovery:pages")
@pytest.mark.parametrize("style", ["json", "sse"])
@pytest.mark.parametrize("stateless", [False, True], ids=["handshake", "stateless"])
def test_a_url_server_is_asked_in_both_eras_in_json_and_in_events(
    web: DiscoveryPod, server: ListingServer, style: str, *, stateless: bool
) -> None:
    server.style, server.stateless = style, stateless
    web.write(at(server))
    assert web.discovers() == (
        "web: 2 tools of listed 1.0\n  + a  unknown\n  + b  read\nwrote "
        ".claw-discovered/web.claw-describe.json\n"
    )
    assert server.ended == ([] if stateless else ["session-1"])
    assert {each.path for each in server.received} == {"/mcp"}
    metadata = web.snapshot["x-claw-discovery"]
    assert (metadata["image"], "url" in metadata) == ("web:1", False)
    if style == "sse":
        assert {"jsonrpc": "2.0", "id": 1 if not stateless else 2, "result": {}} in server.answers
    assert web.claw("compile").exit_code == 0


FAULTS: dict[str, str] = {
    "unauthorized": (
        '{at} refuses the credential with status 401 (\'{{"error":"no: ••••••"}}\'):'
        " give the service 'x-claw.auth', and set its variable"
    ),
    "redirect": (
        "{at} redirects to 'http://elsewhere.example/mcp', which is not followed: name the "
        "final address"
    ),
    "page": "{at} answered with content of type 'text/html': it is no MCP server",
    "not-found": (
        '{at} answered with status 404 (\'{{"detail": "Not Found"}}\'): no MCP server listens at this path:'
        " correct 'x-claw.mcp.path', or --url"
    ),
    "broken": '{at} answered with status 503 (\'{{"detail": "sorry"}}\')',
    "garbage": '{at} answered with \'{{"jsonrpc": "2.0", "id": 1, "res\': this is no JSON-RPC message',
    "half": "{at} did not answer 'initialize', and ended its response",
    "packed": "{at} answered in the coding 'gzip', unasked",
    "huge": "{at} answered with more than 8388608 bytes",
    "huge-event": "{at} sent an event of more than 8388608 bytes",
    "accepted": "{at} answered with no content: it is no MCP server",
}


@pytest.mark.requirement("discovery:broken-servers")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_url_server_is_one_error(
    web: DiscoveryPod, server: ListingServer, fault: str
) -> None:
    server.fault = fault
    service = at(server, auth={"type": "bearer", "env": "TOKEN"})
    web.write({"environment": {"TOKEN": "${TOKEN}"}, **service})
    assert (
        web.refuses(TOKEN=PLANTED)
        == f"error: web: {FAULTS[fault].format(at=f'{server.url}/mcp')}\n"
    )
    assert {each.path for each in server.received} == {"/mcp"}


@pytest.mark.requirement("discovery:auth", "discovery:broken-servers")
def test_a_credential_or_an_address_that_cannot_be_sent_is_an_error_with_its_name(
    web: DiscoveryPod, server: ListingServer
) -> None:
    service = at(server, auth={"type": "bearer", "secret": "of-the-pod"})
    web.write(service, secrets={"of-the-pod": {"file": "secret"}})
    assert (
        web.refuses()
        == "error: claw-pod.yml: the secret 'of-the-pod' of 'web' is not known here: set it\n"
    )
    Path("secret").write_text("pässword\n", encoding="utf-8")
    assert (
        web.refuses()
        == "error: claw-pod.yml: the secret 'of-the-pod' of 'web' can't be sent in a header\n"
    )
    web.write(at(server))
    assert web.refuses("--url", "http://xn--zz-/mcp").startswith("error: web: ")
    assert server.received == []
