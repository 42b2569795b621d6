"""The counts of an audit: history and log merged by turn, attempts at one turn,
quantiles, filters.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_audit.audit import AgentGrants, AuditQuery, Filters, PodGrants, audit
from claw_audit.bounded_counter import HashSet, LatencyHistogram, hash_names
from claw_audit.report import Report, document
from claw_audit.turns import RecordedCall, usage_of_attempt
from tests.audit.proxy_files import ProxyFiles, call


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    return ProxyFiles(tmp_path)


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


def json_file(lines: list[bytes]) -> list[bytes]:
    """Return the lines as Docker's json-file keeps them, each in two parts."""
    parts = [(line[:40].decode(), line[40:].decode()) for line in lines]
    return [
        json.dumps({"log": part, "stream": "stdout", "time": "t"}).encode() + b"\n"
        for pair in parts
        for part in pair
    ]


KEPT: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "plain": lambda lines: lines,
    "crlf": lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
    "gzip": lambda lines: [gzip.compress(b"".join(lines))],
    "json-file": json_file,
    "compose": lambda lines: [b"cllama-1  | " + line for line in lines],
    "compose in colours": lambda lines: [b"\x1b[33mcllama-1  | \x1b[0m" + line for line in lines],
    "compose with times": lambda lines: [
        b"cllama-1  | 2026-01-01T00:00:00.000000001Z " + line for line in lines
    ],
    "docker with times": lambda lines: [
        b"2026-01-01T00:00:00.000000001Z " + line for line in lines
    ],
    "kubectl": lambda lines: [b"[pod/analyst-5d7/cllama] " + line for line in lines],
}


@pytest.mark.requirement("audit:log-forms")
@pytest.mark.parametrize("kept", KEPT)
def test_the_log_is_read_in_every_form_in_which_it_may_be_kept(
    files: ProxyFiles, kept: str
) -> None:
    log_turn(files, "t1", call())
    log_turn(files, "t2", call("desk.trade", "timeout"))
    files.log.write_bytes(b"".join(KEPT[kept](files.log.read_bytes().splitlines(keepends=True))))
    result = report(files, history=False, log=True)
    assert counted(result) == (2, 2, 1.0)
    assert (result.unread.lines, result.unread.foreign) == (0, 2 * 3 if kept == "json-file" else 0)


@pytest.mark.requirement("audit:log-forms")
@pytest.mark.parametrize(
    "who", [b"analyst-1  | ", b"evil-cllama-1  | ", b"[pod/cllama-1/runner] ", b"cllama says "]
)
def test_output_of_other_containers_is_not_counted(files: ProxyFiles, who: bytes) -> None:
    log_turn(files, "t1", call())
    lines = files.log.read_bytes().splitlines(keepends=True)
    files.log.write_bytes(
        b"".join([b"HTTP(S) proxy listening at *:8080.\n", *(who + line for line in lines)])
    )
    result = report(files, history=False, log=True)
    assert (result.turns.total, result.unread.lines, result.unread.foreign) == (
        0,
        0,
        1 + len(lines),
    )


@pytest.mark.requirement("audit:quantiles")
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_a_value_that_occurred_to_within_one_percent(
    times: list[int], part: float
) -> None:
    latencies = LatencyHistogram()
    for ms in times:
        latencies.add(ms)
    exact = sorted(times)[math.ceil(part * len(times)) - 1]
    assert abs((latencies.quantile(part) or 0) - exact) <= 0.01 * exact


@pytest.mark.requirement("audit:constant-memory")
def test_a_hash_set_knows_every_hash_that_was_added_and_no_other() -> None:
    known = HashSet()
    for number in range(140_000):
        known.add(hash_names("analyst", f"turn_{number}"))
    assert all(hash_names("analyst", f"turn_{number}") in known for number in range(0, 140_000, 97))
    assert not any(
        hash_names("clerk", f"turn_{number}") in known for number in range(0, 140_000, 97)
    )


@pytest.mark.requirement("budget:cost-unknown")
def test_an_estimate_is_counted_beside_the_known_cost_and_an_odd_one_is_none() -> None:
    used = usage_of_attempt(1, 1, 0, 0.25, 0.5)
    used.add(usage_of_attempt(1, 1, 0, None, 0.25))
    for odd in (-1, "1", True, None):
        used.add(usage_of_attempt(1, 1, 0, 0.0, odd))
    assert (used.cost_usd, used.estimated_usd, used.unpriced) == (0.25, 0.75, 1)
