from __future__ import annotations

import functools
from typing import Any

import httpx2
import pytest


@pytest.fixture(autouse=True)
def _one_trust_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to make than a case."""
    monkeypatch.setattr(httpx2, "create_ssl_context", _trust)


@functools.cache
def _trust() -> Any:
    return _create()


_create = httpx2.create_ssl_context
