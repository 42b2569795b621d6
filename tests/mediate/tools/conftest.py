from __future__ import annotations

from tests.mcp.conftest import caller, server

__all__ = ["caller", "server"]
