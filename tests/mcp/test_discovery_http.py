"""``claw discover`` at URL servers: real HTTP, both eras, JSON and events,
credentials, and servers that break.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.discovering import Desk, tool, web
from tests.mcp.http_server import ListingServer
from tests.waiting import nobody_listens

__all__ = ["web"]

PLANTED = "planted-credential-4711"


@pytest.fixture
def server() -> Iterator[ListingServer]:
    server = ListingServer(pages=[[tool("a")], [tool("b", annotations={"readOnlyHint": True})]])
    server.start()
    yield server
    server.stop()


def at(server: ListingServer, **claw: Any) -> dict[str, Any]:
    return {"x-claw": {"mcp": {"path": "/mcp"}, "base-url": server.url, **claw}}


@pytest.mark.requirement("discovery:http", "discovery:eras", "discovery:pages")
@pytest.mark.parametrize("style", ["json", "sse"])
@pytest.mark.parametrize("stateless", [False, True], ids=["handshake", "stateless"])
def test_a_url_server_is_asked_in_both_eras_in_json_and_in_events(
    web: Desk, server: ListingServer, style: str, *, stateless: bool
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


@pytest.mark.requirement("discovery:http", "discovery:metadata")
def test_the_address_is_the_pods_or_the_users(web: Desk, server: ListingServer) -> None:
    web.write({"x-claw": {"mcp": {"path": "/deep/mcp"}}})
    unreachable = web.refuses("--timeout", "20")
    assert unreachable.startswith("error: web: http://web:8080/deep/mcp can't be reached, '")
    assert unreachable.endswith(
        "': start the service, or say where it is reached from here: --url http://HOST:PORT/mcp\n"
    )
    web.discovers("--url", server.url)
    assert server.received[-1].path == "/deep/mcp"
    assert web.snapshot["mcp"]["path"] == "/deep/mcp"
    web.discovers("--url", f"{server.url}/elsewhere")
    assert server.received[-1].path == "/elsewhere"
    for url in ("ftp://x/mcp", "http://user:pass@host/mcp", f"{server.url}/mcp?key=1", "nonsense"):
        refused = web.discover("--url", url)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("error: --url: a base URL is http(s)://")
        assert "pass" not in refused.stderr


@pytest.mark.requirement("discovery:metadata")
def test_the_image_is_recorded_as_it_is_written(web: Desk, server: ListingServer) -> None:
    web.write({"image": "web:${TAG}", "x-claw": {"mcp": {}}})
    web.discovers("--url", server.url, TAG="7")
    assert web.snapshot["x-claw-discovery"]["image"] == "web:${TAG}"
    assert "stale-snapshot" not in web.claw("check", TAG="8").output
    web.write({"image": "web:2", "x-claw": {"mcp": {}}})
    assert "stale-snapshot" in web.claw("check").output
    Path("web").mkdir()
    web.write({"image": None, "build": "web", "x-claw": {"mcp": {}}})
    web.discovers("--url", server.url, "--update")
    assert web.snapshot["x-claw-discovery"]["image"] == "desk-web"
    assert web.claw("check").exit_code == 0


BASIC = base64.b64encode(f"me:{PLANTED}".encode()).decode()


@pytest.mark.requirement("discovery:auth", "discovery:secrets")
@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "env": "TOKEN"}, "authorization", f"Bearer {PLANTED}"),
        ({"type": "header", "header": "X-Key", "env": "TOKEN"}, "x-key", PLANTED),
        ({"type": "basic", "username": "me", "env": "TOKEN"}, "authorization", f"Basic {BASIC}"),
        ({"type": "bearer", "secret": "of-the-pod"}, "authorization", f"Bearer {PLANTED}"),
    ],
    ids=["bearer", "header", "basic", "secret"],
)
def test_the_credential_of_the_service_is_sent_and_never_written(
    web: Desk, server: ListingServer, auth: dict[str, Any], header: str, value: str
) -> None:
    server.pages = [[tool("a", f"Send {value} or {PLANTED}.")]]
    web.write(
        {"environment": {"TOKEN": "${TOKEN}"}, **at(server, auth=auth)},
        secrets={"of-the-pod": {"env": "TOKEN"}},
    )
    result = web.discover(TOKEN=PLANTED)
    assert result.exit_code == 0, result.output
    assert {each.headers[header] for each in server.received} == {value}
    written = web.file.read_text(encoding="utf-8")
    for secret in (PLANTED, BASIC):
        assert secret not in written + result.output
    assert "the tool 'a' holds a credential" in result.stderr
    unset = web.discover(TOKEN="")
    assert (unset.exit_code, unset.stdout) == (1, "")


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
def test_a_broken_url_server_is_one_error(web: Desk, server: ListingServer, fault: str) -> None:
    server.fault = fault
    service = at(server, auth={"type": "bearer", "env": "TOKEN"})
    web.write({"environment": {"TOKEN": "${TOKEN}"}, **service})
    assert (
        web.refuses(TOKEN=PLANTED)
        == f"error: web: {FAULTS[fault].format(at=f'{server.url}/mcp')}\n"
    )
    assert {each.path for each in server.received} == {"/mcp"}


@pytest.mark.requirement("discovery:time")
def test_a_url_server_that_sends_no_answer_is_left_after_its_time(
    web: Desk, server: ListingServer
) -> None:
    server.fault = "silent"
    web.write(at(server))
    assert "it took longer than 1 s to answer 'initialize'" in web.refuses("--timeout", "1")


@pytest.mark.requirement("discovery:broken-servers", "discovery:secrets")
def test_the_value_of_a_variable_is_in_no_message(web: Desk) -> None:
    with nobody_listens() as url:
        port = url.rpartition(":")[2]
        web.write({"x-claw": {"mcp": {"path": "/mcp"}, "base-url": "http://${WHERE}"}})
        words = web.refuses(WHERE=f"127.0.0.1:{port}")
        assert words.startswith("error: web: http://${WHERE}/mcp can't be reached, '")
        assert port not in words


@pytest.mark.requirement("discovery:http")
def test_a_stdio_service_is_asked_at_its_wrapper_when_the_user_names_it(
    web: Desk, server: ListingServer
) -> None:
    web.serves([tool("from_the_child")])
    web.discovers("--url", f"{server.url}/mcp")
    assert set(web.tools) == {"a", "b"}
    assert web.snapshot["x-claw-discovery"]["command"]
    assert "stale-snapshot" not in web.claw("check").output


@pytest.mark.requirement("discovery:auth", "discovery:broken-servers")
def test_a_credential_or_an_address_that_cannot_be_sent_is_an_error_with_its_name(
    web: Desk, server: ListingServer
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
