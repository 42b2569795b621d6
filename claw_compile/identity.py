"""Agent tokens: derived, so that a compile can be repeated byte for byte (spec/compile.md "Tokens")."""

from __future__ import annotations

import hashlib
import hmac

from claw_contract.secret import Secret

TOKEN_BYTES = 24
SHORTEST_MASTER = 16
_SALT = b"clawdapus"


def hkdf_sha256(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, extract and expand."""
    pseudo_random = hmac.digest(salt or bytes(hashlib.sha256().digest_size), key, "sha256")
    output, block, counter = b"", b"", 0
    while len(output) < length:
        counter += 1
        block = hmac.digest(pseudo_random, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


def agent_token(master: Secret, agent_id: str, epoch: int = 0) -> Secret:
    """The wire form ``<agent-id>:<48 hex>`` of an agent's credential. Another epoch is another token."""
    info = b"agent-token\0" + agent_id.encode() + b"\0" + str(epoch).encode()
    derived = hkdf_sha256(master.reveal().encode(), _SALT, info, TOKEN_BYTES)
    return Secret(f"{agent_id}:{derived.hex()}")
