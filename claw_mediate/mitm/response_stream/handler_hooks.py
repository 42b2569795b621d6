"""Hooks that the handler of a connection serves by itself.

mitmproxy asks all addons for each hook, and once more for the update of its flow. A stream has a
hook for each of its chunks, of which no addon is to know.
"""

from collections.abc import Coroutine
from typing import Any

from mitmproxy.proxy import commands, events, server


class HandlerHook(commands.StartHook):
    """A place in the steps of a layer, at which the connection's handler does something."""

    name = ""  # Subclasses have names of their own: only this one is not to be registered

    def serve(self, handler: server.ConnectionHandler) -> Coroutine[Any, Any, None]:
        """Return what is to be done, once the hook is reached."""
        raise NotImplementedError


async def complete(hook: HandlerHook, handler: server.ConnectionHandler) -> None:
    """Let the layer that waits for a blocking hook go on."""
    await handler.server_event(events.HookCompleted(hook))


_hook_task: Any = server.ConnectionHandler.hook_task


def take_hook(
    handler: server.ConnectionHandler, hook: commands.StartHook
) -> Coroutine[Any, Any, None]:
    """Return the task of a hook: its own, or mitmproxy's.

    It takes the place of ``ConnectionHandler.hook_task``.
    """
    if isinstance(hook, HandlerHook):
        return hook.serve(handler)
    task: Coroutine[Any, Any, None] = _hook_task(handler, hook)
    return task
