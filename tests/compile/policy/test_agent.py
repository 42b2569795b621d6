"""A resolved agent: the services that the proxy calls for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.resolving import agent


@pytest.mark.requirement("compile:feeds", "compile:memory")
def test_the_services_of_an_agents_feeds_and_memory_are_called_for_it(tmp_path: Path) -> None:
    one = agent(tmp_path, ", feeds: [market/prices], memory: {service: press}")
    assert one.called_services == ("market", "press")
    assert one.tool_services == ()


@pytest.mark.requirement("compile:proxy")
@pytest.mark.parametrize(
    ("claw", "has_proxy", "mode"),
    [
        (", cllama: passthrough", True, "base-url"),
        (", cllama: {proxy: passthrough, mode: proxy}", True, "proxy"),
        (", cllama: []", False, "base-url"),
        (", cllama: null", False, "base-url"),
    ],
)
def test_an_agent_has_a_proxy_unless_it_names_none(
    tmp_path: Path, claw: str, mode: str, *, has_proxy: bool
) -> None:
    one = agent(tmp_path, claw)
    assert (one.has_proxy, one.mode, one.delivery) == (has_proxy, mode, "mediated")
