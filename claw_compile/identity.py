"""Agent tokens: derived, so that a compile can be repeated byte for byte (docs/spec/compile.md "Tokens")."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from claw_contract.secret import Secret

TOKEN_BYTES = 24
MIN_MASTER = 16
_SALT = b"clawdapus"


def derive_key(master: Secret, info: bytes, length: int) -> bytes:
    """Derive a key of ``length`` bytes for one purpose, ``info``, from the master secret (HKDF with SHA-256, RFC 5869)."""
    return HKDF(SHA256(), length, _SALT, info).derive(master.reveal().encode())


def agent_token(master: Secret, agent_id: str, epoch: int = 0) -> Secret:
    """Return an agent's credential, ``<agent-id>:<48 hex>``. Another epoch is another token."""
    info = b"agent-token\0" + agent_id.encode() + b"\0" + str(epoch).encode()
    derived = derive_key(master, info, TOKEN_BYTES)
    return Secret(f"{agent_id}:{derived.hex()}")
