"""The whole context of an agent in one text: its order, its time line, and nothing
for an agent without context.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, Response

from tests.mediate.prompt.agent_context import AgentContext
from tests.peers import Service


@pytest.fixture
async def context(service: Service, tmp_path: Path) -> AsyncIterator[AgentContext]:
    made = AgentContext(service, tmp_path, time_line=True)
    service.routes["GET", "/prices"] = Response(b"NVDA 1")
    service.routes["POST", "/recall"] = JSONResponse({"memories": [{"text": "Likes tea."}]})
    yield made
    await made.close()


@pytest.mark.requirement("context:order")
async def test_the_order_is_memory_blocks_feeds_blocks_time(
    context: AgentContext,
) -> None:
    context.has(
        context.feed(),
        memory=context.memory(),
        blocks=[
            {"id": "after", "text": "AFTER"},
            {"id": "before", "text": "BEFORE", "placement": "before_feeds"},
            {"id": "late", "text": "LATE", "placement": "after_feeds", "cadence": "always"},
        ],
    )
    text = await context.text()
    marks = [
        "no instruction of the user",
        "Likes tea.",
        "BEFORE",
        "NVDA 1",
        "AFTER",
        "LATE",
        "Current time:",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.requirement("context:none")
async def test_an_agent_that_has_none_of_these_gets_no_text(
    service: Service, tmp_path: Path
) -> None:
    context = AgentContext(service, tmp_path)
    assert await context.text() == ""
    assert context.events == []
    assert service.received == []
    await context.close()


@pytest.mark.requirement("context:time-line")
@pytest.mark.parametrize(
    ("zone", "when", "line"),
    [
        ("UTC", (2006, 1, 2, 15, 4), "2006-01-02 3:04 PM UTC (UTC)"),
        ("Europe/Berlin", (2026, 7, 1, 22, 30), "2026-07-02 12:30 AM CEST (Europe/Berlin)"),
        ("America/New_York", (2026, 1, 2, 17, 0), "2026-01-02 12:00 PM EST (America/New_York)"),
    ],
)
async def test_the_time_is_told_in_the_agents_zone(
    context: AgentContext, zone: str, when: tuple[int, int, int, int, int], line: str
) -> None:
    context.has(timezone=zone)
    context.wall = datetime(*when, tzinfo=UTC)
    assert (await context.text()).endswith(f"\n\nCurrent time: {line}")


@pytest.mark.requirement("context:time-line")
@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/passwd", "America", "a\0b", "x" * 5000]
)
async def test_a_zone_that_is_not_known_is_utc_with_one_event(
    context: AgentContext, zone: str
) -> None:
    context.has(timezone=zone)
    for _ in range(3):
        assert re.search(r"Current time: 2026-01-02 3:04 PM UTC \(UTC\)$", await context.text())
    assert [event["intervention"] for event in context.said("intervention")] == ["timezone_unknown"]
