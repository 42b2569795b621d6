"""A process that hosts the real mediator and nothing else: a start costs a fork, not a mitmdump.

Its parent owns the listener, so a runner that tries again waits for the next life. The steps of mitmproxy's host with an
exchange (``mitm/addon.py``) are done here in the same order.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.http import client
from claw_mediate.mediator import Mediator
from claw_mediate.settings import SETTINGS, Settings
from claw_mediate.telemetry.event_log import EventLog
from tests.crash.faults import Doom, Fate

_TLS = client.tls_context()
"""The TLS context, made before the first fork: nothing here speaks TLS, and making it takes longer than the rest of a start."""


def live(listener: socket.socket, env: Mapping[str, str], doom: Doom | None, died: Path) -> None:
    """Serve until the process dies."""
    client.tls_context = lambda: _TLS  # in this copy of the process only
    fate = Fate(doom, died)
    fate.arm()
    asyncio.run(_serve(listener, env, fate))


async def _serve(listener: socket.socket, env: Mapping[str, str], fate: Fate) -> None:
    settings = Settings.of({setting.name: env.get(setting.env, setting.default) for setting in SETTINGS})
    mediator = Mediator(settings, EventLog(lambda _: None), env)
    server = await asyncio.start_server(partial(_answer, mediator, fate), sock=listener)
    await server.serve_forever()


async def _answer(mediator: Mediator, fate: Fate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, path, _ = head[0].split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:-1])]
    length = next(int(value) for name, value in headers if name.lower() == "content-length")
    request = Request(method, path, headers, await reader.readexactly(length))
    admitted = mediator.admit(request)
    assert not isinstance(admitted, RunnerResponse)
    exchange = await mediator.exchange(admitted, request)
    assert isinstance(exchange, RunnerResponse)
    about = "".join(f"{name}: {value}\r\n" for name, value in exchange.headers)
    opening = f"HTTP/1.1 {exchange.status} Said\r\n{about}connection: close\r\n\r\n".encode()
    if exchange.streaming:
        writer.write(opening)
        async for chunk in exchange.chunks:
            fate.passes("before a chunk")
            writer.write(chunk)
            await writer.drain()
            fate.passes("behind a chunk")
        await _handed(exchange)
    else:
        body = b"".join([chunk async for chunk in exchange.chunks])
        await _handed(exchange)
        fate.passes("before a chunk")
        writer.write(opening + body)
        await writer.drain()
        fate.passes("behind a chunk")
    writer.close()


async def _handed(exchange: RunnerResponse) -> None:
    if exchange.on_delivered is not None:
        await exchange.on_delivered()
