"""Which addresses may be connected to (docs/spec/tools-host.md "web_fetch").

Rules. An address must be global, and no form of IPv6 that holds an address of IPv4. A host that the operator names may also be
private or loopback. Addresses of metadata services, and all that are link-local, are closed to everybody. (``is_global`` alone
is not enough: it is true of multicast, NAT64, 168.63.129.16 and others.)
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

type Address = IPv4Address | IPv6Address
type _Networks = tuple[IPv4Network | IPv6Network, ...]


def _networks(*names: str) -> _Networks:
    return tuple(ip_network(name) for name in names)


_METADATA: Final = _networks(
    *("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),  # AWS and most; Alibaba; Azure; Oracle
    *("fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128"),  # AWS, Google
    *("fd00:42::42/128", "fd00:c1::a9fe:a9fe/128"),  # Scaleway, …
)
_PRIVATE: Final = _networks(
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15"),
    *("::1/128", "fc00::/7"),
)
"""The addresses that ``allow_private`` opens for a host."""
_CLOSED: Final = _networks(
    *("192.88.99.0/24", "192.0.0.0/24"),
    *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/23", "2002::/16"),  # IPv4 within
    *("100::/64", "3fff::/20", "5f00::/16", "fec0::/10"),
)
"""Addresses that are closed although Python may call them global."""


def find_refusal(address: Address, *, allow_private: bool) -> str | None:
    """Return why nobody may connect to this address, as half a sentence; None if it is open."""
    if _is_in(address, _METADATA):
        return "is link-local or a metadata service, which no setting opens"
    if _is_in(address, _PRIVATE):
        return None if allow_private else "is private: an operator can open it with url_policy.allow_private"
    is_open = address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
    return None if is_open and not _is_in(address, _CLOSED) else "is of a special kind, which is not fetched from"


def _is_in(address: Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)
