"""Host names that a CA can be constrained to, written as X.509 does (RFC 5280, 4.2.1.10).

    api.openai.com     itself and all names below it: X.509 has no constraint to one name alone
    bücher.example     in its ASCII form, as clients ask for it

An address, a name of one label and a pattern can't be covered: the reason is reported, and the
constraint is never widened.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_MAX_LENGTH = 253
_MIN_LABELS = 2


@dataclass(frozen=True)
class CaNames:
    """The names that a CA is constrained to, and the hosts that it can't cover."""

    permitted: tuple[str, ...]
    """In order; none of them is below another."""
    left_out: Mapping[str, str]
    """The reason, by host."""


def ca_names(hosts: Iterable[str]) -> CaNames:
    """Return the names that a CA for these hosts is constrained to."""
    names: set[str] = set()
    left_out: dict[str, str] = {}
    for host in sorted(set(hosts)):
        name = ascii_name(host)
        reason = name_problem(name)
        if reason is None:
            names.add(name)
        else:
            left_out[host] = reason

    permitted = [name for name in sorted(names) if not covers(names - {name}, name)]
    return CaNames(tuple(permitted), left_out)


def ascii_name(host: str) -> str:
    """Return a host as it is written in a certificate; unchanged if it has no ASCII form."""
    host = host.strip().rstrip(".").lower()
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return host


def covers(permitted: Iterable[str], name: str) -> bool:
    """Return True if a CA that is constrained to ``permitted`` may sign for ``name``."""
    return any(name == each or name.endswith(f".{each}") for each in permitted)


def is_address(name: str) -> bool:
    """Return True for an IP address, also in brackets or with a zone."""
    try:
        ipaddress.ip_address(name.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def name_problem(name: str) -> str | None:
    """Return why a CA can't be constrained to the name; None if it can."""
    labels = name.split(".")
    if is_address(name):
        return "it is an address, and a pod's CA signs for names only"
    if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > _MAX_LENGTH:
        return "it is not a host name"
    if len(labels) < _MIN_LABELS:
        return (
            "it has one label, and a CA constrained to it could sign for a whole top-level domain"
        )
    if labels[-1].isdecimal():
        return "a name that ends in a number is read as an address"
    return None
