"""The listener of /metrics, through the real mitmdump: its address, moving it, and closing it."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.peers import text
from tests.proxy.pod import Pod
from tests.proxy.scraped import ScrapedPod, started


@pytest.mark.requirement("metrics:moved")
def test_the_listener_moves_while_the_proxy_runs_and_stays_if_it_can_not(
    pod: Pod,
) -> None:
    source = pod.own_script().read_text(encoding="utf-8")
    pod.agent("analyst", pod.tool("balance"))
    pod.environment["CLAW_METRICS_TOKEN"] = "metrics-token-planted"
    first, second = started(pod), ScrapedPod(pod)

    def answers(scraped: ScrapedPod) -> int:
        try:
            return scraped.get(authorization="Bearer metrics-token-planted").status_code
        except httpx2.ConnectError:
            return 0

    def now(where: str) -> tuple[int, int]:
        pod.set_options(source, cllama_metrics=where)
        pod.provider.says(text("Seven."))
        assert first.ask() == "Seven."
        return answers(first), answers(second)

    assert now(f"127.0.0.1:{second.port}") == (0, 200)
    assert now(f"192.0.2.1:{second.port}") == (0, 200)
    assert f"cllama_metrics: can't listen on 192.0.2.1:{second.port}: " in pod.said()
    assert now(f":{second.port}") == (0, 200)
    assert now(f"192.0.2.1:{first.port}") == (0, 200)
    assert now("") == (0, 0)
    assert now(f"127.0.0.1:{first.port}") == (200, 0)
    pod.stop()
    assert pod.process is not None
    assert pod.process.returncode == 0
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("metrics:start")
def test_on_the_port_of_an_entrance_it_does_not_start_and_says_only_that(pod: Pod) -> None:
    pod.agent("analyst")
    pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{pod.port}"
    pod.start(wait=False)
    assert pod.process is not None
    assert pod.process.wait(timeout=60) != 0
    assert "address already in use" in pod.said()
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("metrics:start")
def test_a_port_that_is_taken_is_one_line_that_says_so(pod: Pod) -> None:
    pod.agent("analyst")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        pod.environment["CLAW_METRICS_ADDR"] = where
        pod.start(wait=False)
        assert pod.process is not None
        assert pod.process.wait(timeout=60) != 0
    assert f"cllama_metrics: can't listen on {where}: Address already in use" in pod.said()
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("metrics:token")
def test_an_address_that_runners_reach_wants_a_token_and_tells_nobody_without_it(pod: Pod) -> None:
    pod.agent("analyst")
    scraped = ScrapedPod(pod)
    pod.environment["CLAW_METRICS_ADDR"] = f":{scraped.port}"
    pod.start(wait=False)
    assert pod.process is not None
    assert pod.process.wait(timeout=60) != 0
    assert "set CLAW_METRICS_TOKEN, or listen on 127.0.0.1" in pod.said()
    pod.environment["CLAW_METRICS_TOKEN"] = "metrics-token-planted"
    pod.start()
    assert scraped.get().status_code == 401
    assert scraped.get(authorization="Bearer no").status_code == 401
    assert scraped.get(authorization="Bearer metrics-token-planted").status_code == 200


@pytest.mark.requirement("metrics:off")
def test_without_an_address_nothing_is_listened_on(pod: Pod) -> None:
    pod.agent("analyst")
    pod.start()
    assert pod.process is not None
    process = Path(f"/proc/{pod.process.pid}")
    own = set()
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            own.add(str(descriptor.readlink()))
    tables = [(process / "net" / name).read_text(encoding="ascii") for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    listening = {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in own
    }
    assert listening == {pod.port, pod.proxy_port}
