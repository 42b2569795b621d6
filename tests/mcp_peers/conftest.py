from __future__ import annotations

from tests.proxy.conftest import pod

__all__ = ["pod"]
