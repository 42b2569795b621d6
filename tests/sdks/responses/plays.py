"""Conversations of real Responses clients through the proxy: every client, way of asking and mode,
each with all scenarios.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Service
from tests.proxy.pod import ROOT, Pod, authority
from tests.sdks.hearing import JAVASCRIPT, install
from tests.sdks.responses.model import CaseModel
from tests.waiting import eventually_async

PYTHON = ROOT / ".venv" / "runners"
IN_NODE = ("node", JAVASCRIPT / "responses.mjs")
IN_PYTHON = (PYTHON / "bin" / "python", Path(__file__).with_name("python_runners.py"))
PLANTED = "planted-in-a-result"
SECONDS = 300
WAYS = {
    "openai-py": ("plain", "events", "helper"),
    "openai-js": ("plain", "events", "helper"),
    "ai-sdk": ("plain", "events"),
    "agents": ("plain", "events"),
    "langchain": ("plain", "events"),
    "pydantic-ai": ("plain", "events"),
}
"""The ways in which a client asks: for a whole answer, for a stream that it reads event by
event, or with the SDK's own reader of streams.
"""
MODES = {
    "openai-py": ("resend", "kept", "chain", "conversation"),
    "openai-js": ("resend", "kept", "chain", "conversation"),
    "ai-sdk": ("resend", "kept", "chain"),
    "agents": ("resend", "kept", "chain", "conversation"),
    "langchain": ("resend", "kept", "chain"),
    "pydantic-ai": ("resend", "kept", "chain"),
}
"""The party that remembers: ``resend``, the runner only (``store: false``); ``kept``, both;
``chain`` and ``conversation``, the provider.

Vercel's SDK sends a turn's messages and outputs to a conversation again at each of its steps, which
the API refuses.
"""
ENTRANCES = {"plain": "base-url", "events": "forward-proxy", "helper": "base-url"}
SCENARIOS = {
    "hidden": "Done with hidden for {number}.",
    "native": "There are three files for {number}.",
    "slow": "Done with slow for {number}.",
    "write": "Done with write for {number}.",
    "again": "I remember: balance, balance, shell, wait, trade.",
}
"""The turns of each conversation, with the model's answers.

In the last one it is asked what it remembers.
"""
_BEATS = 3


@dataclass(frozen=True)
class ClientConversation:
    """One conversation of a client.

    ``base``: its base URL; None: it believes that it talks to the provider.
    """

    runner: str
    way: str
    mode: str
    number: int
    base: str | None
    key: str

    def __str__(self) -> str:
        return f"{self.runner} {self.way} {self.mode}"

    @property
    def words(self) -> list[str]:
        return [f"case:{scenario} {self.number};" for scenario in SCENARIOS]


@dataclass(frozen=True)
class ConversationResult:
    """The answers that a client got, and the tools that it ran."""

    number: int
    said: list[str]
    ran: int
    errors: list[str]
    seen: str


def plays(base: str = "", key: str = "") -> Iterator[ClientConversation]:
    """Yield every other pair of a way and a mode of each runner, which has all of both; in
    ``make soak`` every pair.
    """
    numbers = itertools.count(1)
    for runner, ways in WAYS.items():
        pairs = itertools.product(enumerate(ways), enumerate(MODES[runner]))
        for (row, way), (column, mode) in pairs:
            if (row + column) % 2 and not os.environ.get("CLAW_SEARCH"):
                continue
            url = f"{base}/v1" if ENTRANCES[way] == "base-url" else None
            yield ClientConversation(runner, way, mode, next(numbers), url, key)


@dataclass(frozen=True)
class Performance:
    """The outcome of all clients' conversations."""

    played: dict[str, ConversationResult]
    """By the name of the play."""
    traded: Counter[str]
    """The number of times that the write ran, by the number of the play."""
    refused: list[str]
    """The provider's refusals, in the words of the API."""


@dataclass
class ResponsesPod:
    """A pod whose provider keeps responses, and whose tools are read, slow, and a write."""

    pod: Pod
    model: CaseModel
    service: Service
    metronome: Metronome

    def environment(self) -> dict[str, str]:
        """Return the environment of a runner that may use both entrances: a base
        URL at loopback, or the forward proxy.
        """
        bundle = authority(self.pod)
        proxy = f"http://127.0.0.1:{self.pod.proxy_port}"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.pod.home / "runner"),
            "HTTPS_PROXY": proxy,
            "NO_PROXY": "127.0.0.1",
            "NODE_USE_ENV_PROXY": "1",
            "SSL_CERT_FILE": bundle,
            "NODE_EXTRA_CA_CERTS": bundle,
            "CODEX_CA_CERTIFICATE": bundle,
        }

    def perform(self) -> Performance:
        """Have the clients of both languages play, all at once."""
        made = list(plays(self.pod.url, self.pod.token()))
        in_node = [play for play in made if play.runner in {"openai-js", "ai-sdk"}]
        in_python = [play for play in made if play not in in_node]
        commands: list[tuple[Sequence[Path | str], list[ClientConversation]]] = [
            (IN_NODE, in_node),
            (IN_PYTHON, in_python),
        ]
        install()
        install(".venv/runners/.installed")
        with ThreadPoolExecutor(len(commands)) as pool:
            some, others = pool.map(lambda each: self._perform(*each), commands)
        traded = Counter(
            str(json.loads(request.body)["play"])
            for request in self.service.received
            if request.path == "/trade"
        )
        return Performance(some | others, traded, self.model.refused)

    def _perform(
        self, command: Sequence[Path | str], some: list[ClientConversation]
    ) -> dict[str, ConversationResult]:
        given = [{**asdict(play), "words": play.words} for play in some]
        results = run_plays(command, given, self.environment(), self.pod.home)
        return {
            str(play): ConversationResult(play.number, **each)
            for play, each in zip(some, results, strict=True)
        }


def run_plays(
    command: Sequence[Path | str],
    plays: Sequence[dict[str, Any]],
    environment: dict[str, str],
    folder: Path,
) -> list[dict[str, Any]]:
    """Have one process play all at once; return what each play's client got, and did."""
    run = subprocess.run(
        command,
        input=json.dumps(plays).encode(),
        env=environment,
        capture_output=True,
        check=False,
        timeout=SECONDS,
        cwd=folder,
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    results: list[dict[str, Any]] = json.loads(run.stdout)
    return results


class Metronome:
    """A slow tool that answers once streams were kept alive: it watches a stream of
    its own, which waits all the time.
    """

    def __init__(self) -> None:
        self.beats = 0
        self.is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, pod: Pod) -> None:
        self._thread = threading.Thread(target=self._listen, args=(pod,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.is_over.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    async def __call__(self, request: Request) -> Response:
        """Answer the call of the tool. That of the play 0 is the metronome's own."""
        begun = self.beats
        if request.query_params["play"] == "0":
            await asyncio.to_thread(self.is_over.wait, SECONDS)
        else:
            await eventually_async(
                lambda: self.is_over.is_set() or self.beats >= begun + _BEATS,
                "streams are kept alive",
            )
        return JSONResponse({"waited": PLANTED})

    def _listen(self, pod: Pod) -> None:
        body = {"model": "gpt-test", "input": "case:slow 0;", "stream": True, "store": False}
        headers = {"authorization": f"Bearer {pod.token()}"}
        while not self.is_over.is_set():  # Its call ends with the proxy's time limit for tools
            with httpx2.stream(
                "POST", f"{pod.url}/v1/responses", json=body, headers=headers, timeout=SECONDS
            ) as answer:
                answer.raise_for_status()
                for line in answer.iter_lines():
                    self.beats += line.startswith("event: response.in_progress")
