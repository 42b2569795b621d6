"""The pod's secrets as files that the proxy finds in ``/run/secrets`` (docs/spec/compile.md "Grammar", ``secrets``).

Rules. A secret from the environment is written below the compiled tree, 0600, byte for byte; one from a file stays
where it is. Compose gets paths only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from claw_compile.grammar.pod import PodSecret, PodSpec
from claw_compile.output.compose.edits import escape_dollars
from claw_compile.output.deployment import RUNTIME, Deployment
from claw_compile.output.yaml_text import Data
from claw_compile.parsing.interpolation import Lookup

SECRETS = "secrets"
_PREFIX = "claw-"
"""The prefix of our names in Compose's ``secrets``, where the user's own are too."""


def secret_files(pod: PodSpec, lookup: Lookup) -> Mapping[PurePosixPath, bytes]:
    """Return ``secrets/<name>`` for each secret from a variable; one that is not set is reported elsewhere."""
    return {
        PurePosixPath(SECRETS, secret.name.text): value.encode()
        for secret in pod.secrets
        if secret.source == "env" and (value := lookup(secret.reference.text))
    }


def secret_sources(deployment: Deployment) -> dict[str, str]:
    """Return the name in ``/run/secrets`` → the name in Compose's ``secrets``."""
    names = sorted(secret.name.text for secret in deployment.pod.secrets)
    return {name: _PREFIX + name for name in names}


def compose_secrets(deployment: Deployment) -> dict[str, Data]:
    """Return the additions to Compose's ``secrets``."""
    return {_PREFIX + secret.name.text: {"file": _path(secret)} for secret in deployment.pod.secrets}


def _path(secret: PodSecret) -> str:
    if secret.source == "env":
        return f"./{RUNTIME}/{SECRETS}/{secret.name.text}"
    return escape_dollars(
        secret.reference.text if secret.reference.text.startswith("/") else f"./{secret.reference.text}"
    )
