"""The listener of ``/metrics``: it serves nothing else, and clients that misuse it hurt nobody."""

from __future__ import annotations

import socket

import httpx2
import pytest

from claw_mediate.telemetry.metrics_server import MAX_CONNECTIONS
from tests.peers import text
from tests.proxy.scraped import ScrapedPod


@pytest.mark.requirement("metrics:apart")
def test_neither_entrance_of_runners_knows_of_metrics(scraped: ScrapedPod) -> None:
    pod = scraped.pod
    base = httpx2.get(f"{pod.url}/metrics", timeout=30, trust_env=False)
    assert base.status_code == 401
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{pod.proxy_port}", trust_env=False, timeout=30
    ) as proxied:
        assert "claw_" not in proxied.get(f"http://127.0.0.1:{pod.port}/metrics").text


@pytest.mark.requirement("metrics:apart")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../ready", 404),
        ("GET", "/v1/models", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "/metrics?x=1", 200),
        ("HEAD", "/metrics", 200),
    ],
)
def test_the_listener_serves_metrics_and_nothing_else(
    scraped: ScrapedPod, method: str, path: str, status: int
) -> None:
    answer = scraped.get(path, method)
    assert answer.status_code == status
    assert (method == "HEAD") == (answer.text == "")


@pytest.mark.requirement("metrics:hostile")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 20_000, b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (
            (
                b"GET /metrics HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text; "
                b"version=\x00\r\n\r\n"
            ),
            b"400",
        ),
        (
            (
                b"GET /metrics HTTP/1.1\r\nhost: x\r\naccept: "
                b"application/openmetrics-text;version=x.y\r\n\r\n"
            ),
            b"200",
        ),
    ],
)
def test_odd_heads_are_answered_and_closed(scraped: ScrapedPod, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", scraped.port), timeout=30) as peer:
        peer.sendall(sent)
        said = b""
        while data := peer.recv(65536):
            said += data
    assert said.split(b" ", 2)[1] == status


@pytest.mark.requirement("metrics:hostile")
def test_silent_connections_are_closed_for_new_ones_and_the_proxy_works_on(
    scraped: ScrapedPod,
) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", scraped.port), timeout=30)
        for _ in range(3 * MAX_CONNECTIONS)
    ]
    try:
        for peer in silent[-5:]:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nx-slow: ")
        assert scraped.get().status_code == 200
        scraped.pod.provider.says(text("Seven."))
        assert scraped.ask() == "Seven."
        assert _is_closed(silent[0])
    finally:
        for peer in silent:
            peer.close()


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True
