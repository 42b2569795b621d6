"""What holds for every test."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, settings

from tests.waiting import DEADLINE

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


@pytest.fixture(scope="session", autouse=True)
def _trust_stores_are_read_once() -> Iterator[None]:
    """Reading one takes longer than most tests. One for what is tested, and one for the clients that test it."""
    with pytest.MonkeyPatch.context() as patch:
        for owner in (httpx2, httpx2._transports.default):
            patch.setattr(owner, "create_ssl_context", _once(owner.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_are_patient() -> Iterator[None]:
    """A client that is told nothing else waits for 5 s, which on a busy machine may be too short for a pod's first answer."""
    with pytest.MonkeyPatch.context() as patch:
        for phase in ("connect", "read", "write", "pool"):
            patch.setattr(httpx2._config.DEFAULT_TIMEOUT_CONFIG, phase, DEADLINE)
        yield


def _once(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    @functools.cache
    def made(_certificates: str | None, **how: Any) -> ssl.SSLContext:
        return create(**how)

    return lambda **how: made(os.environ.get("SSL_CERT_FILE"), **how)
