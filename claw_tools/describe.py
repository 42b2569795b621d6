"""``claw tools describe`` and ``claw tools check``: what a host offers.

Specification: docs/spec/tools-host.md "In a pod".

Rules. The descriptor for the compiler has what can be called without more: no tool of a server that
is internal. The same settings and servers give the same bytes; a server that does not answer is an
error, and does not make the descriptor shorter. The check names every tool, and says why one is
missing.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

from claw_tools.host import Host, ToolState
from claw_tools.registry import matches_any
from claw_tools.settings import Principal
from claw_tools.tool import Tool

DESCRIPTION: Final = (
    "Files, commands, memory, the web and messages, each agent in a workspace of its own"
)


async def describe(host: Host, seconds: float, *, is_offline: bool) -> str:
    """Return the descriptor as JSON text, and close the host.

    Raise ``ValueError`` for servers that have not listed their tools within ``seconds``.
    """
    try:
        if is_offline:
            await host.list_providers()
        else:
            await _list_all(host, seconds)
        return _write_descriptor(host)
    finally:
        await host.close()


def report_tools(host: Host) -> tuple[list[str], bool]:
    """Return a line for each tool and server.

    The second value is False if a tool that the settings ask for can't be had.
    """
    rows = [*_built_in_rows(host), *_provided_rows(host), *_server_rows(host)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" for name, text in rows]
    is_sound = not any(state.is_fault for state in host.states)
    return lines, is_sound


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


def _write_descriptor(host: Host) -> str:
    entries = {tool.name: _entry(tool) for registry in host.registries for tool in registry.tools()}
    document = {
        "version": 2,
        "description": DESCRIPTION,
        "auth": _auth(host.settings.principals),
        "mcp": {"transport": "streamable_http", "path": host.settings.listen.path},
        "tools": [entries[name] for name in sorted(entries)],
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
    """Return how a caller authenticates.

    ``env`` is the variable of the token, if all principals have the same one.
    """
    auth: dict[str, Any] = {"type": "bearer"}
    variables = {principal.token_variable for principal in principals}
    if len(variables) == 1 and "" not in variables:
        auth["env"] = variables.pop()
    return auth


def _built_in_rows(host: Host) -> Iterator[tuple[str, str]]:
    for tool in dict.fromkeys(state.tool for state in host.states):
        principals_by_text: dict[str, list[str]] = {}
        for state in host.states:
            if state.tool == tool:
                text = _state_text(host, state)
                principals_by_text.setdefault(text, []).append(state.principal)

        if len(principals_by_text) == 1:
            yield tool, next(iter(principals_by_text))
            continue
        parts = [
            f"{', '.join(principals)}: {text}" for text, principals in principals_by_text.items()
        ]
        yield tool, "; ".join(parts)


def _state_text(host: Host, state: ToolState) -> str:
    if state.reason:
        return f"not registered: {state.reason}"

    form = host.containment_of(state.tool)
    text = f"registered ({form})" if form else "registered"
    for principal in host.settings.principals:
        is_hidden = not matches_any(principal.globs, state.tool)
        if principal.name == state.principal and is_hidden:
            return f"{text}, but hidden: no glob names it"
    return text


def _provided_rows(host: Host) -> Iterator[tuple[str, str]]:
    for tool, _ in host.shell.provided.tools():
        yield tool.name, "registered, by an installed package"


def _server_rows(host: Host) -> Iterator[tuple[str, str]]:
    for name, section in host.settings.tools.mcp_servers.items():
        kind = "seen by globs"
        if section.internal_only:
            kind = "internal: seen where a request asks for it by claw/allowedTools"
        yield f"{name}__*", f"an MCP server's, not started by this check; {kind}"
