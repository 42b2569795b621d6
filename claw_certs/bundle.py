"""The public CAs, behind which runners that replace their store get the pod's CA.

Only certificates are copied, block by block, as a file of CAs may hold anything else.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import certifi

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_SYSTEM_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, Alpine
)


def load_public_cas(file: Path | None) -> tuple[Path, bytes]:
    """Return the public CAs in PEM and their file: the given one, else this machine's own, else certifi's.

    Raise ``OSError``; ``ValueError`` if the given file holds no certificate.
    """
    system = map(Path, filter(None, (*_SYSTEM_STORES, ssl.get_default_verify_paths().cafile)))
    candidates = [file] if file is not None else [*filter(Path.is_file, system), Path(certifi.where())]
    for candidate in candidates:
        if blocks := pem_certificates(candidate.read_bytes()):
            return candidate, b"\n".join(blocks) + b"\n"
    raise ValueError(f"{file} holds no certificate")


def pem_certificates(content: bytes) -> list[bytes]:
    """Return the PEM blocks of all certificates in a file's content."""
    return _CERTIFICATE.findall(content)
