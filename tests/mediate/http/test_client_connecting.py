"""The peers that our own client of HTTP/1.1 connects to, and those that it does not."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import IPAddress
from mitmproxy.certs import CertStore

from claw_mediate.http.client import ConnectionPool, tls_context
from tests.mediate.http.http_peer import Serve, asked

pytestmark = pytest.mark.requirement("connections:http")


async def test_who_cannot_be_reached_is_told_apart(connections: ConnectionPool) -> None:
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, "http://127.0.0.1:1/")
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, "http://no-such-host.invalid/")


async def test_every_address_of_a_host_is_tried(
    serve: Serve, connections: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await serve()
    known = socket.getaddrinfo

    def two(host: str, *rest: Any, **more: Any) -> Any:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "two.test" else (host,)
        return [info for each in hosts for info in known(each, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    assert await asked(connections, wire.url.replace("127.0.0.1", "two.test")) == (200, b"ok")


@pytest.mark.parametrize(
    ("url", "header", "error"),
    [
        ("ftp://127.0.0.1/", b"1", httpx2.UnsupportedProtocol),
        ("http:///", b"1", httpx2.UnsupportedProtocol),
        ("http://[::1", b"1", httpx2.InvalidURL),
        ("http://127.0.0.1:1/", b"1\r\nx-evil: 1", httpx2.LocalProtocolError),
        ("http://127.0.0.1:1/", b"\0", httpx2.LocalProtocolError),
    ],
)
async def test_what_cannot_be_asked_is_told_before_anything_is_sent(
    connections: ConnectionPool, url: str, header: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with connections.stream("GET", url, [(b"x-a", header)], None):
            pass


async def test_a_certificate_counts_and_its_name(
    serve: Serve, connections: ConnectionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = CertStore.from_store(tmp_path, "mitmproxy", 2048).get_cert(
        "peer", [IPAddress(ip_address("127.0.0.1"))]
    )
    pem = tmp_path / "server.pem"
    plain = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem.write_bytes(issued.privatekey.private_bytes(*plain) + issued.cert.to_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    wire = await serve(secure=context)
    url = wire.url.replace("http:", "https:")
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, url)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mitmproxy-ca-cert.pem"))
    trusting = ConnectionPool(tls_context(), idle=60)
    for _ in range(2):
        assert await asked(trusting, url) == (200, b"ok")
    with pytest.raises(httpx2.ConnectError):
        await asked(trusting, url.replace("127.0.0.1", "localhost"))
    await trusting.close()
