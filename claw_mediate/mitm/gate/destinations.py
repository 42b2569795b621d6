"""The addresses that ungoverned connections may lead to (decision 0024).

They are global ones, and those in networks that the operator opens. What is checked is the address
that is dialled, and not the one that a name had a moment before: the check is in the loop's
resolver, for the task that dials. What the configuration names is not checked: a provider, another
proxy of ``--mode``.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from claw_contract.addresses import Address, Network, classify_address, is_in
from claw_mediate.mitm.addon_state import canonical

_PORTS: Final = {"http": 80, "https": 443}
_PRIVATE: Final = "its address is private, and CLLAMA_EGRESS_NETWORKS does not open it"
_CLOSED: Final = "its address is of a special kind, which nobody may reach"

_networks_of_dial: ContextVar[Collection[Network] | None] = ContextVar(
    "networks_of_dial", default=None
)
"""The private networks that this task may dial; None where nothing is checked."""


class ClosedAddressError(OSError):
    """The name leads only to addresses that nobody may reach. The message is half a sentence."""


def find_refusal(host: str, networks: Iterable[Network]) -> str | None:
    """Return why nobody may connect to this host, if it is an address.

    Return None for a name, and for an address that is open.
    """
    try:
        address = ip_address(canonical(host))
    except ValueError:
        return None
    return _refuse(address, networks)


def _refuse(address: Address, networks: Iterable[Network]) -> str | None:
    """Return why nobody may connect to an address; None for one that is open."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address
    match classify_address(address):
        case "global":
            return None
        case "metadata":
            return _CLOSED
        case "private" | "special" as kind:
            if is_in(address, networks):
                return None
            return _PRIVATE if kind == "private" else _CLOSED


def is_refusal(error: str) -> bool:
    """Return whether the error of a connection is one of these refusals."""
    return error in {_PRIVATE, _CLOSED}


def check_dial(networks: Collection[Network]) -> None:
    """Check every address that this task looks up from now on."""
    _networks_of_dial.set(networks)


def install_check(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop's resolver leave out addresses that the asking task may not dial."""
    resolve = loop.getaddrinfo

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> list[Any]:
        found = await resolve(host, port, **options)
        networks = _networks_of_dial.get()
        if networks is None:
            return found

        open_places = []
        first_refusal = ""
        for each in found:
            address = str(each[4][0]).partition("%")[0]  # without the zone of IPv6
            refusal = _refuse(ip_address(address), networks)
            if refusal is None:
                open_places.append(each)
            else:
                first_refusal = first_refusal or refusal

        if not open_places:
            raise ClosedAddressError(first_refusal or _CLOSED)
        return open_places

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]


def endpoint(url: str) -> tuple[str, int] | None:
    """Return host and port of a base URL; None for what is none."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None

    if not parts.hostname or not port:
        return None
    return canonical(parts.hostname), port
