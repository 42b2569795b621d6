"""CAs for the tests, made as `claw certs` makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from claw_certs.ca import CaRequest
from claw_certs.store import StoredCas, init

NOW = datetime.now(UTC)
INSIDE, OUTSIDE = "api.openai.com", "outside.example"
PUBLIC = b""
"""No public CA: what a test's runner trusts, it trusts by the pod's."""


def wanted(*permitted: str, **more: Any) -> CaRequest:
    return CaRequest(**({"pod": "desk", "permitted": permitted or (INSIDE,), "now": NOW, "days": 365} | more))


def pods_ca(directory: Path, *permitted: str, **more: Any) -> StoredCas:
    """A CA in the directory; ``now`` in the past makes one that has expired."""
    return init(directory, wanted(*permitted, **more), PUBLIC, None)


LONG_AGO = NOW - timedelta(days=400)
YET_TO_COME = NOW + timedelta(days=10)
