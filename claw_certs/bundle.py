"""What runners trust: the pod's CAs alone, for runtimes that add them, and behind the public ones, for those that replace.

Rules. Only certificates are copied, block by block: a file of CAs may hold anything else. During a rotation both CAs are in.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path

import certifi

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_KNOWN_PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, Alpine
)


def public_cas(named: Path | None) -> tuple[Path, bytes]:
    """The public CAs and where they are from: the file that is named, else this machine's own, else certifi's.

    Raises ``OSError``, and ``ValueError`` where the file that is named holds none.
    """
    places = [named] if named is not None else [*_places(), Path(certifi.where())]
    for place in places:
        if blocks := certificates(place.read_bytes()):
            return place, b"\n".join(blocks) + b"\n"
    raise ValueError(f"{named} holds no certificate")


def certificates(content: bytes) -> list[bytes]:
    """The certificates of a file, block by block."""
    return _BLOCK.findall(content)


def bundle(system: bytes, trusted: Iterable[bytes]) -> bytes:
    """One file for a runtime whose variable replaces its store."""
    return system + b"".join(trusted)


def _places() -> Iterator[Path]:
    own = ssl.get_default_verify_paths().cafile
    yield from (path for path in map(Path, (*_KNOWN_PLACES, *([own] if own else []))) if path.is_file())
