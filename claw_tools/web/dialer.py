"""Connections to hosts whose addresses were vetted.

Nothing else in this package opens a connection.

Rules. A name is resolved once for a connection; if one of its addresses is refused, all are. What
is connected to is an address that was vetted, never a name, so a resolver that changes its answer
changes nothing. No proxy of the environment is used. TLS verifies the name.
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

from claw_contract.addresses import Address
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.addresses import find_refusal
from claw_tools.web.urls import OutboundUrl

type Resolver = Callable[[str, int], Sequence[Any]]
"""``(host, port)`` → what ``socket.getaddrinfo`` returns; it raises ``OSError``."""
type Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_MAX_ADDRESSES: Final = 4  # That are tried
_CONNECT_SECONDS: Final = 5.0  # For each of them
_RESOLVING = ThreadPoolExecutor(16, "resolver")
"""Threads of our own: names that take long to resolve must not keep others from the loop's."""


class UnreachableError(Exception):
    """There is no connection, and nothing was sent.

    The message is half a sentence without an address.
    """


def resolve(host: str, port: int) -> Sequence[Any]:
    """Return the addresses of a name, as the system knows them."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    context = httpx2.create_ssl_context()  # By SSL_CERT_FILE and SSL_CERT_DIR
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    """Opens connections; ``allow_private`` are the hosts whose addresses may be private."""

    def __init__(self, allow_private: frozenset[str], resolver: Resolver = resolve) -> None:
        """Take hosts as ``normalize_host`` spells them."""
        self._allow_private, self._resolver = allow_private, resolver

    async def connect(self, url: OutboundUrl) -> Streams:
        """Return a connection to the URL's host.

        Raise ``ToolError`` with PERMISSION_DENIED, or ``UnreachableError``.
        """
        addresses = await self._find_addresses(url)
        for address in addresses[:-1]:
            with suppress(UnreachableError):
                return await _dial(address, url)
        return await _dial(addresses[-1], url)

    async def _find_addresses(self, url: OutboundUrl) -> list[Address]:
        if (address := url.address) is not None:
            found = [address]
        else:
            found = await self._resolve(url)
        for each in found:
            refusal = find_refusal(each, allow_private=url.host in self._allow_private)
            if refusal is not None:
                raise ToolError(ErrorCode.PERMISSION_DENIED, f"an address of this host {refusal}.")
        return found[:_MAX_ADDRESSES]

    async def _resolve(self, url: OutboundUrl) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(_RESOLVING, self._resolver, url.host, url.port)
            found = [ip_address(answer[4][0]) for answer in answers]
        except (OSError, ValueError):
            found = []
        if not found:
            raise UnreachableError("its name has no address")
        return list(dict.fromkeys(found))


async def _dial(address: Address, url: OutboundUrl) -> Streams:
    tls, name = (_tls_context(), url.host) if url.scheme == "https" else (None, None)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(
                str(address), url.port, ssl=tls, server_hostname=name
            )
    except ssl.SSLCertVerificationError:
        raise UnreachableError("its certificate is not valid for this name") from None
    except OSError:  # A time-out, too
        raise UnreachableError("it can't be connected to") from None
