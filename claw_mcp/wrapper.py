"""``claw mcp-stdio``: one stdio MCP server, served as streamable HTTP (docs/spec/mcp.md "The stdio wrapper")."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import uvicorn

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp.protocol import Message
from claw_mcp.server import MAX_BODY, HttpRequest, HttpResponse, StreamableHttpServer
from claw_mcp.stdio_backend import BROADCAST, StdioBackend
from claw_mcp.supervisor import Supervisor, TimeLimits

_OURS: Final = ("CLAW_MCP_", "LISTEN_ADDR")
"""Variables that the server does not get."""
_CREDENTIAL_WORDS: Final = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")
_MAX_SHOWN = 200  # Bytes of a bad line that are logged
_MAX_LINES = 200  # Lines of the server that are logged in one second
_BODY_SECONDS = 30.0
_DRAIN_SECONDS = 2
_MAX_PORT = 65_535
_MAX_REASON = 1_000
_PORT = re.compile(r":[0-9]{1,5}\Z")
_LOOPBACK: Final = {"localhost", "127.0.0.1", "[::1]"}

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]


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
    """Return the settings; ``command`` wins over that of the environment. Raise ``ValueError`` with one line."""
    read = partial(_read, environ)
    server = tuple(command) or (read("COMMAND"), *_read_args(read("ARGS")))
    if not server[0]:
        raise ValueError("no server: set CLAW_MCP_COMMAND, or name the command after '--'")
    host, port = _read_address(environ)
    timing = TimeLimits(
        call=_milliseconds(environ, "REQUEST_TIMEOUT_MS", TimeLimits.call),
        first_restart=_milliseconds(environ, "RESTART_BACKOFF_MS", TimeLimits.first_restart),
        max_restart=_milliseconds(environ, "RESTART_MAX_MS", TimeLimits.max_restart),
    )
    token = read("AUTH_TOKEN")
    return WrapperSettings(
        command=server,
        environment={name: value for name, value in environ.items() if not name.startswith(_OURS)},
        host=host,
        port=port,
        path="/" + (read("PATH") or "mcp").strip("/"),
        allowed_hosts=frozenset(each.strip().lower() for each in read("ALLOWED_HOSTS").split(",") if each.strip()),
        max_body=_number("CLAW_MCP_MAX_BODY", read("MAX_BODY") or read("MAX_BODY_BYTES")) or MAX_BODY,
        token=Secret(token) if token else None,
        timing=timing,
    )


def _read(environ: Mapping[str, str], name: str) -> str:
    """Return a setting under our name, else under that of the original's wrapper."""
    return environ.get(f"CLAW_MCP_{name}") or environ.get(f"CLAW_MCP_STDIO_{name}") or ""


def _read_args(text: str) -> list[str]:
    try:
        arguments = json.loads(text or "[]")
    except ValueError:
        arguments = None
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ValueError('CLAW_MCP_ARGS is no JSON array of strings, such as ["-y", "some-server"]')
    return arguments


def _read_address(environ: Mapping[str, str]) -> tuple[str, int]:
    old_port = environ.get("CLAW_MCP_STDIO_PORT")
    old = environ.get("CLAW_MCP_STDIO_ADDR") or (f":{old_port}" if old_port else "")
    address = environ.get("LISTEN_ADDR") or old or ":8080"
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"LISTEN_ADDR is {address!r}, which is no address such as ':8080' or '127.0.0.1:8080'")
    return host.strip("[]"), int(port)


def _number(name: str, text: str) -> int:
    if text and not (text.isdecimal() and int(text) > 0):
        raise ValueError(f"{name} is {text!r}, which is no number above 0")
    return int(text or 0)


def _milliseconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return _number(f"CLAW_MCP_STDIO_{name}", _read(environ, name)) / 1000 or default


class WrapperLog:
    """The log on stdout, one JSON object a line; of the server's own lines at most a number in each second."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Redact the credentials of the environment, which the names of their variables tell."""
        names = [name for name in environment if any(word in name.upper() for word in _CREDENTIAL_WORDS)]
        self._redactor = Redactor([Secret(environment[name]) for name in names if environment[name]])
        self._second, self._lines, self._dropped = 0, 0, 0

    def event(self, kind: str, **members: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"ts": now, "type": kind, **members}, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.buffer.write(self._redactor.document(line.encode(errors="replace")) + b"\n")
        sys.stdout.buffer.flush()

    def server_state(self, state: str, **members: Any) -> None:
        self.event("mcp_server", state=state, **members)

    def log_line(self, line: bytes) -> None:
        self._limited("mcp_stderr", line=line.decode(errors="replace").rstrip("\r"))

    def bad_output(self, problem: str, line: bytes) -> None:
        self._limited("mcp_bad_output", reason=problem, line=line[:_MAX_SHOWN].decode(errors="replace").rstrip())

    def _limited(self, kind: str, **members: Any) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= _MAX_LINES:
            self.event(kind, **members)
            return
        if not self._dropped:
            asyncio.get_running_loop().call_later(1, self._report_dropped)
        self._dropped += 1

    def _report_dropped(self) -> None:
        lines, self._dropped = self._dropped, 0
        self.event("mcp_lines_dropped", lines=lines)


class FaultHandler(logging.Handler):
    """Writes what Python's own log has to say as lines of ours."""

    def __init__(self, log: WrapperLog) -> None:
        """Write warnings and errors to ``log``."""
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._log.event("mcp_wrapper", state="fault", reason=f"{record.getMessage()}{error}"[:_MAX_REASON])


class WrapperApp:
    """The ASGI application: the MCP server at its path, and ``/health``."""

    def __init__(self, settings: WrapperSettings) -> None:
        """Build all parts; ``supervisor`` is to be run."""
        self.settings, self.log = settings, WrapperLog(settings.environment)
        command, environment = settings.command, settings.environment
        self.supervisor = Supervisor(command, environment, self, self.log.server_state, settings.timing)
        self.server = StreamableHttpServer(
            StdioBackend(self.supervisor),
            is_allowed_host=self._is_allowed_host,
            is_allowed_origin=lambda origin: self._is_allowed_host(origin.partition("://")[2]),
            max_body=settings.max_body,
        )

    def notice(self, message: Message) -> None:
        if message.method in BROADCAST:
            self.server.broadcast(message.method, bytes(message.params))

    def log_line(self, line: bytes) -> None:
        self.log.log_line(line)

    def bad_output(self, problem: str, line: bytes) -> None:
        self.log.bad_output(problem, line)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and stop when the client leaves."""
        if scope["type"] != "http":
            return
        if scope["path"] in {"/health", "/healthz"}:
            is_ready = self.supervisor.is_ready
            await _write(send, 200 if is_ready else 503, json.dumps({"ok": is_ready}).encode())
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if scope["path"] != self.settings.path:
            await _write(send, 404, b'{"error":"not found"}')
            return
        if not self._is_authorized(dict(headers).get("authorization", "")):
            await _write(send, 401, b'{"error":"the bearer token is missing or wrong"}', [(b"www-authenticate", b"Bearer")])
            return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await _read_body(receive, self.settings.max_body)
        except TimeoutError:
            await _write(send, 408, b'{"error":"the body did not arrive in time"}')
            return
        if body is not None:
            await self._exchange(HttpRequest(scope["method"], scope["path"], headers, body), receive, send)

    async def _exchange(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        answering = asyncio.create_task(self._answer(request, send))
        leaving = asyncio.create_task(_wait_for_end(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})
        if not answering.cancelled():
            answering.result()

    async def _answer(self, request: HttpRequest, send: Send) -> None:
        await _send(await self.server.handle(request), send)

    def _is_allowed_host(self, host: str) -> bool:
        name = _PORT.sub("", host.lower())
        return host.lower() in self.settings.allowed_hosts or name in _LOOPBACK

    def _is_authorized(self, authorization: str) -> bool:
        token = self.settings.token
        return token is None or hmac.compare_digest(authorization.encode(), f"Bearer {token.reveal()}".encode())


async def _read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the body, cut after the first byte too many; None where the client left."""
    body = bytearray()
    while len(body) <= max_bytes:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body[: max_bytes + 1])


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    length = str(len(body)).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _send(response: HttpResponse, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    async with contextlib.aclosing(response.chunks) as chunks:  # type: ignore[type-var]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def listen(settings: WrapperSettings) -> socket.socket:
    """Return the listening socket. Raise ``OSError`` where the address can't be used."""
    is_dual = not settings.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in settings.host else socket.AF_INET
    # With TCP named: else asyncio does not turn off Nagle's algorithm, and small answers wait.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_dual:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, settings.address) from None
    return listener


async def serve(settings: WrapperSettings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; nothing of the server is left then."""
    app = WrapperApp(settings)
    logging.getLogger().addHandler(FaultHandler(app.log))
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    config = uvicorn.Config(app, lifespan="off", ws="none", timeout_graceful_shutdown=_DRAIN_SECONDS, **quiet)
    server = _Uvicorn(config)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    supervising = asyncio.create_task(app.supervisor.run())
    serving = asyncio.create_task(server.serve([listener]))
    app.log.event("mcp_wrapper", state="listening", address=settings.address)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({supervising, serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await app.server.close()
    supervising.cancel()
    ends = await asyncio.gather(supervising, serving, return_exceptions=True)
    app.log.event("mcp_wrapper", state="stopped")
    for failure in ends:
        if isinstance(failure, Exception):
            raise failure


def main(command: Sequence[str] = ()) -> None:
    """Run the wrapper by the environment. Raise ``ValueError`` or ``OSError`` with one line where it can't start."""
    settings = read_settings(os.environ, command)
    asyncio.run(serve(settings, listen(settings)))
