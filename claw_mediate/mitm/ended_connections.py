"""Ended connections are taken apart, so that their memory is free at once (decision 0037).

mitmproxy's layers refer to each other in circles: to their stack, to their own methods as their
state. With each connection some fifty objects stay until the garbage collector finds them, and with
them the bodies of its requests. While they wait, they make each collection longer, and all turns
wait for a collection.

A stream is taken apart when HTTP has dropped it, a connection when its tasks have ended. If a hook
is still under way, because the runner has left in the middle of a turn, the connection is looked at
again until the hook has ended.

This is speed and not safety: a mitmproxy that is built differently is left as it is.
"""

import asyncio
from collections.abc import Iterator
from types import MethodType
from typing import Any, Final

from mitmproxy import connection
from mitmproxy.proxy import context, events, layer, mode_servers

type _Handler = mode_servers.ProxyConnectionHandler
_handle_client: Any = mode_servers.ProxyConnectionHandler.handle_client
_handle_connection: Any = mode_servers.ProxyConnectionHandler.handle_connection

_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 600.0
"""Seconds between two looks at a connection whose hook is under way; the pause doubles.

Mostly the hook is cancelled and ends at once; a write of its turn may take longer. One whose hook
does not end at all is left to the collector.
"""


class _EndedLayer:
    """The layer of a connection that was taken apart: nothing happens any more."""

    def handle_event(self, _event: events.Event) -> Iterator[Any]:
        return iter(())


_ENDED: Any = _EndedLayer()


def install() -> None:
    """Take connections apart that end from now on."""
    if not {"_paused", "context"} <= layer.Layer.__annotations__.keys():
        return
    handler: Any = mode_servers.ProxyConnectionHandler
    handler.handle_client = _handle_client_to_the_end
    handler.handle_connection = _handle_connection_to_the_end


async def _handle_connection_to_the_end(handler: _Handler, of: connection.Connection) -> None:
    try:
        await _handle_connection(handler, of)
    except asyncio.CancelledError as error:
        # mitmproxy's frame keeps the error, whose traceback leads to the frame.
        error.__traceback__ = None
        raise


async def _handle_client_to_the_end(handler: _Handler) -> None:
    try:
        await _handle_client(handler)
    finally:
        if handler.client.transport_protocol == "tcp":
            take_apart(handler)


def take_apart(handler: Any, pause: float = _FIRST_PAUSE) -> None:
    """Free the layers of a connection without transports.

    If one of them waits for a hook, look again after ``pause`` seconds.
    """
    layers = _all_layers(handler.layer)
    if any(each._paused for each in layers):  # noqa: SLF001
        if pause <= _LAST_PAUSE:
            asyncio.get_running_loop().call_later(pause, take_apart, handler, 2 * pause)
        return
    if handler.transports:
        return

    handler.layer = _ENDED
    handler.timeout_watchdog.callback = None
    for each in layers:
        take_layer_apart(each)


def take_layer_apart(ended: layer.Layer) -> None:
    """Free what a layer holds. No event must reach it from now on."""
    ended.context.layers.clear()
    vars(ended).clear()


def _all_layers(top: layer.Layer) -> list[layer.Layer]:
    """Return a layer and all that it leads to."""
    found = {top: None}  # A dict, which keeps their order
    pending = [top]
    while pending:
        for value in vars(pending.pop()).values():
            for each in _layers_of(value):
                if each not in found and vars(each):  # One that was taken apart is empty.
                    found[each] = None
                    pending.append(each)
    return [*found]


def _layers_of(value: Any) -> Iterator[layer.Layer]:
    match value:
        case layer.Layer():
            yield value
        case MethodType():
            yield from _layers_of(value.__self__)
        case context.Context():
            yield from value.layers
        case dict():
            yield from (each for each in value.values() if isinstance(each, layer.Layer))
