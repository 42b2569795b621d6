"""A real HAProxy before several proxies: HTTP for the base URL, TCP for the forward proxy."""

from __future__ import annotations

import csv
import io
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.not_tested import skip_for
from tests.proxy.pod import Pod
from tests.waiting import eventually

BINARY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
_CONFIG = """
global
    log stdout format raw local0
    stats socket {socket} level admin
defaults
    mode http
    timeout connect 5s
    timeout check 20s
    timeout client 120s
    timeout server 120s
    retries 3
    option redispatch 1
    default-server inter 250ms fall 1 rise 1
    log global
listen base
    bind 127.0.0.1:{base}
    log-format "%s %ts"
    option httpchk GET /ready
    # A session with the broker is in the memory of the proxy that opened it.
    stick-table type string len 64 size 1k expire 1h
    stick store-response res.hdr(mcp-session-id)
    stick match req.hdr(mcp-session-id)
{bases}
listen forward
    mode tcp
    bind 127.0.0.1:{forward}
    log-format "%s %ts"
{forwards}
"""


class Balancer:
    """HAProxy, which asks each proxy whether it is ready, and repeats a request
    only if no connection came about.
    """

    def __init__(self, home: Path, proxies: Sequence[Pod], base: int, forward: int) -> None:
        if BINARY is None:
            skip_for("haproxy")
        names = {f"p{number}": proxy for number, proxy in enumerate(proxies)}
        bases = (f"    server {name} 127.0.0.1:{proxy.port} check" for name, proxy in names.items())
        forwards = (
            f"    server {name} 127.0.0.1:{proxy.proxy_port} track base/{name}"
            for name, proxy in names.items()
        )
        config, self._log = home / "haproxy.cfg", home / "haproxy.log"
        self._socket = home / "haproxy.sock"
        text = _CONFIG.format(
            socket=self._socket,
            base=base,
            forward=forward,
            bases="\n".join(bases),
            forwards="\n".join(forwards),
        )
        config.write_text(text, encoding="utf-8")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [BINARY, "-db", "-f", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(partial(self._listens, forward), "the balancer listens")

    def drain(self, proxy: int) -> None:
        """Send a proxy no new requests."""
        self._tell(f"set server base/p{proxy} state drain")

    def resume(self, proxy: int) -> None:
        """Send a proxy requests again; wait until it gets them."""
        self._tell(f"set server base/p{proxy} state ready")
        eventually(
            lambda: f",base,p{proxy},UP," in self._states(),
            "the balancer knows that the proxy is ready",
        )

    def _states(self) -> str:
        """Return for each server a line with the names of its backend and itself, and its state."""
        rows = csv.DictReader(io.StringIO(self._tell("show stat").removeprefix("# ")))
        return "\n".join(f",{row['pxname']},{row['svname']},{row['status']}," for row in rows)

    def _tell(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self._socket))
            admin.sendall(f"{command}\n".encode())
            return b"".join(iter(partial(admin.recv, 1 << 16), b"")).decode()

    def interrupted(self) -> int:
        """Return how many requests the proxies had taken, and left without an
        answer or within one.
        """
        ends = (
            line.partition(" ")[2] for line in self._log.read_text(encoding="utf-8").splitlines()
        )
        return sum(end in {"SH", "SD"} for end in ends)

    def _listens(self, port: int) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(timeout=10)
