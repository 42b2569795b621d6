"""State that several workers of one proxy share, and that each has of its own (decision 0035)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from claw_audit.audit import AuditQuery, audit
from claw_audit.verify import verify
from tests.peers import text
from tests.proxy.pod import Pod
from tests.proxy.test_broker import RawClient
from tests.proxy.worker_pair import PAIR, ask, lines, ready_status, start, trade_everywhere, workers
from tests.waiting import eventually


@pytest.mark.requirement("workers:share", "workers:history", "audit:verify-benign")
def test_workers_share_an_address_and_each_has_a_chain_of_its_own(
    pair: Pod, tmp_path: Path
) -> None:
    before = sum(lines(pair))
    number = trade_everywhere(pair, "share")
    assert sum(lines(pair)) == before + number
    ended = [event for event in pair.log() if event["type"] == "response"]
    assert {event["worker"] for event in ended} == set(PAIR)
    history, log = pair.home / "history", tmp_path / "log"
    log.write_text(pair.stdout.read_text(encoding="utf-8"), encoding="utf-8")
    verdicts = verify((history,), (str(log),))
    assert [(verdict.lines, verdict.broken) for verdict in verdicts] == [
        (count, 0) for count in reversed(lines(pair))
    ]
    assert audit(AuditQuery((history,), (str(log),))).turns.total == sum(lines(pair))


@pytest.mark.requirement("workers:history")
def test_what_is_missing_of_one_worker_is_told_apart_from_what_another_rotated_away(
    tmp_path: Path, pair: Pod
) -> None:
    trade_everywhere(pair, "rotation")
    events = sorted(
        (each for each in pair.log() if each.get("history_hash")), key=lambda each: -each["worker"]
    )
    events[-1]["history_rotated"] = True  # the last line of the first worker
    log, history = tmp_path / "log", tmp_path / "history"
    log.write_text("".join(f"{json.dumps(each)}\n" for each in events), encoding="utf-8")
    for place, name, lines_left in (
        ("analyst", "history.jsonl.1", slice(-1, None)),  # what was before it is rotated away
        (".worker-2/analyst", "history.jsonl", slice(-1)),  # the end was cut off
    ):
        (history / place).mkdir(parents=True)
        whole = (
            (pair.home / "history" / place / "history.jsonl").read_bytes().splitlines(keepends=True)
        )
        (history / place / name).write_bytes(b"".join(whole[lines_left]))
    second, first = verify((history,), (str(log),))
    assert [missing.why for missing in first.missing] == ["rotated"]
    assert [missing.why for missing in second.missing] == ["removed"]
    assert "records 1 line that is missing" in second.findings[0].what


@pytest.mark.requirement("workers:sessions")
def test_a_session_is_served_whichever_worker_its_requests_reach(pair: Pod) -> None:
    first = RawClient(pair).open()
    before = len(pair.service.received)
    answers = []
    for number in range(12):
        other = RawClient(pair)
        other.headers, other.last_id = first.headers, 100 + number
        answers.append(
            other.call("desk__stamp", {"symbol": "X"}, request_id=7)["structuredContent"]
        )
    assert answers == [{"order": 2}] * 12
    assert len(pair.service.received) == before + 1, "a request that comes again is not run again"
    with RawClient(pair).http.stream("GET", first.url, headers=first.headers) as stream:
        assert stream.status_code == 200
        assert next(stream.iter_lines()) == ": open"
    for pid in (*workers(pair), 0, 0):
        os.kill(pid or workers(pair)[-1], signal.SIGKILL)
        eventually(lambda: ready_status(pair) == 200, "it is replaced")
    reasons = [event["reason"] for event in pair.log() if event.get("error") == "worker_died"]
    assert "it is replaced in 0." in reasons[-1], "a worker that dies soon after another waits"
    assert first.ask("tools/list").status_code == 404, "its sessions have ended with it"
    assert RawClient(pair).open().call("desk__stamp", {"symbol": "X"})["structuredContent"] == {
        "order": 2
    }


@pytest.mark.requirement("workers:feeds")
def test_a_worker_shows_a_feed_that_another_one_read_before_its_source_failed(pod: Pod) -> None:
    pod.service.routes["GET", "/prices"] = JSONResponse({"NVDA": 150})
    start(pod)
    feed = {
        "name": "prices",
        "source": "desk",
        "path": "/prices",
        "url": f"{pod.service.url}/prices",
        "ttl": 3600,
    }
    pod.put("analyst", "feeds.json", [feed])
    pod.provider.says(text("One."))
    assert ask(pod, "first") == "One."
    (reader,) = {event["worker"] for event in pod.log() if event["type"] == "feed_fetch"}
    pod.service.routes["GET", "/prices"] = JSONResponse({}, 500)
    number = 0
    while not (
        others := [
            each for each in pod.log() if each["type"] == "feed_fetch" and each["worker"] != reader
        ]
    ):
        assert number < 100, "the kernel deals connections out among the workers"
        pod.provider.says(text("More."))
        ask(pod, f"more {number}")
        number += 1
    assert {each["error"] for each in others} == {"http_500"}
    assert all(
        '{"NVDA":150}' in json.dumps(each.json).replace("\\", "") for each in pod.provider.received
    )
    assert {each["feed_status"] for each in pod.log() if each["type"] == "feed_injection"} == {
        "included"
    }
