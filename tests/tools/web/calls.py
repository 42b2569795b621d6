"""Calls of web tools as the host makes them, and a record of what was really connected to."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claw_contract.toolhost_file import UrlPolicySection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.provider import CompositeToolProvider
from claw_tools.registry import ToolRegistry
from claw_tools.settings import Principal
from claw_tools.tool import Tool
from claw_tools.web.dialer import resolve
from claw_tools.web.fetch import WebFetch
from tests.raw import Act, Peer

LOCAL = "127.0.0.1"
_records: list[list[Any]] = []


def _record(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        for record in _records:
            record.append(args[1])


sys.addaudithook(_record)


@contextlib.contextmanager
def connections() -> Iterator[list[Any]]:
    """Yield a list of the addresses that this process connects to, as the
    interpreter itself reports them.
    """
    record: list[Any] = []
    _records.append(record)
    try:
        yield record
    finally:
        _records.remove(record)


async def call(tool: Tool, **args: Any) -> Any:
    """Return the result of a call through a registry."""
    registry = ToolRegistry(Principal("analyst", Path("/"), ("*",)), CompositeToolProvider())
    registry.register(tool)
    return await registry.execute(registry.find(tool.name), json.dumps(args))


async def fails(tool: Tool, **args: Any) -> ToolError:
    """Return the error of a call."""
    try:
        result = await call(tool, **args)
    except ToolError as error:
        return error
    raise AssertionError(f"it went well: {str(result)[:500]}")


async def refusal(tool: Tool, **args: Any) -> ErrorCode:
    """Return the code of a call that fails without connecting to anything."""
    with connections() as made:
        error = await fails(tool, **args)
    assert made == []
    return error.code


@contextlib.asynccontextmanager
async def serving(*script: Act) -> Any:
    peer = Peer(list(script))
    await peer.start()
    try:
        yield peer
    finally:
        await peer.stop()


def resolver(**hosts: list[str]) -> Any:
    """Return a resolver of these names; ``_`` stands for a dot.

    Another name is asked of the system.
    """
    table = {name.replace("_", "."): addresses for name, addresses in hosts.items()}

    def look_up(host: str, port: int) -> Any:
        if host not in table:
            return resolve(host, port)
        kinds = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in table[host]]
        return [
            (kind, socket.SOCK_STREAM, 6, "", (address, port))
            for kind, address in zip(kinds, table[host], strict=True)
        ]

    return look_up


def fetcher(
    *peers: Peer, look_up: Any = resolve, max_seconds: float = 30.0, **policy: Any
) -> WebFetch:
    """Return a ``web_fetch`` that may reach these peers on loopback."""
    ports = [80, 443, *(peer.port for peer in peers)]
    section = UrlPolicySection(**{"ports": ports, "allow_private": [LOCAL], **policy})
    return WebFetch(section, look_up, max_seconds)
