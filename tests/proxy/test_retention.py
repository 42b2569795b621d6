"""The flows that a view keeps, limited by their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from claw_mediate.mitm.addon_state import AddonState, BuiltinAddons
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.retention import RetentionAddon
from claw_mediate.telemetry.event_log import EventLog
from tests.proxy.looking import http, taddons, tflow, view

BODY = b"x" * 100_000


@dataclass
class BoundedView:
    """A view that may keep 50 flows, or two megabytes."""

    view: view.View
    retention: RetentionAddon

    def passes(self, body: bytes = BODY, parent: str = "", head: str = "") -> http.HTTPFlow:
        flow = tflow.tflow(resp=True)
        flow.request.headers["x"] = head
        flow.request.content, flow.live = body, False
        if parent:
            flow.metadata[hidden_flows.PARENT] = parent
        self.view.requestheaders(flow)
        self.view.response(flow)
        self.retention.response(flow)
        return flow


@pytest.fixture
def kept() -> Iterator[BoundedView]:
    with taddons.context(shown := view.View()) as context:
        addon_state = AddonState(EventLog([].append), BuiltinAddons.find())
        addon_state.max_flows, addon_state.max_bytes = 50, 2_000_000
        retention = RetentionAddon(addon_state)
        context.master.addons.add(retention)
        yield BoundedView(shown, retention)


@pytest.mark.requirement("hidden:bounded")
def test_large_flows_go_sooner(kept: BoundedView) -> None:
    flows = [kept.passes() for _ in range(100)]
    assert 15 <= kept.view.store_count() <= 20
    assert kept.view.get_by_id(flows[-1].id) is flows[-1]


@pytest.mark.requirement("hidden:bounded")
def test_heads_count_as_bodies_do(kept: BoundedView) -> None:
    for _ in range(45):
        kept.passes(b"", head="x" * 500_000)
    assert kept.view.store_count() <= 4


@pytest.mark.requirement("hidden:bounded")
def test_what_is_under_way_or_marked_stays_with_all_that_belongs_to_it(kept: BoundedView) -> None:
    live, marked = (kept.passes() for _ in range(2))
    live.live, marked.marked = True, ":default:"
    child = kept.passes(parent=live.id)
    for _ in range(100):
        kept.passes()
    assert all(kept.view.get_by_id(flow.id) for flow in (live, marked, child))
    assert kept.view.store_count() <= 20
    live.live = False
    for _ in range(20):
        kept.passes()
    assert [kept.view.get_by_id(flow.id) for flow in (live, child)] == [None, None]


@pytest.mark.requirement("hidden:bounded")
def test_small_flows_are_counted(kept: BoundedView) -> None:
    for _ in range(200):
        kept.passes(b"")
    assert 45 <= kept.view.store_count() <= 50
