"""``claw mcp-stdio``: one stdio MCP server, served as streamable HTTP.

Specification: docs/spec/mcp.md "The stdio wrapper".
"""

import asyncio
import hmac
import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from claw_contract.secret import Secret
from claw_contract.whole_numbers import whole_number
from claw_mcp.asgi import McpApp, is_allowed_host, is_allowed_origin
from claw_mcp.child_log import ChildLog
from claw_mcp.json_log import FaultHandler, JsonLog
from claw_mcp.listening import listen, serve
from claw_mcp.protocol import RpcMessage
from claw_mcp.server import MAX_BODY, StreamableHttpServer
from claw_mcp.stdio_backend import BROADCAST, StdioBackend
from claw_mcp.supervisor import ChildSupervisor, TimeLimits

_OURS: Final = ("CLAW_MCP_", "LISTEN_ADDR")
"""Beginnings of the names of variables that the server does not get."""
_CREDENTIAL_WORDS: Final = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")
_MAX_PORT = 65_535


@dataclass(frozen=True)
class WrapperSettings:
    """The settings of a wrapper, read from the environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    host: str = ""
    port: int = 8080
    path: str = "/mcp"
    allowed_hosts: frozenset[str] = frozenset()
    max_body: int = MAX_BODY
    token: Secret | None = None
    timing: TimeLimits = field(default_factory=TimeLimits)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def read_settings(environ: Mapping[str, str], command: Sequence[str] = ()) -> WrapperSettings:
    """Return the settings; ``command`` wins over that of the environment.

    Raise ``ValueError`` with one line.
    """
    read = partial(_read, environ)
    server = tuple(command)
    if not server:
        server = (read("COMMAND"), *_read_args(read("ARGS"), environ))
    if not server[0]:
        raise ValueError("no server: set CLAW_MCP_COMMAND, or name the command after '--'")

    host, port = _read_address(environ)
    timing = TimeLimits(
        call=_milliseconds(environ, "REQUEST_TIMEOUT_MS", TimeLimits.call),
        first_restart=_milliseconds(environ, "RESTART_BACKOFF_MS", TimeLimits.first_restart),
        max_restart=_milliseconds(environ, "RESTART_MAX_MS", TimeLimits.max_restart),
    )
    hosts = (each.strip().lower() for each in read("ALLOWED_HOSTS").split(","))
    allowed_hosts = frozenset(host for host in hosts if host)
    max_body = _number("CLAW_MCP_MAX_BODY", read("MAX_BODY") or read("MAX_BODY_BYTES"))
    token = read("AUTH_TOKEN")

    # The server gets neither our settings nor our token.
    server_environment = {
        name: value for name, value in environ.items() if not name.startswith(_OURS)
    }
    return WrapperSettings(
        command=server,
        environment=server_environment,
        host=host,
        port=port,
        path="/" + (read("PATH") or "mcp").strip("/"),
        allowed_hosts=allowed_hosts,
        max_body=max_body or MAX_BODY,
        token=Secret(token) if token else None,
        timing=timing,
    )


def _read(environ: Mapping[str, str], name: str) -> str:
    """Return a setting under our name, else under that of the original's wrapper."""
    return environ.get(f"CLAW_MCP_{name}") or environ.get(f"CLAW_MCP_STDIO_{name}") or ""


def _read_args(text: str, environ: Mapping[str, str]) -> list[str]:
    """Return the arguments. One that is null is in the variable ``CLAW_MCP_ARG_<its index>``.

    Raise ``ValueError``.
    """
    try:
        arguments = json.loads(text or "[]")
    except ValueError:
        arguments = None

    if isinstance(arguments, list):
        for index, argument in enumerate(arguments):
            if argument is None:
                arguments[index] = environ.get(f"CLAW_MCP_ARG_{index}")

    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ValueError('CLAW_MCP_ARGS is no JSON array of strings, such as ["-y", "some-server"]')
    return arguments


def _read_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return (host, port) to listen at. Raise ``ValueError``."""
    old_port = environ.get("CLAW_MCP_STDIO_PORT")
    old = environ.get("CLAW_MCP_STDIO_ADDR") or (f":{old_port}" if old_port else "")
    address = environ.get("LISTEN_ADDR") or old or ":8080"

    host, colon, port_text = address.rpartition(":")
    port = whole_number(port_text, _MAX_PORT)
    if not colon or port is None:
        raise ValueError(
            f"LISTEN_ADDR is {address!r}, which is no address such as ':8080' or '127.0.0.1:8080'"
        )
    return host.strip("[]"), port


def _number(name: str, text: str) -> int:
    """Return a setting as a number; 0 if it is not set. Raise ``ValueError``."""
    if not text:
        return 0

    number = whole_number(text)
    if not number:
        raise ValueError(f"{name} is {text!r}, which is no number above 0")
    return number


def _milliseconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return _number(f"CLAW_MCP_STDIO_{name}", _read(environ, name)) / 1000 or default


class WrapperLog(JsonLog, ChildLog):
    """The log of the wrapper, and of the server's own lines."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Redact the values of variables that are named like a credential."""
        secrets = []
        for name, value in environment.items():
            is_credential = any(word in name.upper() for word in _CREDENTIAL_WORDS)
            if is_credential and value:
                secrets.append(Secret(value))
        JsonLog.__init__(self, "mcp_wrapper", secrets)
        ChildLog.__init__(self, self.event, self.cut)

    def server_state(self, state: str, **members: Any) -> None:
        self.event("mcp_server", state=state, **self.short_reason(members))


class Wrapper:
    """One stdio server, and the application that serves it."""

    def __init__(self, settings: WrapperSettings) -> None:
        """Build all parts; ``supervisor`` is to be run."""
        self.log = WrapperLog(settings.environment)
        self.supervisor = ChildSupervisor(
            settings.command,
            settings.environment,
            self,
            self.log.server_state,
            settings.timing,
        )

        self._server = StreamableHttpServer(
            StdioBackend(self.supervisor),
            is_allowed_host=partial(is_allowed_host, allowed=settings.allowed_hosts),
            is_allowed_origin=partial(is_allowed_origin, allowed=settings.allowed_hosts),
            max_body=settings.max_body,
        )

        self._token = settings.token
        self.app = McpApp(
            self._server,
            settings.path,
            self._find_principal,
            lambda: {"ok": self.supervisor.is_ready},
        )

    def notice(self, message: RpcMessage) -> None:
        if message.method in BROADCAST:
            self._server.broadcast(message.method, bytes(message.params))

    def log_line(self, line: bytes) -> None:
        self.log.log_line(line)

    def bad_output(self, problem: str, line: bytes) -> None:
        self.log.bad_output(problem, line)

    def _find_principal(self, authorization: str) -> str | None:
        if self._token is None:
            return ""
        expected = f"Bearer {self._token.reveal()}"
        is_right = hmac.compare_digest(authorization.encode(), expected.encode())
        return "" if is_right else None


async def serve_wrapper(settings: WrapperSettings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; nothing of the server is left then."""
    wrapper = Wrapper(settings)
    logging.getLogger().addHandler(FaultHandler(wrapper.log))
    wrapper.log.state("listening", address=settings.address)
    try:
        await serve(wrapper.app, listener, wrapper.supervisor.run())
    finally:
        wrapper.log.state("stopped")


def main(command: Sequence[str] = ()) -> None:
    """Run the wrapper by the environment.

    Raise ``ValueError`` or ``OSError`` with one line if it can't start.
    """
    settings = read_settings(os.environ, command)
    asyncio.run(serve_wrapper(settings, listen(settings.host, settings.port)))
