"""A provider that is down, silent, or an impostor: its runner gets an error in its dialect, and an
impostor gets no data.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.gateway.certificates import Authority
from tests.gateway.reaching import CHAT, OPENAI, head, post
from tests.gateway.test_runners import ASKED
from tests.gateway.topology import GOVERNED, OTHER, PROVIDER, PROVIDER_6, Topology
from tests.peers import Provider, text
from tests.waiting import DEADLINE

CLAUDE = {"model": "claude-test", "max_tokens": 9, "messages": ASKED["messages"]}


@pytest.fixture
def away(allowing: Topology) -> Iterator[Topology]:
    """Stop the provider for one test, so that its address is free for others."""
    allowing.provider.stop()
    yield allowing
    places = (allowing.world.listener(host, 443) for host in (PROVIDER, PROVIDER_6))
    allowing.provider.start(*places, certificate=allowing.home / f"{GOVERNED[0]}.pem")


def is_refused(pod: Topology) -> None:
    """Check the errors of mediated requests in both dialects, and of a forwarded one."""
    for host, path, body in (
        (OPENAI, CHAT, ASKED),
        (GOVERNED[1], "/v1/messages", CLAUDE),
        (OPENAI, "/v1/embeddings", {}),
    ):
        answer = post(pod, f"https://{PROVIDER}{path}", body, name=host)
        assert answer.status_code == 502
        assert answer.json().get("type") == ("error" if path == "/v1/messages" else None)
        assert answer.json()["error"]["message"].startswith("the provider ")
        assert PROVIDER not in answer.text


def asked(pod: Topology) -> ssl.SSLSocket:
    """Return the connection of a runner that has asked for a stream.

    Call it within the runner's network.
    """
    body = json.dumps(ASKED | {"stream": True}).encode()
    lines = (
        f"host: {OPENAI}",
        f"authorization: Bearer {pod.token}",
        f"content-length: {len(body)}",
    )
    trust = ssl.create_default_context(cafile=pod.bundle)
    connection = trust.wrap_socket(
        socket.create_connection((PROVIDER, 443), DEADLINE), server_hostname=OPENAI
    )
    connection.sendall(head(f"POST {CHAT}", *lines) + body)
    return connection


@pytest.mark.requirement("transparent:provider-verified")
@pytest.mark.parametrize("wrong", ["its CA", "its name"])
def test_whoever_has_no_certificate_of_the_provider_is_told_nothing(
    away: Topology, tmp_path: Path, wrong: str
) -> None:
    signs = (
        Authority(tmp_path, "provider-ca").signs(*GOVERNED)
        if wrong == "its CA"
        else away.provider_ca.signs(OTHER)
    )
    impostor = Provider()
    with ExitStack() as ends:
        impostor.start(away.world.listener(PROVIDER, 443), certificate=signs)
        ends.callback(impostor.stop)
        is_refused(away)
    assert impostor.received == []


@pytest.mark.requirement("transparent:provider-down")
def test_a_provider_that_is_down_is_told_in_the_runners_dialect(away: Topology) -> None:
    is_refused(away)


@pytest.mark.requirement("transparent:provider-slow")
@pytest.mark.parametrize("says_hello", [True, False], ids=["after the handshake", "before it"])
def test_a_runner_that_leaves_a_silent_provider_takes_the_connection_along(
    away: Topology, says_hello: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(away.home / f"{GOVERNED[0]}.pem")
    with away.world.listener(PROVIDER, 443) as silent:
        silent.settimeout(DEADLINE)
        with away.runner.inside(lambda: asked(away)) as runner:
            connection, _ = silent.accept()
            connection.settimeout(DEADLINE)
            with (
                context.wrap_socket(connection, server_side=True)
                if says_hello
                else connection as provider
            ):
                assert provider.recv(65_536)
                assert runner.recv(9) == b"HTTP/1.1 "  # headers, and then keepalives
                runner.close()
                while provider.recv(65_536):
                    pass


@pytest.mark.requirement("transparent:provider-slow")
def test_a_stream_is_kept_alive_while_its_provider_takes_its_time(allowing: Topology) -> None:
    go = threading.Event()

    async def slow(_request: Request) -> Response:
        await asyncio.to_thread(go.wait, DEADLINE)
        return text("At last.")

    def hears() -> bytes:
        with asked(allowing) as runner:
            said = bytearray()
            while b"\n: claw " not in said:
                said += runner.recv(65_536)
            go.set()
            while more := runner.recv(65_536):
                said += more
            return bytes(said)

    allowing.provider.says(slow)
    assert b"At last." in allowing.runner.inside(hears)
