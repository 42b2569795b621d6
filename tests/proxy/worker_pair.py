"""A pod whose proxy has two workers, and what tests ask of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod
from tests.proxy.test_broker import SYMBOL
from tests.waiting import DEADLINE, free_port

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


def ready_status(pod: Pod, seconds: float = 2.5) -> int:
    """Return the status of /ready, or 0 where nobody answers."""
    try:
        return httpx2.get(f"{pod.url}/ready", timeout=seconds).status_code
    except httpx2.TransportError:
        return 0


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
