"""Agent tokens: they are derived, so that a compile can be repeated byte for byte.

Specification: docs/spec/compile.md "Tokens".
"""

import hashlib

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from claw_contract.secret import Secret

TOKEN_BYTES = 24
MIN_MASTER = 16
_MAX_SECRET = 128  # As long as a reference to a secret may be
_SALT = b"clawdapus"


def derive_key(master: Secret, info: bytes, length: int) -> bytes:
    """Derive a key of ``length`` bytes from the master secret (HKDF with SHA-256, RFC 5869).

    ``info`` is the one purpose of the key.
    """
    return HKDF(SHA256(), length, _SALT, info).derive(master.reveal().encode())


def host_secret(service: str, agent_id: str) -> str:
    """Return the name of the secret with which an agent's calls reach a tools host.

    It is a file of the proxy, and of the host.
    """
    name = f"toolhost.{service}.{agent_id}"
    if len(name) <= _MAX_SECRET:
        return name
    return f"toolhost.{hashlib.sha256(name.encode()).hexdigest()}"


def host_token(master: Secret, service: str, agent_id: str, epoch: int = 0) -> Secret:
    """Return an agent's credential at a tools host, 48 hex digits.

    Another epoch is another token.
    """
    # A zero byte between the parts: no two services and agents give the same text.
    parts = (b"tools-host-token", service.encode(), agent_id.encode(), str(epoch).encode())
    return Secret(derive_key(master, b"\0".join(parts), TOKEN_BYTES).hex())


def agent_token(master: Secret, agent_id: str, epoch: int = 0) -> Secret:
    """Return an agent's credential, ``<agent-id>:<48 hex>``. Another epoch is another token."""
    info = b"agent-token\0" + agent_id.encode() + b"\0" + str(epoch).encode()
    key = derive_key(master, info, TOKEN_BYTES)
    return Secret(f"{agent_id}:{key.hex()}")
