"""The ways in which a runner reaches out: from within its network, with any data."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

import httpx2
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.gateway.topology import Topology
from tests.waiting import DEADLINE

OPENAI = "api.openai.com"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class TlsAnswer:
    """A TLS peer's answer.

    ``signer``: the issuer of its certificate; ``data``: all bytes until the end.
    """

    signer: str
    data: bytes

    @property
    def status(self) -> int:
        return int(self.data.split(b" ", 2)[1])


def bytes_to(topology: Topology, host: str, port: int, data: bytes) -> bytes:
    """Send these bytes and return the answer. Raises ``OSError`` if nobody can be reached."""

    def said() -> bytes:
        with socket.create_connection((host, port), timeout=DEADLINE) as connection:
            connection.sendall(data)
            return _all(connection)

    return topology.runner.inside(said)


def over_tls(
    topology: Topology, host: str, name: str | None, data: bytes, tunnel: str = ""
) -> TlsAnswer:
    """Send these bytes over TLS, trusting every certificate.

    ``name``: the one in the handshake; ``tunnel``: the destination, through the forward proxy at
    this host. Raises ``ssl.SSLError``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def said() -> TlsAnswer:
        with (
            _connected(host, tunnel) as plain,
            context.wrap_socket(plain, server_hostname=name) as connection,
        ):
            certificate = x509.load_der_x509_certificate(
                connection.getpeercert(binary_form=True) or b""
            )
            connection.sendall(data)
            signer = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
            return TlsAnswer(str(signer), _all(connection))

    return topology.runner.inside(said)


def _connected(host: str, tunnel: str) -> socket.socket:
    connection = socket.create_connection((host, 8082 if tunnel else 443), timeout=DEADLINE)
    if tunnel:
        connection.sendall(f"CONNECT {tunnel}:443 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    return connection


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "connection: close", *headers, "", ""]).encode()


def post(topology: Topology, url: str, body: Any, **how: Any) -> httpx2.Response:
    """Send a request of the agent with the SDKs' client; the TLS handshake names
    OpenAI, whatever the URL.
    """
    extensions = {"sni_hostname": how.pop("name", OPENAI)}
    headers = {"authorization": f"Bearer {topology.token}", **how.pop("headers", {})}

    def said() -> httpx2.Response:
        trust = ssl.create_default_context(cafile=topology.bundle)
        with httpx2.Client(verify=trust, trust_env=False, timeout=DEADLINE, **how) as client:
            return client.post(url, json=body, headers=headers, extensions=extensions)

    return topology.runner.inside(said)


def _all(connection: socket.socket) -> bytes:
    said = bytearray()
    while more := connection.recv(65_536):
        said += more
    return bytes(said)
