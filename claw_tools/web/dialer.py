"""Connections to hosts whose addresses were vetted (docs/spec/tools-host.md "web_fetch").

Nothing else in this package opens a connection.

Rules. A name is resolved once for a connection; if one of its addresses is refused, all are. The
connection is made to an address that was vetted, never to a name, so a resolver that changes its
answer changes nothing. An address must be global, and no form of IPv6 that holds an address of
IPv4. A host that the operator names may also be private or loopback. Addresses of metadata
services, and all that are link-local, are closed to everybody. No proxy of the environment is used.
TLS verifies the name.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

import httpx2

from claw_contract.addresses import Address, classify_address
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.urls import OutboundUrl

type Resolver = Callable[[str, int], Sequence[Any]]
"""``(host, port)`` → what ``socket.getaddrinfo`` returns; it raises ``OSError``."""
type Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_MAX_ADDRESSES: Final = 4  # Addresses of one name that are tried
_CONNECT_SECONDS: Final = 5.0  # For each address
_RESOLVING = ThreadPoolExecutor(16, "resolver")
"""Threads of our own: names that take long to resolve must not keep others from the loop's."""


class UnreachableError(Exception):
    """There is no connection, and nothing was sent.

    The message is half a sentence without an address.
    """


def resolve(host: str, port: int) -> Sequence[Any]:
    """Return the addresses of a name, as the system knows them."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def find_refusal(address: Address, *, allow_private: bool) -> str | None:
    """Return why nobody may connect to this address, as half a sentence; None if it is open."""
    match classify_address(address):
        case "metadata":
            return "is link-local or a metadata service, which no setting opens"
        case "private":
            if allow_private:
                return None
            return "is private: an operator can open it with url_policy.allow_private"
        case "special":
            return "is of a special kind, which is not fetched from"
        case "global":
            return None


class Dialer:
    """Opens connections; ``allow_private`` are the hosts whose addresses may be private."""

    def __init__(self, allow_private: frozenset[str], resolver: Resolver = resolve) -> None:
        """Take hosts as ``normalize_host`` spells them."""
        self._allow_private = allow_private
        self._resolver = resolver

    async def connect(self, url: OutboundUrl) -> Streams:
        """Return a connection to the URL's host.

        Raise ``ToolError`` with PERMISSION_DENIED, or ``UnreachableError``.
        """
        *first, last = await self._find_addresses(url)
        for address in first:
            with suppress(UnreachableError):
                return await _dial(address, url)
        return await _dial(last, url)

    async def _find_addresses(self, url: OutboundUrl) -> list[Address]:
        """Return the vetted addresses of a host, one at least, and not too many."""
        own = url.address
        addresses = [own] if own is not None else await self._resolve(url)
        for address in addresses:
            refusal = find_refusal(address, allow_private=url.host in self._allow_private)
            if refusal is not None:
                raise ToolError(ErrorCode.PERMISSION_DENIED, f"an address of this host {refusal}.")
        return addresses[:_MAX_ADDRESSES]

    async def _resolve(self, url: OutboundUrl) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(_RESOLVING, self._resolver, url.host, url.port)
            addresses = [ip_address(answer[4][0]) for answer in answers]
        except (OSError, ValueError):
            addresses = []
        if not addresses:
            raise UnreachableError("its name has no address")
        return list(dict.fromkeys(addresses))


async def _dial(address: Address, url: OutboundUrl) -> Streams:
    is_tls = url.scheme == "https"

    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(
                str(address),
                url.port,
                ssl=_tls_context() if is_tls else None,
                server_hostname=url.host if is_tls else None,
            )
    except ssl.SSLCertVerificationError:
        raise UnreachableError("its certificate is not valid for this name") from None
    except OSError:  # A time-out, too
        raise UnreachableError("it can't be connected to") from None


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    context = httpx2.create_ssl_context()  # By SSL_CERT_FILE and SSL_CERT_DIR
    context.set_alpn_protocols(["http/1.1"])
    return context
