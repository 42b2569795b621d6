"""HTTP/2, frame by frame: a runner behind the forward proxy, and a provider.

The provider is no ``tests.peers.Provider``, whose server speaks HTTP/1.1 only.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import h2.config
import h2.connection
import h2.errors
import h2.events

from tests.proxy.pod import Pod, authority

type Fields = list[tuple[str, str]]


@dataclass
class Stream:
    """The events of one stream."""

    headers: Fields = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    trailers: Fields = field(default_factory=list)
    ended: bool = False
    reset: bool = False

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class Frames:
    """One HTTP/2 connection, on either side."""

    deaf = False
    """True as long as it does not enlarge its flow-control windows.

    Only this may be set from another thread.
    """

    def __init__(self, peer: ssl.SSLSocket, *, client: bool) -> None:
        config = h2.config.H2Configuration(
            client_side=client,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.peer = peer
        self.h2 = h2.connection.H2Connection(config)
        self.streams: dict[int, Stream] = {}
        self._unheard: Counter[int] = Counter()
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.peer.sendall(self.h2.data_to_send())

    def _hear(self) -> None:
        """Enlarge the windows by everything that has come."""
        for own, size in self._unheard.items():
            self.h2.acknowledge_received_data(size, own)
        self._unheard.clear()

    def _receive(self) -> bytes:
        """Return what comes next.

        Once it is no longer deaf, enlarge the windows first, since nothing would come.
        """
        while (
            self.deaf
            and not self.peer.pending()
            and not select.select([self.peer], [], [], 0.05)[0]
        ):
            pass
        if self._unheard and not self.deaf:
            self._hear()
            self.flush()
        return self.peer.recv(65536)

    def read_until(self, found: Callable[[], Any]) -> None:
        """Read until the condition holds.

        Raises ``ConnectionError`` when the other side closes, or tells us to.
        """
        while not found():
            data = self._receive()
            if not data:
                raise ConnectionError
            for event in self.h2.receive_data(data):
                self._note(event)
            self.flush()

    def _note(self, event: h2.events.Event) -> None:
        stream = self.streams.setdefault(getattr(event, "stream_id", 0) or 0, Stream())
        match event:
            case h2.events.RequestReceived() | h2.events.ResponseReceived():
                stream.headers = list(event.headers)
            case h2.events.DataReceived():
                stream.body += event.data
                self._unheard[event.stream_id] += event.flow_controlled_length
                if not self.deaf:
                    self._hear()
            case h2.events.TrailersReceived():
                stream.trailers = list(event.headers)
            case h2.events.StreamEnded():
                stream.ended = True
            case h2.events.StreamReset():
                stream.reset = True
            case h2.events.ConnectionTerminated():
                raise ConnectionError(event.error_code)


def tunnel(pod: Pod, host: str, *protocols: str) -> ssl.SSLSocket:
    """Return a TLS connection through the forward proxy to a peer that a runner
    takes for the host.
    """
    plain = socket.create_connection(("127.0.0.1", pod.proxy_port), timeout=30)
    plain.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nhost: {host}:443\r\n\r\n".encode())
    assert plain.recv(65536).startswith(b"HTTP/1.1 200")
    context = ssl.create_default_context(cafile=authority(pod))
    context.set_alpn_protocols(list(protocols))
    return context.wrap_socket(plain, server_hostname=host)


class FrameRunner(Frames):
    """A runner that believes it talks to the provider, over HTTP/2."""

    def __init__(
        self, pod: Pod, host: str = "api.openai.com", peer: ssl.SSLSocket | None = None
    ) -> None:
        super().__init__(peer or tunnel(pod, host, "h2"), client=True)
        self.host = host
        self.read_until(
            lambda: self.h2.outbound_flow_control_window > 1 << 30
        )  # the proxy gives this window at once
        self._next = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def send(
        self,
        method: str,
        path: str,
        headers: Fields,
        body: Iterable[bytes] = (),
        *,
        end: bool = True,
    ) -> Stream:
        """Send a request; without ``end`` its body is not ended."""
        own, self._next = self._next, self._next + 2
        parts = list(body)
        first = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self.host),
            (":path", path),
        ]
        self.h2.send_headers(own, _raw([*first, *headers]), end_stream=end and not parts)
        for part in parts:
            self.flush()
            self.h2.send_data(own, part)
        if end and parts:
            self.h2.end_stream(own)
        self.flush()
        return self.streams.setdefault(own, Stream())

    def ask(self, method: str, path: str, headers: Fields, body: Iterable[bytes] = ()) -> Stream:
        stream = self.send(method, path, headers, body)
        self.read_until(lambda: stream.ended or stream.reset)
        return stream


class FrameProvider:
    """A provider that speaks HTTP/2 only.

    It answers every request with ``headers`` and ``parts``.
    """

    def __init__(self, home: Path) -> None:
        self.certificate = home / "provider.pem"
        cert = home / "provider-cert.pem"
        subject = [
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ]
        out = ["-keyout", str(self.certificate), "-out", str(cert)]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *out]
        subprocess.run(command, check=True, capture_output=True)
        with self.certificate.open("a", encoding="utf-8") as file:
            file.write(cert.read_text(encoding="utf-8"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        context.set_alpn_protocols(["h2"])
        self._listener = context.wrap_socket(
            socket.create_server(("127.0.0.1", 0)), server_side=True
        )
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[Stream] = []
        self.headers: Fields = [(":status", "200")]
        self.parts: list[bytes] = []
        self.trailers: Fields = []
        self.deaf = False
        self.connections: list[Frames] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError), peer:
            frames = Frames(peer, client=False)
            frames.deaf = self.deaf
            self.connections.append(frames)
            answered: set[int] = set()
            while True:
                frames.read_until(
                    lambda: [
                        own
                        for own in frames.streams
                        if frames.streams[own].ended and own not in answered
                    ]
                )
                for own in [
                    own
                    for own, stream in frames.streams.items()
                    if stream.ended and own not in answered
                ]:
                    answered.add(own)
                    self.seen.append(frames.streams[own])
                    self._answer(frames, own)

    def _answer(self, frames: Frames, own: int) -> None:
        frames.h2.send_headers(own, _raw(self.headers))
        for part in self.parts:
            frames.h2.send_data(own, part)
            frames.flush()
        if self.trailers:
            frames.h2.send_headers(own, self.trailers, end_stream=True)
        else:
            frames.h2.end_stream(own)
        frames.flush()


def _raw(headers: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
