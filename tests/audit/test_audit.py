"""The counts of an audit: history and log merged by turn, attempts at one turn,
quantiles, filters.
"""

from __future__ import annotations

from typing import Any

import pytest

from claw_audit.audit import AgentGrants, AuditQuery, Filters, PodGrants, audit
from claw_audit.report import Report, document
from claw_audit.turns import RecordedCall
from tests.audit.proxy_files import ProxyFiles, call


def report(files: ProxyFiles, *, history: bool = True, log: bool = False, **filters: Any) -> Report:
    histories, logs = (files.directory,) if history else (), (str(files.log),) if log else ()
    return audit(AuditQuery(histories, logs, Filters(**filters)))


def log_turn(files: ProxyFiles, turn_id: str, *calls: dict[str, Any], **more: Any) -> None:
    """Log a turn as the proxy does."""
    files.events.event("request", "analyst", turn_id=turn_id, model="gpt-5", tools_count=1)
    for one in calls:
        code = one["result"].get("error", {}).get("code")
        about = {
            name: one.get(name)
            for name in ("name", "service", "status", "latency_ms", "effect", "ran")
        }
        files.events.event(
            "tool_call", "analyst", turn_id=turn_id, round=1, code=code, status_code=None, **about
        )
        if code == "unknown_tool":
            files.events.event(
                "intervention",
                "analyst",
                turn_id=turn_id,
                intervention=f"unknown_tool_rejected:{one['name']}",
            )
    files.ends(turn_id, **more)


def counted(result: Report) -> tuple[int, int, float]:
    return result.turns.total, sum(tool.calls for tool in result.tools), result.used.cost_usd


@pytest.mark.requirement("audit:merge")
def test_a_turn_counts_once_whether_it_is_in_history_in_the_log_or_in_both(
    files: ProxyFiles,
) -> None:
    calls = call(), call("desk.nope", "unknown_tool", ran=False)
    for number in range(3):
        log_turn(files, f"t{number}", *calls)
    files.turn("t1", *calls)
    files.turn("t9", *calls)
    result = report(files, log=True)
    assert counted(result) == (4, 8, 2.0)
    assert (result.turns.only_in_log, result.turns.ok) == (2, 4)
    assert [(one.name, one.count) for one in result.interventions] == [
        ("unknown_tool_rejected:desk.nope", 4)
    ]
    assert counted(report(files)) == (2, 4, 1.0)
    assert counted(report(files, history=False, log=True)) == (3, 6, 1.5)


@pytest.mark.requirement("live:audit")
def test_the_time_to_the_first_content_is_that_of_live_turns_in_the_log(files: ProxyFiles) -> None:
    files.turn("t1")
    for turn_id, ttft_ms in (("t1", 200), ("t2", 200), ("t3", "soon")):
        log_turn(files, turn_id, stream_mode="live", ttft_ms=ttft_ms)
    log_turn(files, "t4", stream_mode="buffered")
    assert report(files, log=True).ttft_ms.p50 == pytest.approx(200, rel=0.01)
    assert document(report(files, log=True, turn="t4"))["ttft_ms"] == {"p50": None, "p95": None}
    assert report(files).ttft_ms.p50 is None


@pytest.mark.requirement("audit:merge")
def test_history_alone_and_a_log_alone_give_the_same_calls(files: ProxyFiles) -> None:
    calls = (
        call(),
        call("desk.trade", "timeout", effect="write"),
        call("desk.nope", "unknown_tool", ran=False),
    )
    files.turn("t1", *calls)
    log_turn(files, "t1", *calls)
    by_history, by_log = report(files), report(files, history=False, log=True)
    documents = document(by_history), document(by_log)
    for member in ("tools", "call_errors", "interventions", "used"):
        assert documents[0][member] == documents[1][member]


@pytest.mark.requirement("audit:resumed")
def test_a_resumed_turn_has_its_last_trace_and_the_usage_of_all_attempts(files: ProxyFiles) -> None:
    files.turn("t1", call(), call("desk.trade", "canceled"), error="runner_left", status_code=499)
    files.turn("t2", call())
    files.turn(
        "t1",
        call(),
        call("desk.trade"),
        call("desk.quote"),
        resumed=True,
        ts="2026-01-01T00:00:09Z",
    )
    result = report(files)
    assert counted(result) == (2, 4, 1.5)
    assert (result.turns.ok, result.turns.aborted, result.turns.resumed, result.turns.attempts) == (
        2,
        0,
        1,
        3,
    )
    assert list(result.call_errors) == []


@pytest.mark.requirement("audit:resumed")
def test_a_resumed_turn_counts_once_in_a_log_alone(files: ProxyFiles) -> None:
    log_turn(files, "t1", call(), error="provider_http_502", status_code=502)
    files.events.event("resume", "analyst", turn_id="t1", replies=1, calls=1, unknown=0)
    log_turn(files, "t1", call("desk.trade"))
    log_turn(files, "t2", error="provider_http_400", status_code=400)
    result = report(files, history=False, log=True)
    assert counted(result) == (2, 2, 1.5)
    assert (result.turns.ok, result.turns.failed, result.turns.resumed) == (1, 1, 1)
    assert [(one.name, one.count) for one in result.turn_errors] == [("provider_http_400", 1)]


@pytest.mark.requirement("audit:resumed")
def test_a_resumed_turn_without_an_end_in_a_log_is_one_failed_turn(files: ProxyFiles) -> None:
    log_turn(files, "t1", call(), error="provider_http_502", status_code=502)
    files.events.event("request", "analyst", turn_id="t1", model="gpt-5")
    files.events.event("resume", "analyst", turn_id="t1", replies=1, calls=1, unknown=0)
    result = report(files, history=False, log=True)
    assert (result.turns.total, result.turns.failed, result.turns.resumed) == (1, 1, 1)


@pytest.mark.requirement("audit:counts")
def test_failed_aborted_and_unfinished_turns_are_counted_apart_with_their_codes(
    files: ProxyFiles,
) -> None:
    files.turn("t1", error="provider_http_500", status_code=500)
    files.turn("t2", error="runner_left", status_code=499)
    files.turn("t3")
    files.events.event("request", "analyst", turn_id="t4", model="gpt-5")
    files.events.event("error", "analyst", error="journal_not_written", reason="disk")
    result = report(files, log=True)
    assert (
        result.turns.ok,
        result.turns.failed,
        result.turns.aborted,
        result.turns.unfinished,
    ) == (1, 1, 1, 1)
    assert [one.name for one in result.turn_errors] == ["provider_http_500", "runner_left"]
    assert [one.name for one in result.proxy_errors] == ["journal_not_written"]
    assert [(one.turn_id, one.tool, one.code) for one in result.failures] == [
        ("t1", "", "provider_http_500"),
        ("t2", "", "runner_left"),
    ]


@pytest.mark.requirement("audit:choice")
def test_turns_and_calls_are_filtered_by_agent_time_turn_tool_and_status(files: ProxyFiles) -> None:
    files.turn("turn_aa1", call(), call("desk.trade", "timeout"), ts="2026-01-01T10:00:00Z")
    files.turn("turn_ab2", call("desk.trade"), ts="2026-01-01T11:00:00Z")
    files.turn("turn_b3", ts="2026-01-01T12:00:00Z", error="provider_http_500")
    files.turn("turn_c4", call(), agent="clerk", ts="2026-01-01T13:00:00Z")
    hour = 1767261600.0 + 3600  # 11:00
    assert counted(report(files))[:2] == (4, 4)
    assert counted(report(files, agent="clerk"))[:2] == (1, 1)
    assert counted(report(files, turn="a"))[:2] == (2, 3)
    assert counted(report(files, turn="turn_ab"))[:2] == (1, 1)
    assert counted(report(files, since=hour))[:2] == (3, 2)
    assert counted(report(files, until=hour))[:2] == (1, 2)
    assert counted(report(files, tool="desk.trade"))[:2] == (2, 2)
    assert counted(report(files, tool="desk.trade", status="error"))[:2] == (1, 1)
    assert counted(report(files, status="error"))[:2] == (2, 1)
    assert counted(report(files, status="ok"))[:2] == (3, 3)


@pytest.mark.requirement("audit:counts")
def test_on_call_gets_calls_in_file_order_and_the_report_lists_the_latest(
    files: ProxyFiles,
) -> None:
    for number in (5, 3, 4):
        files.turn(f"t{number}", call(ms=number), ts=f"2026-01-0{number}T00:00:00Z")
    rows: list[RecordedCall] = []
    result = audit(AuditQuery((files.directory,), last=2), on_call=rows.append)
    assert [row.turn_id for row in rows] == ["t5", "t3", "t4"]
    assert [row.turn_id for row in result.calls] == ["t4", "t5"]
    assert (result.first, result.last) == ("2026-01-03T00:00:00.000Z", "2026-01-05T00:00:00.000Z")


@pytest.mark.requirement("audit:withheld")
def test_withheld_tools_come_from_history_from_grants_and_from_offers(files: ProxyFiles) -> None:
    grants = PodGrants(
        {"analyst": AgentGrants("d1", frozenset({"desk.balance", "desk.quote"}))},
        frozenset({"desk.sell"}),
    )
    files.turn("t1", digest="d1", tools_offered=["desk__balance", "desk__quote"])
    files.turn("t2", digest="d1", tools_offered=["desk__balance", "desk__evil"])
    files.turn(
        "t3",
        digest="d1",
        tools_offered=[],
        tools_withheld=[{"name": "desk.balance", "reason": "tool_choice_none"}],
    )
    files.turn("t4", digest="d0", tools_offered=["desk__old"])
    result = audit(AuditQuery((files.directory,), grants=grants))
    assert [(row.tool, row.why, row.turns) for row in result.withheld] == [
        ("desk.balance", "tool_choice_none", 1),
        ("desk.sell", "not granted", None),
        ("desk.quote", "granted, not offered", 1),
        ("desk__evil", "offered, not granted", 1),
    ]
