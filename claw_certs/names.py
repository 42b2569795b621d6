"""Which names a CA can be held to: the governed hosts, as X.509 writes them (RFC 5280, 4.2.1.10).

    api.openai.com     itself, and all that is below it: X.509 knows no constraint to one name alone
    bücher.example     in its ASCII form, as a client asks for it
    10.0.0.5           none: a pod's CA signs for no address
    litellm            none: held to one label, it would be good for a whole top-level domain
    *.example.com      none: it is no name of a host

Rules. What can't be covered is said with its reason, and never widened until it can.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_LONGEST = 253
_FEWEST_LABELS = 2


@dataclass(frozen=True)
class Names:
    """``permitted``: sorted, none of them below another. ``left_out``: host → why."""

    permitted: tuple[str, ...]
    left_out: Mapping[str, str]


def names_of(hosts: Iterable[str]) -> Names:
    """What a CA is held to that is for these hosts."""
    permitted, left_out = set(), {}
    for host in sorted(set(hosts)):
        name = ascii_name(host)
        if (reason := unfit(name)) is None:
            permitted.add(name)
        else:
            left_out[host] = reason
    return Names(tuple(sorted(name for name in permitted if not covers(permitted - {name}, name))), left_out)


def ascii_name(host: str) -> str:
    """A host as it stands in a certificate; what can't stand in one comes back as it was."""
    host = host.strip().rstrip(".").lower()
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return host


def covers(permitted: Iterable[str], name: str) -> bool:
    """Whether a CA that is held to ``permitted`` may sign for ``name``."""
    return any(name == each or name.endswith(f".{each}") for each in permitted)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def unfit(name: str) -> str | None:
    """Why a CA can't be held to it."""
    labels = name.split(".")
    if is_address(name):
        return "it is an address, and a pod's CA signs for names only"
    if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > _LONGEST:
        return "it is no name of a host"
    if len(labels) < _FEWEST_LABELS:
        return "it has one label, and a CA that is held to it would be good for a whole top-level domain"
    if labels[-1].isdecimal():
        return "a name that ends in a number is read as an address"
    return None
