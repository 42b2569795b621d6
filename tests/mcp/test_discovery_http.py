"""``claw discover`` at URL servers: real HTTP, both eras, JSON and events,
credentials, and servers that break.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.discovering import DiscoveryPod, at, tool
from tests.mcp.http_server import ListingServer
from tests.waiting import nobody_listens

PLANTED = "planted-credential-4711"


@pytest.fixture
def server() -> Iterator[ListingServer]:
    server = ListingServer(pages=[[tool("a")], [tool("b", annotations={"readOnlyHint": True})]])
    server.start()
    yield server
    server.stop()


@pytest.mark.requirement("discovery:http", "discovery:metadata")
def test_the_address_is_the_pods_or_the_users(web: DiscoveryPod, server: ListingServer) -> None:
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
def test_the_image_is_recorded_as_it_is_written(web: DiscoveryPod, server: ListingServer) -> None:
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
    web: DiscoveryPod, server: ListingServer, auth: dict[str, Any], header: str, value: str
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


@pytest.mark.requirement("discovery:time")
def test_a_url_server_that_sends_no_answer_is_left_after_its_time(
    web: DiscoveryPod, server: ListingServer
) -> None:
    server.fault = "silent"
    web.write(at(server))
    assert "it took longer than 1 s to answer 'initialize'" in web.refuses("--timeout", "1")


@pytest.mark.requirement("discovery:broken-servers", "discovery:secrets")
def test_the_value_of_a_variable_is_in_no_message(web: DiscoveryPod) -> None:
    with nobody_listens() as url:
        port = url.rpartition(":")[2]
        web.write({"x-claw": {"mcp": {"path": "/mcp"}, "base-url": "http://${WHERE}"}})
        words = web.refuses(WHERE=f"127.0.0.1:{port}")
        assert words.startswith("error: web: http://${WHERE}/mcp can't be reached, '")
        assert port not in words


@pytest.mark.requirement("discovery:http")
def test_a_stdio_service_is_asked_at_its_wrapper_when_the_user_names_it(
    web: DiscoveryPod, server: ListingServer
) -> None:
    web.serves([tool("from_the_child")])
    web.discovers("--url", f"{server.url}/mcp")
    assert set(web.tools) == {"a", "b"}
    assert web.snapshot["x-claw-discovery"]["command"]
    assert "stale-snapshot" not in web.claw("check").output
