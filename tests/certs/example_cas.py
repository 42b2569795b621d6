"""CAs for the tests, created as `claw certs` creates them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from claw_certs.ca import CaRequest
from claw_certs.store import StoredCas, init

NOW = datetime.now(UTC)
INSIDE, OUTSIDE = "api.openai.com", "outside.example"
PUBLIC = b""
"""No public CAs: a runner of a test trusts the pod's CA only."""


def ca_request(*permitted: str, **more: Any) -> CaRequest:
    return CaRequest(
        **({"pod": "desk", "permitted": permitted or (INSIDE,), "now": NOW, "days": 365} | more)
    )


def pods_ca(directory: Path, *permitted: str, **more: Any) -> StoredCas:
    """Create a CA in the directory. With ``now`` long ago it has expired."""
    return init(directory, ca_request(*permitted, **more), PUBLIC, None)


LONG_AGO = NOW - timedelta(days=400)
YET_TO_COME = NOW + timedelta(days=10)
