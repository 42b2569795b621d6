"""``claw tools describe``: what a host offers, as a descriptor for the compiler
(docs/spec/tools-host.md "In a pod").

Rules. It has what can be called without more: no tool of a server that is internal. The same
settings and servers give the same bytes; a server that does not answer is an error, and not a
shorter descriptor.
"""

import asyncio
import json
from typing import Any, Final

from claw_tools.host import Host
from claw_tools.settings import Principal
from claw_tools.tool import Tool

DESCRIPTION: Final = (
    "Files, commands, memory, the web and messages, each agent in a workspace of its own"
)


async def describe(host: Host, seconds: float, *, is_offline: bool) -> str:
    """Return the descriptor; servers have so many seconds to list their tools.

    Raise ``ValueError`` for one that has not.
    """
    try:
        if is_offline:
            await host.list_providers()
        else:
            await _list_all(host, seconds)
        return _write(host)
    finally:
        await host.close()


async def _list_all(host: Host, seconds: float) -> None:
    running = asyncio.create_task(host.run())
    try:
        missing = await host.wait_for_lists(seconds)
    finally:
        running.cancel()
        await asyncio.wait([running])
    if missing:
        names = ", ".join(missing)
        raise ValueError(
            f"{names}: no list of tools within {seconds:g} s: see why above, or leave "
            "servers out by --offline"
        )


def _write(host: Host) -> str:
    tools = {tool.name: _entry(tool) for registry in host.registries for tool in registry.tools()}
    document = {
        "version": 2,
        "description": DESCRIPTION,
        "auth": _auth(host.settings.principals),
        "mcp": {"transport": "streamable_http", "path": host.settings.path},
        "tools": [tools[name] for name in sorted(tools)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": dict(sorted(tool.annotations.items())),
    }


def _auth(principals: tuple[Principal, ...]) -> dict[str, Any]:
    """Return how a caller authenticates; the variable of the token, where all
    principals have the same one.
    """
    variables = {each.token_variable for each in principals}
    return {
        "type": "bearer",
        **({"env": variables.pop()} if len(variables) == 1 and "" not in variables else {}),
    }
