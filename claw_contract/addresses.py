"""The kinds of IP addresses, for code that connects to an address that an agent chose.

Python's ``is_global`` alone is not enough: it is true for multicast, NAT64, 168.63.129.16 and
others.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, Literal

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network
type AddressKind = Literal["global", "private", "metadata", "special"]
"""One of four kinds of address.

``private``: private networks, loopback, and a carrier's own network (RFC 6598). ``metadata``: every
link-local address, and the metadata services of clouds. ``special``: multicast, unspecified and
reserved addresses, and the forms of IPv6 that contain an IPv4 address. ``global``: all others.
"""


def _networks(*names: str) -> tuple[Network, ...]:
    return tuple(ip_network(name) for name in names)


_METADATA: Final = _networks(
    "169.254.0.0/16",  # AWS and most others
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure
    "192.0.0.192/32",  # Oracle
    "fe80::/10",
    "fd00:ec2::/32",  # AWS
    "fd20:ce::254/128",  # Google
    "fd00:42::42/128",  # Scaleway
    "fd00:c1::a9fe:a9fe/128",
)
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "::1/128",
    "fc00::/7",
)
_SPECIAL: Final = _networks(
    "192.88.99.0/24",
    "192.0.0.0/24",
    # Forms of IPv6 that contain an IPv4 address
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2001::/23",
    "2002::/16",
    # Reserved
    "100::/64",
    "3fff::/20",
    "5f00::/16",
    "fec0::/10",
)
"""Addresses that Python may call global."""


def classify_address(address: Address) -> AddressKind:
    """Return the kind of an address."""
    if is_in(address, _METADATA):
        return "metadata"
    if is_in(address, _PRIVATE):
        return "private"

    is_special = (
        not address.is_global
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or is_in(address, _SPECIAL)
    )
    return "special" if is_special else "global"


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Return whether one of the networks contains the address."""
    return any(address in network for network in networks)
