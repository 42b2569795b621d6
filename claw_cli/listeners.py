"""The addresses that the proxy listens on: who has a port, and what the proxy says of itself there."""

from __future__ import annotations

import errno
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

_SECONDS = 2
_MAX_BYTES = 1024
_LISTENS = "0A"
"""TCP_LISTEN, as /proc/net/tcp has it."""


@dataclass(frozen=True)
class Listener:
    """An address of this machine; an empty host is all of them."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The base URL by which this machine reaches it."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104 - nothing is bound to it
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def problem(self) -> str | None:
        """Return why nobody can listen here now, one clause; None where the port is free."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((self.host, self.port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return f"taken by {_process(self.port) or 'a process that is not shown to you'}"
                return f"{self.host or 'it'} can't be listened on: {error.strerror or error}"
            except UnicodeError:
                return f"{self.host!a} is no host"
        return None


def listener(text: str) -> Listener | None:
    """Return the address that ``HOST:PORT`` or ``:PORT`` names; None where it names none."""
    host, _, port = text.rpartition(":")
    if not (port.isdecimal() and port.isascii() and 0 < int(port) < 65536):  # noqa: PLR2004 - a TCP port
        return None
    return Listener(host.removeprefix("[").removesuffix("]"), int(port))


def proxy_status(address: Listener) -> int | None:
    """Return the status of the proxy's /ready; None where no proxy of ours answers /health."""
    if _get(f"{address.url}/health") != (200, {"ok": True}):
        return None
    return _get(f"{address.url}/ready")[0]


def _get(url: str) -> tuple[int, object]:
    """Return status and JSON; 0 and None where nobody answers in HTTP and JSON. No proxy of the environment is asked."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=_SECONDS) as response:
            return response.status, json.loads(response.read(_MAX_BYTES))
    except HTTPError as error:
        with error:
            return error.code, None
    except (OSError, ValueError, HTTPException, RecursionError):
        return 0, None


def _process(port: int) -> str | None:
    """Return the process that listens on a port; None where this system does not show it to us."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with suppress(OSError):  # it is closed by now, or somebody else's
            if str(descriptor.readlink()) in sockets:
                process = descriptor.parents[1]
                return f"{(process / 'comm').read_text('utf-8', 'replace').strip()} (pid {process.name})"
    return None


def _listening(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a port."""
    lines: list[str] = []
    for file in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if file.exists():
            lines += file.read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    return [each[9] for each in fields if each[3] == _LISTENS and each[1].endswith(f":{port:04X}")]
