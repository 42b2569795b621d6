"""The cost of transparent mode: ``python bench/transparent.py [--operations N] [--rounds N]``.

One proxy with all three entrances, in a network namespace of its own, where connections to port 443
are redirected. Its runner speaks TLS to it, its provider does not. It compares the base URL in the
clear, the forward proxy (CONNECT, then TLS), and the transparent entrance (TLS). A connection is
kept for all requests, or each request has its own, handshake and all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import wire
from load import BadAnswerError, Connection
from markdown import grid
from stage import MITMDUMP, ROOT, Process, Site, check_requests, pinned, proxy, site

HOST, ADDRESS = "api.openai.com", "203.0.113.1"
BASE, FORWARD, TRANSPARENT = 8080, 8082, 8083
WITHIN = "CLAW_BENCH_WITHIN"
WARM_UP = 2
"""Requests before those that are measured."""
type Connect = Callable[[], Awaitable[Connection]]
RULES = (
    "add table inet bench; add chain inet bench out { type nat hook output priority -100; }; "
    f"add rule inet bench out ip daddr {ADDRESS} tcp dport 443 redirect to :{TRANSPARENT}"
)


class Sample(NamedTuple):
    """Milliseconds of a request: the median, and the proxy's CPU."""

    p50: float
    cpu: float


def enter_namespace() -> None:
    """Run this program again in a namespace that has a loopback device and nothing else."""
    if WITHIN in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
        subprocess.run(["nft", RULES], check=True)
        return
    rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *rights, "--net", sys.executable, *sys.argv]
    os.execvpe(command[0], command, os.environ | {WITHIN: "1"})


async def plain() -> Connection:
    return (await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", BASE))[1]


class TlsConnections:
    """TLS connections to the proxy of a runner that trusts its CA."""

    def __init__(self, authority: Path) -> None:
        self._tls = ssl.create_default_context(cafile=authority)

    async def forward(self) -> Connection:
        loop = asyncio.get_running_loop()
        tunnel = socket.create_connection(("127.0.0.1", FORWARD))
        tunnel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tunnel.setblocking(False)
        await loop.sock_sendall(
            tunnel, f"CONNECT {HOST}:443 HTTP/1.1\r\nhost: {HOST}:443\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(tunnel, 4096)
        return (
            await loop.create_connection(
                Connection, sock=tunnel, ssl=self._tls, server_hostname=HOST
            )
        )[1]

    async def transparent(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (
            await loop.create_connection(
                Connection, ADDRESS, 443, ssl=self._tls, server_hostname=HOST
            )
        )[1]


async def time_requests(connect: Connect, requests: Iterable[bytes], *, kept: bool) -> list[float]:
    """Return the seconds of each request, sent one after the other."""
    times: list[float] = []
    connection: Connection | None = None
    for request in requests:
        started = time.perf_counter()
        connection = connection or await connect()
        await connection.ask(request)
        times.append(time.perf_counter() - started)
        if (
            not connection.answer().startswith(b"HTTP/1.1 200 ")
            or wire.DONE not in connection.answer()
        ):
            raise BadAnswerError(connection.answer()[:1000])
        if not kept:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    return times


def measure(
    at: Site, process: Process, ways: Mapping[str, Connect], many: int, rounds: int
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table; a figure is the median of its rounds."""
    numbers = count()
    for what, agent, model_calls in (
        ("pass-through", "plain", 0),
        ("turn of 1 round", "analyst", 1),
    ):
        question = wire.question(model_calls, stream=False)
        request = wire.http("POST", wire.CHAT, agent, question).encode()

        for kept in (True, False):
            samples: dict[str, list[Sample]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, connect in ways.items():
                    requests = [
                        request.replace(wire.MARK, b"turn-%08d" % next(numbers), 1)
                        for _ in range(many + WARM_UP)
                    ]
                    with check_requests(at, len(requests), model_calls), pinned(process):
                        sample = _sample(process, connect, requests, kept=kept)
                    samples[name].append(sample)

            kind = (what, "kept" if kept else "one each")
            yield from ((*kind, *cells) for cells in _lines(samples))


def _sample(process: Process, connect: Connect, requests: Sequence[bytes], *, kept: bool) -> Sample:
    """Measure the requests behind the first two, which warm the proxy up."""
    asyncio.run(time_requests(connect, requests[:WARM_UP], kept=kept))

    before = process.cpu()
    times = asyncio.run(time_requests(connect, requests[WARM_UP:], kept=kept))
    cpu = process.cpu() - before
    return Sample(median(times) * 1000, cpu / len(times) * 1000)


def _lines(samples: Mapping[str, Sequence[Sample]]) -> Iterator[tuple[str, ...]]:
    """Yield name and medians of each way, and how they compare to the forward proxy's."""
    medians = {
        name: Sample(median(each.p50 for each in found), median(each.cpu for each in found))
        for name, found in samples.items()
    }
    regular = medians["forward proxy"]
    for name, found in medians.items():
        p50_ratio = f"{found.p50 / regular.p50:.2f}"
        # A short run may need less CPU than the clock of the process counts.
        cpu_ratio = f"{found.cpu / regular.cpu:.2f}" if regular.cpu else ""
        yield name, f"{found.p50:.2f}", f"{found.cpu:.2f}", p50_ratio, cpu_ratio


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measures transparent mode beside the other two entrances."
    )
    parser.add_argument("--operations", type=int, default=200, help="of each kind, in each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    enter_namespace()
    agents = {"analyst": "http", "plain": ""}
    with (
        tempfile.TemporaryDirectory(prefix="claw-bench-") as place,
        site(Path(place), agents) as at,
    ):
        modes = (
            f"reverse:http://pod.invalid@{BASE}",
            f"regular@{FORWARD}",
            f"transparent@{TRANSPARENT}",
        )
        arguments = [
            "-s",
            str(ROOT / "addons" / "cllama.py"),
            *(word for mode in modes for word in ("--mode", mode)),
        ]
        with proxy(
            at.home, BASE, at.environment(at.home / "state"), [str(MITMDUMP), *arguments]
        ) as process:
            connections = TlsConnections(at.home / "home" / ".mitmproxy" / "mitmproxy-ca-cert.pem")
            ways = {
                "base URL, plain": plain,
                "forward proxy": connections.forward,
                "transparent": connections.transparent,
            }
            rows = [*measure(at, process, ways, options.operations, options.rounds)]
    head = (
        "what",
        "connection",
        "by",
        "p50 ms",
        "CPU ms",
        "p50 to forward proxy",
        "CPU to forward proxy",
    )
    print("\n".join(grid(head, rows)))


if __name__ == "__main__":
    main()
