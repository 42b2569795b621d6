"""A client's session, in whichever era the server speaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.discovering import DiscoveryPod, tool


@pytest.mark.requirement("discovery:broken-servers")
def test_versions_and_results_that_nobody_knows_are_refused(web: DiscoveryPod) -> None:
    web.serves([tool("a")], version="1999-01-01")
    known = "2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"
    assert (
        web.refuses() == f"error: web: it speaks version '1999-01-01' of MCP; known are {known}\n"
    )
    web.serves([tool(f"t{number}") for number in range(1001)])
    assert (
        web.refuses()
        == "error: web: its list of tools has more than 1000 tools: let the server offer fewer\n"
    )


@pytest.mark.requirement("discovery:eras")
def test_a_server_of_the_stateless_era_is_asked_in_its_way(web: DiscoveryPod) -> None:
    web.serves([tool("a")], [tool("b")], fault="stateless", log="log")
    assert web.discovers().startswith("web: 2 tools of listed 1.0\n")
    assert "notifications/initialized" not in Path("log").read_text(encoding="utf-8")


@pytest.mark.requirement("discovery:eras")
def test_a_server_that_chooses_the_stateless_era_in_the_handshake_is_asked_in_its_way(
    web: DiscoveryPod,
) -> None:
    web.serves([tool("a")], version="2026-07-28", log="log")
    assert web.discovers().startswith("web: 1 tool of listed 1.0\n")
    log = Path("log").read_text(encoding="utf-8")
    assert "notifications/initialized" not in log
    assert "io.modelcontextprotocol/protocolVersion" in log
