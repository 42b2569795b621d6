"""The forward proxy, where a runner believes that it talks to its provider; and
hosts that are not governed.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import PROVIDER_KEY, Pod, authority, headers, through
from tests.waiting import DEADLINE, eventually, free_port

HI: Any = [{"role": "user", "content": "Go"}]


@pytest.mark.requirement("entrance:forward-proxy")
@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_that_believes_it_talks_to_the_provider_is_mediated_by_the_forward_proxy(
    running: Pod, stream: bool
) -> None:
    running.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    running.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    with openai.OpenAI(
        base_url="https://api.openai.com/v1",
        api_key=running.token(),
        max_retries=0,
        http_client=through(running, authority(running)),
    ) as client:
        answer: Any = client.chat.completions.create(model="gpt-test", messages=HI, stream=stream)
        parts = (event.choices[0].delta.content or "" for event in answer) if stream else None
        words = "".join(parts) if parts else answer.choices[0].message.content
    assert words == "Done."
    assert running.provider.received[0].headers["authorization"] == f"Bearer {PROVIDER_KEY}"


@pytest.mark.requirement("entrance:by-connection-and-sni")
def test_the_host_header_does_not_choose_the_destination(running: Pod) -> None:
    with through(running, authority(running)) as client:
        answer = client.post(
            "https://api.openai.com/v1/chat/completions",
            headers={
                **headers(running, "analyst"),
                "host": "evil.test",
                "authorization": "Bearer analyst:wrong",
            },
            content=b"{}",
        )
    assert answer.status_code == 403


@pytest.mark.requirement("entrance:by-connection-and-sni")
def test_an_address_with_a_governed_name_in_its_handshake_is_governed(running: Pod) -> None:
    running.provider.says(text("governed"))
    with through(running, authority(running)) as client:
        answer = client.post(
            "https://localhost:1/v1/chat/completions",
            headers=headers(running, "analyst"),
            json={"model": "gpt-test", "messages": HI},
            extensions={"sni_hostname": "api.openai.com"},
        )
    assert answer.json()["choices"][0]["message"]["content"] == "governed"
    assert running.provider.received[0].headers["authorization"] == f"Bearer {PROVIDER_KEY}"


@pytest.mark.requirement("entrance:direct-connection")
def test_a_direct_connection_to_the_transparent_listener_is_closed_with_one_line_and_the_proxy_lives(
    pod: Pod,
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    listener = free_port()
    modes = f"reverse:http://pod.invalid@127.0.0.1:{pod.port}", f"transparent@127.0.0.1:{listener}"
    pod.start(*(word for mode in modes for word in ("--mode", mode)), wait=False)

    def is_closed() -> bool:
        """Return True once the listener has closed our connection; try it while the
        proxy starts.
        """
        with (
            suppress(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", listener)) as direct,
        ):
            direct.settimeout(DEADLINE)
            with suppress(ConnectionResetError):
                assert direct.recv(1) == b""
            return True
        return False

    eventually(is_closed, "there is a listener", pause=0.001)
    eventually(pod._ready, "the proxy is ready")
    (line,) = [line for line in pod.said().splitlines() if "transparent listener" in line]
    assert (
        "cllama: closed a connection to the transparent listener: no redirect of the "
        "kernel led it there"
    ) in line
    assert "Traceback" not in pod.said()


class ForeignServer:
    """A TLS server with a certificate of its own that is no provider."""

    def __init__(self, home: Path) -> None:
        self.certificate = home / "elsewhere.pem"
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
        ]
        names = ["-addext", "subjectAltName=DNS:localhost"]
        target = ["-keyout", str(self.certificate), "-out", str(home / "cert.pem")]
        subprocess.run([*command, *names, *target], check=True, capture_output=True)
        with self.certificate.open("a", encoding="utf-8") as file:
            file.write((home / "cert.pem").read_text(encoding="utf-8"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self.listener = context.wrap_socket(
            socket.create_server(("127.0.0.1", 0)), server_side=True
        )
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        connection.close()


@pytest.mark.requirement("egress:not-opened")
def test_tls_of_a_host_that_is_not_governed_is_not_opened(running: Pod) -> None:
    elsewhere = ForeignServer(running.home)
    with through(
        running, str(elsewhere.certificate)
    ) as client:  # trusts the server's own certificate, and not ours
        assert client.get(f"https://localhost:{elsewhere.port}/").text == "hi"
    elsewhere.listener.close()


@pytest.mark.requirement("egress:untouched")
def test_mitmproxys_own_page_about_its_ca_stands_in_no_hosts_place(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.start("--set", "onboarding_host=localhost")  # mitm.it by default
    with through(pod, authority(pod)) as client:
        client.get(f"http://localhost:{pod.service.port}/balance")
    assert len(pod.service.received) == 1


@pytest.mark.requirement("egress:not-itself")
def test_the_loopback_of_the_proxy_where_metrics_need_no_token_is_no_runners(pod: Pod) -> None:
    pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{(port := free_port())}"
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    assert httpx2.get(f"http://127.0.0.1:{port}/metrics").status_code == 200
    with through(pod, authority(pod)) as client:
        for name in ("localhost", "127.1.2.3"):  # this pod's provider is at 127.0.0.1
            assert client.get(f"http://{name}:{port}/metrics").status_code == 502


@pytest.mark.requirement("egress:deny")
def test_with_egress_denied_other_hosts_are_refused(pod: Pod) -> None:
    pod.environment["CLLAMA_EGRESS"] = "deny"
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    with through(pod, authority(pod)) as client:
        with pytest.raises(httpx2.ProxyError, match="403"):
            client.get("https://localhost:1/")
        assert client.get(f"http://localhost:{pod.service.port}/balance").status_code == 403
    assert pod.service.received == []
