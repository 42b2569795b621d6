"""What of its flows a view keeps, by their bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from claw_mediate.mitm.view import hidden_flows, retention
from tests.proxy.looking import http, taddons, tflow, view

BODY = b"x" * 100_000


@pytest.fixture
def looking() -> Iterator[view.View]:
    """A view that may keep 50 flows, or two megabytes."""
    shown, kept = view.View(), retention.Keeping()
    kept.most_flows, kept.most_bytes = 50, 2_000_000
    with taddons.context(shown, kept):
        yield shown


def passes(looking: view.View, kept: retention.Keeping, body: bytes = BODY, parent: str = "") -> http.HTTPFlow:
    flow = tflow.tflow(resp=True)
    flow.request.content, flow.live = body, False
    if parent:
        flow.metadata[hidden_flows.PARENT] = parent
    looking.requestheaders(flow)
    looking.response(flow)
    kept.response(flow)
    return flow


def keeper() -> retention.Keeping:
    found: retention.Keeping = retention.ctx.master.addons.get(retention.Keeping.name)
    return found


@pytest.mark.requirement("shadow:bounded")
def test_large_flows_go_sooner(looking: view.View) -> None:
    flows = [passes(looking, keeper()) for _ in range(100)]
    assert 15 <= looking.store_count() <= 20
    assert looking.get_by_id(flows[-1].id) is flows[-1]


@pytest.mark.requirement("shadow:bounded")
def test_what_is_under_way_or_marked_stays_with_all_that_belongs_to_it(looking: view.View) -> None:
    live, marked = (passes(looking, keeper()) for _ in range(2))
    live.live, marked.marked = True, ":default:"
    child = passes(looking, keeper(), parent=live.id)
    for _ in range(100):
        passes(looking, keeper())
    assert all(looking.get_by_id(flow.id) for flow in (live, marked, child))
    assert looking.store_count() <= 20
    live.live = False
    for _ in range(20):
        passes(looking, keeper())
    assert [looking.get_by_id(flow.id) for flow in (live, child)] == [None, None]


@pytest.mark.requirement("shadow:bounded")
def test_small_flows_are_counted(looking: view.View) -> None:
    for _ in range(200):
        passes(looking, keeper(), b"")
    assert 45 <= looking.store_count() <= 50
