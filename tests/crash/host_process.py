"""Processes that host the real mediator and nothing else: a start costs a fork, not a mitmdump.

Its parent owns the listener, so a runner that tries again waits for the next process. The steps of
mitmproxy's host with an exchange (``mitm/addon.py``) are done here in the same order. Workers are
those of the real supervisor.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from claw_mediate.core.http import AnswerCutError, Request, RunnerResponse
from claw_mediate.http import client
from claw_mediate.mediator import Mediator
from claw_mediate.providers import failover
from claw_mediate.settings import SETTINGS, Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.workers import worker as workers
from claw_mediate.workers.supervisor import supervise
from tests.crash.faults import WITHIN, KillPoint, PointCounter

_TLS = client.tls_context()
"""The TLS context, made before the first fork: nothing here speaks TLS, and making it takes longer
than the rest of a start.
"""


def serve_until_killed(
    listener: socket.socket, env: Mapping[str, str], kill_point: KillPoint | None, died: Path
) -> None:
    """Serve until the process dies."""
    client.tls_context = lambda: _TLS  # in this copy of the process only
    failover._BACKOFF_SECONDS = 0.01
    counter = PointCounter(kill_point, died)
    counter.arm()
    asyncio.run(_serve(listener, env, counter))


class KillPlan(NamedTuple):
    """The deaths of a proxy's workers: each kills itself at a random point, until
    there were ``deaths`` of them.
    """

    seed: str
    deaths: int
    died: Path
    up: Path
    """The numbers of the workers that have opened their listeners, a line each time."""
    output: Path

    def kill_point(self, worker: int) -> KillPoint | None:
        """Return where a worker that begins now kills itself, or None if it is to stay."""
        so_far = len(self.died.read_text(encoding="utf-8").splitlines())
        chance = random.Random(f"{self.seed}/{so_far}/{worker}")
        return (
            KillPoint(chance.choice(WITHIN), chance.choice((1, 1, 2, 3)))
            if so_far < self.deaths
            else None
        )


def serve_as_workers(port: int, env: Mapping[str, str], kill_plan: KillPlan) -> None:
    """Serve as two workers until this process is told to end."""
    client.tls_context = lambda: _TLS
    with kill_plan.output.open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    supervise(2, partial(_work, port, env, kill_plan), first_wait=0)


def _work(port: int, env: Mapping[str, str], kill_plan: KillPlan) -> None:
    worker = workers.current()
    assert worker is not None
    counter = PointCounter(kill_plan.kill_point(worker.number), kill_plan.died)
    counter.arm()
    asyncio.run(_serve_with_others(worker, port, env, counter, kill_plan.up))


async def _serve_with_others(
    worker: workers.Worker, port: int, env: Mapping[str, str], counter: PointCounter, up: Path
) -> None:
    mediator = _mediator(env)
    server = await asyncio.start_server(
        partial(_answer, mediator, counter), "127.0.0.1", port, reuse_port=True
    )
    await worker.begin()
    with up.open("a", encoding="utf-8") as out:
        out.write(f"{worker.number}\n")
    await server.serve_forever()


async def _serve(listener: socket.socket, env: Mapping[str, str], counter: PointCounter) -> None:
    server = await asyncio.start_server(partial(_answer, _mediator(env), counter), sock=listener)
    await server.serve_forever()


def _mediator(env: Mapping[str, str]) -> Mediator:
    settings = Settings.of(
        {setting.name: env.get(setting.env, setting.default) for setting in SETTINGS}
    )
    return Mediator(settings, EventLog(lambda _: None), env)


async def _answer(
    mediator: Mediator,
    counter: PointCounter,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, path, _ = head[0].split(" ")
    headers = [
        (name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:-1])
    ]
    length = next(int(value) for name, value in headers if name.lower() == "content-length")
    request = Request(method, path, headers, await reader.readexactly(length))

    answering = asyncio.ensure_future(_exchange(mediator, counter, request, writer))
    leaving = asyncio.ensure_future(reader.read(1))
    await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if not answering.done():
        answering.cancel()  # as mitmproxy's host does where the runner has left
    with suppress(asyncio.CancelledError, ConnectionError, AnswerCutError):
        await answering
    writer.close()


async def _exchange(
    mediator: Mediator, counter: PointCounter, request: Request, writer: asyncio.StreamWriter
) -> None:
    admitted = mediator.admit(request)
    assert not isinstance(admitted, RunnerResponse)
    exchange = await mediator.exchange(admitted, request)
    assert isinstance(exchange, RunnerResponse)
    about = "".join(f"{name}: {value}\r\n" for name, value in exchange.headers)
    delivered = [exchange.on_delivered]
    if exchange.when_found is not None:  # The turn runs in another process
        exchange.when_found(lambda _, on_delivered: delivered.append(on_delivered))
    opening = f"HTTP/1.1 {exchange.status} Said\r\n{about}connection: close\r\n"
    writer.transport.set_write_buffer_limits(0)  # to wait until the kernel has all
    if exchange.streaming:
        writer.write(f"{opening}transfer-encoding: chunked\r\n\r\n".encode())
        try:
            async for chunk in exchange.chunks:
                counter.passes("before a chunk")
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
                counter.passes("behind a chunk")
        finally:
            close = getattr(exchange.chunks, "aclose", None)
            if close is not None:
                await close()
        writer.write(b"0\r\n\r\n")
    else:
        body = b"".join([chunk async for chunk in exchange.chunks])
        counter.passes("before a chunk")
        writer.write(f"{opening}\r\n".encode() + body)
    await writer.drain()
    if not exchange.streaming:
        counter.passes("behind a chunk")
    for on_delivered in filter(None, delivered):
        await on_delivered()
