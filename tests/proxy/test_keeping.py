"""What of its flows a view keeps, by their bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from claw_mediate.mitm import keeping, shadow
from claw_mediate.watching import About, Asked, Hidden
from tests.proxy.looking import http, taddons, tflow, view

BODY = b"x" * 100_000


@pytest.fixture
def looking() -> Iterator[view.View]:
    """A view that may keep 50 flows, or two megabytes."""
    shown, kept = view.View(), keeping.Keeping()
    kept.most_flows, kept.most_bytes = 50, 2_000_000
    with taddons.context(shown, kept):
        yield shown


def passes(looking: view.View, kept: keeping.Keeping, body: bytes = BODY, parent: str = "") -> http.HTTPFlow:
    flow = tflow.tflow(resp=True)
    flow.request.content, flow.live = body, False
    if parent:
        flow.metadata[shadow.PARENT] = parent
    looking.requestheaders(flow)
    looking.response(flow)
    kept.response(flow)
    return flow


def keeper() -> keeping.Keeping:
    found: keeping.Keeping = keeping.ctx.master.addons.get(keeping.Keeping.name)
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
def test_a_turn_that_is_under_way_is_not_gone_through_with_each_of_its_calls_and_stays_when_it_is_over(
    looking: view.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks, resolve = [], looking.resolve
    monkeypatch.setattr(looking, "resolve", lambda spec: walks.append(spec) or resolve(spec))
    old, live = (passes(looking, keeper(), b"") for _ in range(2))
    live.live = True
    for _ in range(1000):
        passes(looking, keeper(), b"", live.id)
    assert 0 < len(walks) < 50
    live.live = False
    passes(looking, keeper(), b"", live.id)
    assert [looking.get_by_id(flow.id) for flow in (old, live)] == [None, live]
    last = passes(looking, keeper(), b"")
    for _ in range(200):
        last = passes(looking, keeper(), b"")
    assert looking.get_by_id(live.id) is None
    assert looking.get_by_id(last.id) is last


@pytest.mark.requirement("shadow:bounded")
def test_of_thousands_of_calls_of_one_turn_the_first_are_shown_and_all_of_its_rounds(looking: view.View) -> None:
    watch = shadow._Parent(passes(looking, keeper(), b""))
    for kind in ("tool", "model"):
        for number in range(1200):
            heard = watch.asked(Hidden("turn_1", "analyst", About(kind, number, "x"), Asked("POST", "", (), b"")))
            heard.failed("it is enough")
    made = [each.metadata.get(shadow.KIND) for each in looking.resolve("@all")]
    assert (made.count("tool"), made.count("model")) == (1000, 1200)


@pytest.mark.requirement("shadow:bounded")
@pytest.mark.parametrize("name", [shadow.PARENT, shadow.ENTRY])
@pytest.mark.parametrize("value", [5, [1], {"a": []}, None])
def test_whatever_a_file_holds_the_view_is_trimmed(looking: view.View, name: str, value: object) -> None:
    hostile = passes(looking, keeper(), b"")
    hostile.metadata[name] = value
    hostile.marked = [value]  # type: ignore[assignment]
    keeper().update([hostile])
    for _ in range(200):
        passes(looking, keeper(), b"")
    assert 45 <= looking.store_count() <= 50


@pytest.mark.requirement("shadow:bounded")
def test_small_flows_are_counted(looking: view.View) -> None:
    for _ in range(200):
        passes(looking, keeper(), b"")
    assert 45 <= looking.store_count() <= 50
