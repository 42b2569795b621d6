"""A runner that tries to avoid the proxy: every other way out of its network, and
every trick with the proxy itself.

The compiled proxy denies ungoverned hosts, so that whatever reaches it for another host ends there.
Runners of the compose form first get a route that they don't have otherwise, so that only the rules
stop them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.gateway.compiled import OPENAI_KEY
from tests.gateway.namespaces import v4, v6
from tests.gateway.reaching import CHAT, OPENAI, bytes_to, head, over_tls, post
from tests.gateway.test_runners import ASKED
from tests.gateway.topology import (
    DESK,
    ELSEWHERE,
    OTHER,
    PROVIDER,
    PROVIDER_6,
    PUBLIC,
    SHELF,
    SHELF_PORT,
    Topology,
)
from tests.peers import Service, text
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def _route(pod: Topology) -> Iterator[None]:
    ways = (
        (f"default via {v4('net1', 1)}", f"::/0 via {v6('net1', 1)}")
        if pod.form == "compose"
        else ()
    )
    pod.runner.ip(*(f"route add {way}" for way in ways))
    yield
    pod.runner.ip(*(f"route del {way}" for way in ways))


def nobody_heard(pod: Topology) -> bool:
    return not any(
        peer.received for peer in (pod.provider, pod.elsewhere, pod.open, pod.desk, pod.shelf)
    )


@pytest.mark.requirement("transparent:no-way-round")
@pytest.mark.parametrize(
    ("host", "port"),
    [(PROVIDER, 8443), (PROVIDER_6, 8443), (PUBLIC, 53), (PUBLIC, SHELF_PORT), (DESK, 4000)],
    ids=[
        "another port",
        "another port over IPv6",
        "the port of DNS",
        "the port of its surface",
        "the tool service",
    ],
)
def test_no_other_port_of_anybody_is_reached(pod: Topology, host: str, port: int) -> None:
    with pytest.raises(
        ConnectionRefusedError
    ):  # no time-out, for which the runner would wait for minutes
        bytes_to(pod, host, port, head("GET /balance", f"host: {OPENAI}"))
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:no-way-round")
@pytest.mark.parametrize("host", [PROVIDER, PROVIDER_6], ids=["over IPv4", "over IPv6"])
def test_quic_is_refused_so_that_it_falls_back(pod: Topology, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with pod.world.inside(lambda: socket.socket(family, socket.SOCK_DGRAM)) as provider:
        provider.bind((host, 443))
        provider.setblocking(False)

        def knocks() -> None:
            with socket.socket(family, socket.SOCK_DGRAM) as runner:
                runner.settimeout(DEADLINE)
                runner.connect((host, 443))
                runner.send(
                    b"\xc0\x00\x00\x00\x01" + bytes(1200)
                )  # a long header of QUIC version 1
                runner.recv(1)

        with pytest.raises(OSError, match=r"refused|not permitted"):
            pod.runner.inside(knocks)
        with pytest.raises(BlockingIOError):
            provider.recv(1)


@pytest.mark.requirement("transparent:no-way-round")
@pytest.mark.parametrize(
    "host", [PROVIDER, PROVIDER_6, ELSEWHERE, DESK], ids=["provider", "IPv6", "other", "tool"]
)
def test_plain_http_is_refused_whatever_host_it_names(pod: Topology, host: str) -> None:
    credential = f"authorization: Bearer {pod.token}"
    for named in (OPENAI, OTHER, host):
        for target in ("/balance", f"http://{OPENAI}/v1/models"):
            assert b" 403 " in bytes_to(
                pod, host, 80, head(f"GET {target}", f"host: {named}", credential)
            )
    assert b" 400 " in bytes_to(pod, host, 80, head(f"CONNECT {OPENAI}:443", f"host: {OPENAI}"))
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:no-way-round")
@pytest.mark.parametrize("port", [80, 443])
@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02 not http\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["bytes", "ssh", "half a handshake", "HTTP/2 unannounced"],
)
def test_bytes_that_are_not_http_go_nowhere(pod: Topology, port: int, data: bytes) -> None:
    def said() -> bytes:
        with socket.create_connection((PROVIDER, port), timeout=DEADLINE) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(64)

    assert pod.runner.inside(said)[:12] in {
        b"",
        b"HTTP/1.1 400",
        b"HTTP/1.1 403",
        b"\x15\x03\x01\x00\x02\x02\x32",
    }
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:egress-denied")
@pytest.mark.parametrize(
    ("host", "name"),
    [
        (ELSEWHERE, OTHER),
        (PROVIDER, OTHER),
        (PROVIDER, None),
        (PROVIDER, "cloudflare-ech.com"),
        (DESK, "desk"),
    ],
    ids=[
        "another host",
        "foreign name at the provider",
        "no name",
        "the outer name of ECH",
        "the tool service",
    ],
)
def test_a_handshake_that_names_no_governed_host_fails(
    pod: Topology, host: str, name: str | None
) -> None:
    with pytest.raises(ssl.SSLError, match="EOF"):
        over_tls(
            pod, host, name, head("GET /", f"host: {OPENAI}", f"authorization: Bearer {pod.token}")
        )
    assert nobody_heard(pod)
    said = pod.pod.stderr.read_text(encoding="utf-8").splitlines()
    assert [
        line for line in said if f"TLS of {name or host!r} is refused: it is not governed" in line
    ]


@pytest.mark.requirement("transparent:names-decide")
@pytest.mark.parametrize("host", [ELSEWHERE, DESK, PUBLIC])
def test_a_governed_name_at_a_foreign_address_goes_to_the_configured_provider_alone(
    pod: Topology, host: str
) -> None:
    pod.provider.says(text("From the provider."))
    answer = post(pod, f"https://{host}{CHAT}", ASKED, headers={"host": OTHER})
    assert answer.json()["choices"][0]["message"]["content"] == "From the provider."
    assert [asked.headers["authorization"] for asked in pod.provider.received] == [
        f"Bearer {OPENAI_KEY}"
    ]
    pod.provider.received.clear()
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:no-way-round")
@pytest.mark.parametrize(
    "asked", [f"CONNECT {DESK}:4000", f"CONNECT {PROVIDER}:443", f"GET http://{DESK}:4000/balance"]
)
def test_the_forward_proxy_beside_it_is_no_way_round_either(pod: Topology, asked: str) -> None:
    assert b" 403 " in bytes_to(
        pod, pod.front, 8082, head(asked, f"host: {OPENAI}", "authorization: Bearer own")
    )
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:no-way-round")
def test_who_knocks_at_the_transparent_port_itself_gets_nowhere_and_stops_nobody(
    pod: Topology,
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        over_tls(pod, pod.front, OTHER, head("GET /", f"host: {OTHER}"))
    for data in (head("GET /balance", f"host: {OTHER}"), b"\x00\x01"):
        with suppress(ConnectionError):
            assert b" 200 " not in bytes_to(pod, pod.front, 8083, data + b"\r\n\r\n")
    pod.provider.says(text("Still there."))
    assert "Still there." in post(pod, f"https://{pod.leads}{CHAT}", ASKED).text
    pod.provider.received.clear()
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:dns")
def test_in_a_kubernetes_pod_the_clusters_dns_is_asked_and_no_other(pod: Topology) -> None:
    if pod.form != "kubernetes":
        return  # the other forms have a resolver in their own network, or none
    heard = []
    for host in (PROVIDER, PUBLIC):
        with pod.world.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
            server.bind((host, 53))
            server.settimeout(DEADLINE)
            with pod.runner.inside(
                lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ) as runner:
                try:
                    runner.sendto(b"a query", (host, 53))
                except PermissionError:
                    continue
                heard.append((host, server.recv(9)))
    assert heard == [(PROVIDER, b"a query")]


@pytest.mark.requirement("transparent:surfaces")
def test_in_a_kubernetes_pod_a_surface_is_reached_on_its_port_and_on_no_other(
    pod: Topology,
) -> None:
    asked = head("GET /books", "host: shelf")
    if pod.form != "kubernetes":
        with pytest.raises(
            ConnectionRefusedError
        ):  # only a network of its own leads there, and the gateway does not
            bytes_to(pod, SHELF, SHELF_PORT, asked)
        assert nobody_heard(pod)
        return
    bytes_to(pod, SHELF, SHELF_PORT, asked)
    assert [heard.path for heard in pod.shelf.received] == ["/books"]
    pod.shelf.received.clear()
    assert b" 403 " in bytes_to(pod, SHELF, 80, asked)
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:loopback")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("port", [80, 443])
def test_a_runners_own_pod_is_its_own_whatever_the_port(
    pod: Topology, host: str, port: int
) -> None:
    own = Service()
    own.start(pod.runner.listener(host, port))
    try:
        bytes_to(pod, host, port, head("GET /own", "host: localhost"))
    finally:
        own.stop()
    assert [heard.path for heard in own.received] == ["/own"]
    assert nobody_heard(pod)


@pytest.mark.requirement("transparent:loopback")
@pytest.mark.parametrize(
    ("host", "port"), [(PROVIDER, 443), (PROVIDER_6, 443), (PROVIDER, 8443), (DESK, 80)]
)
def test_who_sends_through_the_loopback_device_what_is_for_others_reaches_nobody(
    pod: Topology, host: str, port: int
) -> None:
    def knocks() -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as runner:
            runner.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            runner.settimeout(DEADLINE)
            runner.connect((host, port))

    if pod.form != "kubernetes":
        return  # the loopback device of the other forms leads nowhere
    with pytest.raises(OSError, match=r"refused|unreachable"):
        pod.runner.inside(knocks)
    assert nobody_heard(pod)
