"""Two workers of the real proxy behind one address (decision 0035)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse

from claw_audit.audit import AuditQuery, audit
from claw_audit.verify import verify
from claw_mediate.workers.supervisor import LATE_SECONDS, MAX_FAILED_STARTS
from tests.events import known
from tests.fork_server import ALIVE_SECONDS, CLAW, fork_server
from tests.peers import Held, calls, text
from tests.proxy.pod import Pod, headers, pod_at
from tests.proxy.test_broker import SYMBOL, RawClient
from tests.waiting import DEADLINE, eventually, free_port

PAIR = (1, 2)


def start(pod: Pod, *arguments: str, wait: bool = True) -> None:
    pod.workers = len(PAIR)
    pod.agent(
        "analyst",
        pod.tool("trade", "POST"),
        {**pod.tool("stamp", "POST", schema=SYMBOL), "delivery": "native"},
    )
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
    pod.service.routes["POST", "/stamp"] = JSONResponse({"order": 2})
    pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{free_port()}"
    pod.start(*arguments, wait=wait)


def workers(pod: Pod) -> list[int]:
    """Return the processes of the workers that live."""
    assert pod.process is not None
    pids = (
        Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children")
        .read_text(encoding="utf-8")
        .split()
    )
    return [int(pid) for pid in pids]


def trade(pod: Pod, question: str) -> str:
    """Have a turn with one write, on a connection of its own."""
    pod.provider.says(calls(("c1", "desk__trade", {})), text("Bought."))
    return ask(pod, question)


def ask(pod: Pod, question: str) -> str:
    with pod.client() as client:
        asked: Any = [{"role": "user", "content": question}]
        return (
            client.chat.completions.create(model="gpt-test", messages=asked)
            .choices[0]
            .message.content
            or ""
        )


def trade_everywhere(pod: Pod, name: str) -> int:
    """Have turns until both workers had one more; return how many."""
    before, number = lines(pod), 0
    while not all(now > then for now, then in zip(lines(pod), before, strict=True)):
        assert number < 100, "the kernel deals connections out among the workers"
        assert trade(pod, f"{name} {number}") == "Bought."
        number += 1
    return number


def lines(pod: Pod) -> list[int]:
    """Return the lines of each worker's history."""
    places = [pod.home / "history", pod.home / "history" / ".worker-2"]
    files = [place / "analyst" / "history.jsonl" for place in places]
    return [
        len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0 for file in files
    ]


def metrics(pod: Pod) -> dict[str, float]:
    """Return the sums of each metric over its labels, as one worker or the other gives them."""
    time.sleep(0.12)  # each gives its last page again for a tenth of a second
    page = httpx2.get(
        f"http://{pod.environment['CLAW_METRICS_ADDR']}/metrics", timeout=DEADLINE
    ).text
    samples = [
        sample for family in text_string_to_metric_families(page) for sample in family.samples
    ]
    return {
        name: sum(each.value for each in samples if each.name == name)
        for name in {each.name for each in samples}
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """The proxy with two workers, for tests that end none, or wait until it is replaced."""
    with pod_at(tmp_path_factory.mktemp("pair")) as pod:
        start(pod)
        yield pod


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


@pytest.mark.requirement("workers:one-page", "workers:replaced")
def test_counts_are_those_of_all_workers_and_none_falls_when_one_dies(pair: Pod) -> None:
    number = trade_everywhere(pair, "count")
    seen = metrics(pair)
    assert (
        seen["claw_tool_calls_total"]
        == seen["claw_requests_total"]
        == seen["claw_turn_duration_seconds_count"]
        >= number
    )
    assert (seen["claw_workers"], seen["claw_ready"], seen["claw_provider_keys"]) == (2, 1, 2)
    assert all(
        metrics(pair)["claw_requests_total"] == seen["claw_requests_total"] for _ in range(8)
    ), "whoever is asked"
    before = workers(pair)
    os.kill(before[0], signal.SIGKILL)
    eventually(
        lambda: len(workers(pair)) == len(PAIR) and before[0] not in workers(pair),
        "a worker takes its place",
    )
    eventually(lambda: _ready(pair) == 200, "all are up again")
    now = metrics(pair)
    assert now["claw_requests_total"] == seen["claw_requests_total"]
    assert now["claw_faults_total"] > seen.get("claw_faults_total", 0)
    died = [event for event in pair.log() if event.get("error") == "worker_died"]
    assert f"(process {before[0]}) was ended by SIGKILL; it is replaced" in died[-1]["reason"]
    trade_everywhere(pair, "again")


@pytest.mark.requirement("workers:one-page", "workers:signals")
def test_the_proxy_is_ready_when_all_workers_are(pair: Pod) -> None:
    trade_everywhere(pair, "ready")
    before = metrics(pair)["claw_requests_total"]
    stopped = workers(pair)[0]
    with ThreadPoolExecutor(24) as pool:
        os.kill(stopped, signal.SIGSTOP)
        try:  # half of the connections reach the one that is stopped, and wait
            pages = [pool.submit(_counted, pair) for _ in range(16)]
            counts = eventually(
                lambda: {each.result() for each in pages if each.done()}, "the other worker counts"
            )
            answers = [pool.submit(_ready, pair, DEADLINE) for _ in range(8)]
            states = eventually(
                lambda: {each.result() for each in answers if each.done()},
                "the other worker answers",
            )
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert counts == {before}, "what a silent worker counted stays in the sum"
    assert states == {503}
    assert pair.process is not None
    pair.process.send_signal(signal.SIGHUP)
    eventually(lambda: _ready(pair) == 200, "it goes on")
    assert (
        "is not up"
        in [event for event in pair.log() if event.get("error") == "not_ready"][-1]["reason"]
    )


@pytest.mark.requirement("workers:one-page")
def test_a_worker_gives_no_page_of_its_own_counts_alone(pair: Pod) -> None:
    assert pair.process is not None
    time.sleep(0.12)
    os.kill(pair.process.pid, signal.SIGSTOP)  # the supervisor
    try:
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.get(f"http://{pair.environment['CLAW_METRICS_ADDR']}/metrics", timeout=10)
    finally:
        os.kill(pair.process.pid, signal.SIGCONT)
    assert metrics(pair)["claw_workers"] == len(PAIR)


def _counted(pod: Pod) -> float:
    return metrics(pod)["claw_requests_total"]


def _ready(pod: Pod, seconds: float = 2.5) -> int:
    """Return the status of /ready, or 0 where nobody answers."""
    try:
        return httpx2.get(f"{pod.url}/ready", timeout=seconds).status_code
    except httpx2.TransportError:
        return 0


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
        eventually(lambda: _ready(pair) == 200, "it is replaced")
    reasons = [event["reason"] for event in pair.log() if event.get("error") == "worker_died"]
    assert "it is replaced in 0." in reasons[-1], "a worker that dies soon after another waits"
    assert first.ask("tools/list").status_code == 404, "its sessions have ended with it"
    assert RawClient(pair).open().call("desk__stamp", {"symbol": "X"})["structuredContent"] == {
        "order": 2
    }


@pytest.mark.requirement("workers:signals", "workers:no-orphans")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_supervisor_drains_all_workers(pod: Pod, sign: signal.Signals) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "30000"
    start(pod)
    held = Held(JSONResponse({"order": 1}))
    pod.service.routes["POST", "/trade"] = held
    pids = workers(pod)
    with ThreadPoolExecutor(6) as pool:
        pod.provider.says(*(calls((f"c{number}", "desk__trade", {})) for number in range(6)))
        turns = [pool.submit(ask, pod, f"drain {number}") for number in range(6)]
        eventually(
            lambda: len(pod.service.received) == len(turns), "all turns wait for their write"
        )
        assert pod.process is not None
        pod.process.send_signal(sign)
        # Where the supervisor was killed, a new proxy may come: nobody connects to the old one any
        # more.
        refused = 0 if sign == signal.SIGKILL else 503
        eventually(
            lambda: {_ready(pod) for _ in range(8)} == {refused}, "none of them begins anything new"
        )
        pod.provider.says(*(text("Bought.") for _ in turns))
        held.go.set()
        assert [turn.result() for turn in turns] == ["Bought."] * len(turns)
    eventually(lambda: not any(map(_lives, pids)), "all workers have ended")
    assert pod.process.wait(10) == (-sign if sign == signal.SIGKILL else 0)


@pytest.mark.requirement("workers:hung")
def test_a_worker_that_does_not_end_is_killed_after_its_drain(pod: Pod) -> None:
    pod.environment["CLLAMA_DRAIN_MS"] = "1500"
    start(pod)
    assert pod.process is not None
    pids = workers(pod)
    os.kill(pids[0], signal.SIGSTOP)
    begun = time.monotonic()
    pod.process.terminate()
    eventually(lambda: not _lives(pids[1]), "the other one ends at once")
    assert pod.process.wait(30) == 128 + signal.SIGKILL
    assert time.monotonic() - begun >= 1.5 + LATE_SECONDS
    assert not any(map(_lives, pids))
    died = [event for event in pod.log() if event.get("error") == "worker_died"]
    assert [event["reason"] for event in died] == [
        f"worker 1 (process {pids[0]}) did not end in 5.5 s; it is killed"
    ]


@pytest.mark.requirement("workers:gone")
@pytest.mark.parametrize("keeps", [False, True], ids=["new connections", "kept connections"])
def test_no_request_gets_an_empty_answer_when_a_killed_proxy_starts_again(
    pod: Pod, keeps: bool
) -> None:
    start(pod)
    assert pod.process is not None
    old, is_over, asking = workers(pod), threading.Event(), 4
    outcomes: list[str] = []

    def ask_again_and_again() -> None:
        with httpx2.Client(timeout=10) as client:
            while not is_over.is_set():
                try:
                    answer = (client if keeps else httpx2).get(f"{pod.url}/health", timeout=10)
                    outcomes.append(str(answer.status_code))
                except httpx2.TransportError as error:
                    outcomes.append(type(error).__name__)

    with ThreadPoolExecutor(asking) as pool:
        loops = [pool.submit(ask_again_and_again) for _ in range(asking)]
        eventually(lambda: len(outcomes) > 20 * asking, "requests come")
        os.kill(pod.process.pid, signal.SIGKILL)
        assert pod.process.wait(10) == -signal.SIGKILL
        pod.start()  # at once, at the same address
        before = len(outcomes)
        eventually(lambda: outcomes[before:].count("200") > 20 * asking, "the new one answers")
        is_over.set()
        for each in loops:
            each.result()
    assert set(outcomes) <= {"200", "503", "ConnectError"}
    eventually(lambda: not any(map(_lives, old)), "the old workers have ended")
    assert trade(pod, "again") == "Bought."


@pytest.mark.requirement("workers:gone")
def test_a_new_proxy_waits_until_the_old_listeners_are_gone(pod: Pod) -> None:
    with socket.socket() as old:
        old.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        old.bind(("127.0.0.1", pod.port))
        old.listen()
        start(pod, wait=False)
        eventually(lambda: "is in use; waiting 5 s for it to be free" in pod.said(), "it waits")
        assert pod.process is not None
        assert pod.process.poll() is None
    eventually(lambda: _ready(pod) == 200, "it has the address")


@pytest.mark.requirement("workers:silent")
def test_a_worker_that_hangs_is_killed_and_replaced(pod: Pod) -> None:
    pod.environment[ALIVE_SECONDS] = "0.6"
    start(pod)
    stopped, other = workers(pod)
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: not _lives(stopped), "it is killed")
    eventually(lambda: _ready(pod) == 200, "another has its place")
    assert other in workers(pod)
    assert len(workers(pod)) == len(PAIR)
    hangs, replaced = [
        event["reason"] for event in pod.log() if event.get("error") == "worker_died"
    ]
    assert (
        hangs == f"worker 1 (process {stopped}) hangs: it has not replied for 3.6 s; it is killed"
    )
    assert replaced == f"worker 1 (process {stopped}) was ended by SIGKILL; it is replaced at once"
    trade_everywhere(pod, "replaced")


@pytest.mark.requirement("workers:silent")
def test_nobody_is_killed_because_the_whole_proxy_was_stopped(pod: Pod) -> None:
    pod.environment[ALIVE_SECONDS] = "0.6"
    start(pod)
    assert pod.process is not None
    pids = workers(pod)
    for pid in (pod.process.pid, *pids):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)  # longer than a worker may be silent
    for pid in (pod.process.pid, *pids):
        os.kill(pid, signal.SIGCONT)
    trade_everywhere(pod, "goes on")
    assert workers(pod) == pids
    assert [event for event in pod.log() if event.get("error") == "worker_died"] == []


@pytest.mark.requirement("workers:feeds")
def test_a_feed_whose_source_is_gone_is_shown_by_a_worker_that_never_read_it(pod: Pod) -> None:
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


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.requirement("workers:refused", "workers:start-fails")
@pytest.mark.parametrize(
    ("environment", "arguments", "line"),
    [
        (
            {"CLAW_STATE": ""},
            (),
            "cllama: 2 workers need a state that they share: set CLAW_STATE to a file",
        ),
        (
            {},
            ("-w", "flows"),
            "cllama: save_stream_file: 2 workers would write one file (run --workers 1)",
        ),
        (
            {},
            ("--mode", "reverse:https://example.com@0"),
            "workers share listeners of TCP with a fixed port",
        ),
        ({}, ("--mode", "local:curl"), "workers share listeners of TCP with a fixed port"),
    ],
)
def test_what_workers_cannot_share_is_refused_at_the_start(
    pod: Pod, environment: dict[str, str], arguments: tuple[str, ...], line: str
) -> None:
    pod.environment |= environment
    start(pod, *arguments, wait=False)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert pod.said().count(line) == 1, "no other worker tries"


@pytest.mark.requirement("workers:share", "workers:start-fails")
@pytest.mark.parametrize("taken", ["port", "metrics"])
def test_an_address_of_another_proxy_with_workers_is_refused(
    pair: Pod, pod: Pod, taken: str
) -> None:
    pod.port = pair.port if taken == "port" else pod.port
    pod.workers = len(PAIR)
    pod.agent("analyst")
    pod.environment["CLAW_METRICS_ADDR"] = (
        pair.environment["CLAW_METRICS_ADDR"] if taken == "metrics" else ""
    )
    pod.start(wait=False)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert "address already in use" in pod.said().lower()


@pytest.mark.requirement("workers:replaced", "workers:start-fails")
def test_a_worker_that_can_start_no_more_ends_the_proxy_with_its_reason(pod: Pod) -> None:
    start(pod)
    (pod.home / "context").rename(pod.home / "elsewhere")
    os.kill(workers(pod)[1], signal.SIGKILL)
    assert pod.process is not None
    assert pod.process.wait(30) == 1
    assert pod.said().count("cllama: no context directory at") == MAX_FAILED_STARTS


@pytest.mark.requirement("workers:lines")
def test_lines_are_whole_in_a_pipe_that_is_read_slowly(pod: Pod) -> None:
    # The path of a request is in its line of the log: each is longer than a pipe takes at once.
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    pod.workers = len(PAIR)
    pod.agent("analyst")
    with os.fdopen(writer, "wb", buffering=0) as output, Path(os.devnull).open("rb") as nothing:
        (pod.home / "home").mkdir()
        command = [
            "workers",
            str(pod.workers),
            "-s",
            str(pod.script),
            "--mode",
            f"reverse:http://pod.invalid@127.0.0.1:{pod.port}",
        ]
        pod.process = fork_server("proxy").start(
            command, pod.home, pod.env(), [nothing, output, output]
        )
    received: list[bytes] = []
    collecting = threading.Thread(
        target=lambda: received.extend(iter(lambda: os.read(reader, 700), b""))
    )
    collecting.start()
    eventually(lambda: _ready(pod) == 200, "it is ready")
    pod.provider.says(*(text("Hi.") for _ in range(40)))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: _ask_at(pod, f"/v1/chat/completions?{number}={'x' * 9000}"),
                range(40),
            )
        )
    pod.stop()
    collecting.join(30)
    os.close(reader)
    own = [
        line for line in b"".join(received).decode().splitlines() if "] Loading script " not in line
    ]
    requests = [event for event in map(known, own) if event["type"] == "request"]
    assert len(requests) == 40
    assert {event["worker"] for event in requests} == set(PAIR)


def _ask_at(pod: Pod, path: str) -> None:
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": path[:40]}]}
    assert (
        httpx2.post(
            f"{pod.url}{path}", json=asked, headers=headers(pod, "analyst"), timeout=30
        ).status_code
        == 200
    )


@pytest.mark.requirement("log:json-only")
@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_the_command_of_the_operator_prints_nothing_but_the_log(
    pod: Pod, options: list[str]
) -> None:
    pod.agent("analyst")
    (pod.home / "home").mkdir()
    with pod.stdout.open("ab") as out, pod.stderr.open("ab") as err:
        command = [*CLAW, "proxy", *options]
        pod.process = subprocess.Popen(
            command, cwd=pod.home, env=pod.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    eventually(lambda: _ready(pod) == 200, f"it is ready; it said {pod.said()}")
    pod.process.terminate()
    assert pod.process.wait(20) == 0
    lines = pod.stdout.read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not isinstance(json.loads(line), dict)] == []
    assert "Loading script" in pod.stderr.read_text(encoding="utf-8")


@pytest.mark.requirement("workers:option")
def test_the_command_of_the_operator_starts_workers(pod: Pod) -> None:
    pod.agent("analyst")
    (pod.home / "home").mkdir()
    command = [*CLAW, "proxy", "--workers", "2"]
    with pod.stdout.open("ab") as out, pod.stderr.open("ab") as err:
        pod.process = subprocess.Popen(
            command, cwd=pod.home, env=pod.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    eventually(lambda: _ready(pod) == 200, f"it is ready; it said {pod.said()}")
    assert len(workers(pod)) == len(PAIR)
    pod.process.terminate()
    assert pod.process.wait(20) == 0
