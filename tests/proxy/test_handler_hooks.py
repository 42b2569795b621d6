"""Hooks of ours, which no addon hears of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from mitmproxy import options
from mitmproxy.proxy import commands, context, events, server
from mitmproxy.proxy.layers.http import HttpRequestHook

from claw_mediate.mitm.flow_state import ChunkSource
from claw_mediate.mitm.response_stream.handler_hooks import take_hook
from claw_mediate.mitm.response_stream.layer import DoorChunkHook, DoorPieceHook
from tests.proxy.looking import tflow


class Handler(server.ConnectionHandler):
    """A connection's handler that notes which hooks its addons hear of, and what is completed."""

    def __init__(self) -> None:
        super().__init__(context.Context(tflow.tclient_conn(), options.Options()))
        self.timeout_watchdog.timeout = 60
        self.heard: list[str] = []
        self.completed: list[commands.StartHook] = []

    async def handle_hook(self, hook: commands.StartHook) -> None:
        self.heard.append(hook.name)

    async def server_event(self, event: events.Event) -> None:
        assert isinstance(event, events.HookCompleted)
        self.completed.append(event.command)


async def chunks() -> AsyncIterator[bytes]:
    yield b"one"
    await asyncio.sleep(0)
    yield b"two"


@pytest.mark.requirement("dispatch:same")
async def test_a_chunk_is_pulled_without_any_addon() -> None:
    handler = Handler()
    source = ChunkSource(chunks())
    pulled: list[bytes] = []
    while not source.has_ended:
        await take_hook(handler, DoorChunkHook(source))
        pulled.append(source.ready)
    assert b"".join(pulled) == b"onetwo"
    assert handler.heard == []
    assert len(handler.completed) == len(pulled)


@pytest.mark.requirement("dispatch:same")
async def test_any_other_hook_is_for_the_addons() -> None:
    handler = Handler()
    await take_hook(handler, DoorPieceHook(tflow.tflow()))
    assert handler.heard == []
    hook = HttpRequestHook(tflow.tflow())
    await take_hook(handler, hook)
    assert handler.heard == ["request"]
    assert handler.completed[1:] == [hook]


@pytest.mark.requirement("dispatch:same")
async def test_a_connection_is_not_idle_while_a_chunk_is_waited_for() -> None:
    handler = Handler()
    go = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await go.wait()
        yield b"late"

    pulling = asyncio.ensure_future(take_hook(handler, DoorChunkHook(ChunkSource(late()))))
    await asyncio.sleep(0)
    assert not handler.timeout_watchdog.can_timeout.is_set()
    go.set()
    await pulling
    assert handler.timeout_watchdog.can_timeout.is_set()
