"""A log that nobody reads, through the real mitmdump: governance never waits for a pipe."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.events import known
from tests.peers import Provider, text
from tests.proxy.pod import Pod

LONG = "m" * 3000
"""A runner's name for a model, which is in several lines of the log for each request."""


class PipedPod(Pod):
    """A pod whose stdout and stderr are one pipe, which is read when the test says so."""

    def begin(self) -> None:
        reading, self.writing = os.pipe()
        self.pipe = os.fdopen(reading, "rb")
        try:
            self.start()
        finally:
            os.close(self.writing)

    @property
    def stdout(self) -> Path:
        return Path(f"/proc/self/fd/{self.writing}")

    stderr = stdout

    def read(self) -> list[dict[str, Any]]:
        """Return the log's lines until the proxy has ended."""
        return [
            known(line) for line in self.pipe.read().decode().splitlines() if line.startswith("{")
        ]

    def said(self) -> str:
        return ""


def ask(pod: Pod, times: int) -> None:
    client = pod.client()
    for number in range(times):
        pod.provider.says(text("Seven."))
        message = {"role": "user", "content": f"the balance, for the time {number}"}
        answer = client.chat.completions.create(model=LONG, messages=[message])  # type: ignore[list-item]
        assert answer.choices[0].message.content == "Seven."


@pytest.fixture
def piped(tmp_path: Path, provider: Provider) -> Any:
    made = PipedPod(tmp_path, provider, provider)  # type: ignore[arg-type]
    made.agent("analyst", made.tool("balance"))
    made.begin()
    yield made
    made.kill()
    made.pipe.close()
    made.clients.close()


@pytest.fixture
def provider() -> Any:
    made = Provider()
    made.start()
    yield made
    made.stop()


@pytest.mark.requirement("log:unread")
def test_requests_are_answered_though_nobody_reads_the_log_and_it_is_whole_when_somebody_does(
    piped: PipedPod,
) -> None:
    ask(piped, 40)  # three times the size of a pipe
    assert piped.process is not None
    reading: list[list[dict[str, Any]]] = []
    reader = threading.Thread(target=lambda: reading.append(piped.read()))
    reader.start()
    piped.stop()
    reader.join()
    (events,) = reading
    kinds = [event["type"] for event in events]
    assert kinds.count("request") == kinds.count("response") == 40
    assert len(json.dumps(events)) > 3 * os.sysconf("SC_PAGESIZE") * 16


@pytest.mark.requirement("log:unread")
def test_a_proxy_whose_log_nobody_reads_can_be_stopped(piped: PipedPod) -> None:
    ask(piped, 30)
    piped.stop()
    assert piped.process is not None
    assert piped.process.returncode == 0
