"""Token references: a manifest that holds no credential names a file of the secrets directory."""

from __future__ import annotations

from pathlib import Path

from claw_contract.secret import Secret, SecretRef
from claw_mediate.io.files import read_at


class MissingCredentialError(Exception):
    """A token reference that leads nowhere."""


def resolved(secrets: Path, value: Secret | SecretRef) -> Secret:
    """The credential itself. Raises ``MissingCredentialError``."""
    if isinstance(value, Secret):
        return value
    try:
        return Secret(read_at(secrets / value.secret).decode().strip())
    except (OSError, ValueError) as error:
        raise MissingCredentialError from error
