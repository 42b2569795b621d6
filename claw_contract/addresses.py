"""The kinds of addresses, for whoever connects where an agent says.

``is_global`` of Python alone is not enough: it is true of multicast, NAT64, 168.63.129.16 and
others.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, Literal

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network
type AddressKind = Literal["global", "private", "metadata", "special"]
"""``private``: also loopback, and addresses of a carrier.

``metadata``: all that are link-local, and metadata services. ``special``: multicast, unspecified,
reserved, and forms of IPv6 that hold an address of IPv4.
"""


def _networks(*names: str) -> tuple[Network, ...]:
    return tuple(ip_network(name) for name in names)


_METADATA: Final = _networks(
    *(
        "169.254.0.0/16",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    ),  # AWS and most; Alibaba; Azure; Oracle
    *("fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128"),  # AWS, Google
    *("fd00:42::42/128", "fd00:c1::a9fe:a9fe/128"),  # Scaleway, …
)
_PRIVATE: Final = _networks(
    *(
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "127.0.0.0/8",
        "100.64.0.0/10",
        "198.18.0.0/15",
    ),
    *("::1/128", "fc00::/7"),
)
_SPECIAL: Final = _networks(
    *("192.88.99.0/24", "192.0.0.0/24"),
    *(
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/23",
        "2002::/16",
    ),  # IPv4 within
    *("100::/64", "3fff::/20", "5f00::/16", "fec0::/10"),
)
"""Addresses that Python may call global."""


def classify_address(address: Address) -> AddressKind:
    """Return the kind of an address."""
    if is_in(address, _METADATA):
        return "metadata"
    if is_in(address, _PRIVATE):
        return "private"

    is_odd = (
        address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or is_in(address, _SPECIAL)
    )
    return "global" if address.is_global and not is_odd else "special"


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)
