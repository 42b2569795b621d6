"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A property proves the same on a busy machine (no deadline, no complaint of slowness), and in every run: examples are the
# same ones, and none is kept on a disk that processes share. With CLAW_SEARCH=1 they are drawn anew.
settings.register_profile(
    "clawdapus",
    deadline=None,
    database=None,
    derandomize=not os.environ.get("CLAW_SEARCH"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("clawdapus")
