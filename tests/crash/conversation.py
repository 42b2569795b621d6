"""One conversation over many deaths of its proxy: a runner with its SDK's own retries, and a new
process after each death.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anthropic
import httpx2
import openai

from claw_audit.audit import AuditQuery, audit
from claw_audit.turns import RecordedCall
from claw_audit.verify import verify
from claw_contract.history import HistoryEntry
from claw_state.ownership import KeptObject
from claw_state.sqlite.connection import Database
from claw_state.sqlite.ownership import SqliteOwnershipStore
from tests.crash import host_process
from tests.crash.faults import WITH_IDS, WITHIN, KillPoint
from tests.crash.peers import (
    NUMBER,
    Books,
    Effect,
    PlanModel,
    RecordingService,
    answer_text,
    orders,
)
from tests.peers import Provider
from tests.proxy.pod import Pod
from tests.waiting import eventually, free_port

WITHOUT = ("the model hears", "the service hears", "the service has done it", "the runner hears")
"""The points at which the test kills the process from outside."""
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["pytest", "tests.crash.host_process"])
WAYS = ("chat", "messages", "input", "chain", "conversation")
"""How a runner goes on: the last three over Responses."""
_WORKERS, _CHANCE_OUTSIDE = 2, 0.15
_MOST_TRIES = 60
"""The tries of one turn, by a runner that starts again after a broken stream, which
no SDK does by itself.
"""


def pick_kill_points(seed: str, number: int, deaths: int) -> list[KillPoint]:
    """Return the points at which the conversation with that number kills its proxy.

    Every point is used once before any of them is used again.
    """
    dealt = random.Random(seed)
    deck: list[str] = []
    while len(deck) < (number + 1) * deaths:
        deck += dealt.sample((*WITHIN, *WITHOUT), len(WITHIN) + len(WITHOUT))
    times = random.Random(f"{seed}/{number}")

    kill_points: list[KillPoint] = []
    for point in deck[number * deaths : (number + 1) * deaths]:
        # A process seldom resumes twice.
        count = 1 if point.endswith("resume") else times.choice((1, 1, 2, 3))
        kill_points.append(KillPoint(point, count))
    return kill_points


class ProxyProcess(Protocol):
    """A process of the proxy."""

    def kill(self) -> None: ...

    def wait(self) -> None:
        """Wait until the process is dead."""


class MediatorProcess:
    """A process that hosts the mediator and nothing else."""

    def __init__(self, pod: Pod, kill_point: KillPoint | None, listener: socket.socket) -> None:
        arguments = (listener, pod.env(), kill_point, pod.home / "died")
        self._process = _PROCESSES.Process(
            target=host_process.serve_until_killed, args=arguments, daemon=True
        )
        self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.join()


class Mitmdump:
    """The real proxy."""

    def __init__(self, pod: Pod, kill_point: KillPoint | None) -> None:
        pod.script = Path(__file__).with_name("faulty.py")
        pod.environment = {"CRASH_AT": json.dumps(kill_point), "CRASH_DIED": str(pod.home / "died")}
        pod.start(wait=False)
        assert pod.process is not None
        self._process = pod.process

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()


class Proxy:
    """The successive processes of one proxy: each dies at its own point, the last one does not."""

    def __init__(
        self,
        kill_points: list[KillPoint],
        begin: Callable[[KillPoint | None], ProxyProcess],
        died: Path,
    ) -> None:
        self._kill_points = kill_points
        self._begin = begin
        self._died = died
        self._passed: Counter[str] = Counter()
        self._over = False
        self._running: ProxyProcess | None = None
        self._kill_point: KillPoint | None = None
        """The point of the current process; None once it was killed.

        So a late request of that process kills nothing again.
        """
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run_processes, daemon=True)
        self.deaths = 0

    def start(self) -> None:
        self._thread.start()

    def passes(self, point: str) -> None:
        """Count a point outside of the process that was passed, and kill the
        process if it is due.
        """
        with self._lock:
            self._passed[point] += 1
            if (
                self._kill_point is None
                or self._kill_point != (point, self._passed[point])
                or self._running is None
            ):
                return
            self._kill_point = None
            with self._died.open("a", encoding="utf-8") as out:
                out.write(f"{point}\n")
            self._running.kill()

    def stop(self) -> None:
        self._over = True
        while self._thread.is_alive():  # the next process may just be starting
            if self._running is not None:
                self._running.kill()
            self._thread.join(0.1)

    def _run_processes(self) -> None:
        for kill_point in (*self._kill_points, None):
            with self._lock:  # a request of the last process must not end the next one
                self._kill_point = None
            process = self._begin(kill_point)
            with self._lock:
                self._passed.clear()
                self._running, self._kill_point = process, kill_point
            process.wait()
            if self._over:
                return
            self.deaths += 1


class Workers:
    """A proxy of two workers, which die one by one, at points within and at points
    outside; the supervisor replaces them.
    """

    def __init__(self, pod: Pod, kill_plan: host_process.KillPlan) -> None:
        self._kill_plan = kill_plan
        self._random = random.Random(kill_plan.seed)
        kill_plan.died.touch()
        kill_plan.up.touch()
        self._process = _PROCESSES.Process(
            target=host_process.serve_as_workers, args=(pod.port, pod.env(), kill_plan)
        )

    @property
    def deaths(self) -> int:
        return len(self._kill_plan.died.read_text(encoding="utf-8").splitlines())

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def all_have_been_up(self) -> bool:
        return len({*self._kill_plan.up.read_text(encoding="utf-8").split()}) == _WORKERS

    def start(self) -> None:
        self._process.start()

    def workers(self) -> list[int]:
        pid = self._process.pid
        return [
            int(word)
            for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        ]

    def passes(self, point: str) -> None:
        """Kill one of the workers now and then, whichever it is.

        Until each has been up, none is killed: the supervisor ends where one does not start at all.
        """
        if (
            self._random.random() < _CHANCE_OUTSIDE
            and self.all_have_been_up
            and self.deaths < self._kill_plan.deaths
            and (pids := self.workers())
        ):
            with self._kill_plan.died.open("a", encoding="utf-8") as out:
                out.write(f"{point}\n")
            with contextlib.suppress(ProcessLookupError):  # it has just died by itself
                os.kill(self._random.choice(pids), signal.SIGKILL)

    def stop(self) -> int | None:
        """End the supervisor, and with it all workers; return its exit code."""
        pids = self.workers()
        self._process.terminate()
        self._process.join(20)
        eventually(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all workers have ended"
        )
        return self._process.exitcode


@dataclass
class CrashConversation:
    """A conversation, identified by its name; its number says the way (``WAYS``), an odd one that
    tools are called over MCP.

    ``seed`` decides all of it, except for the order of concurrent events. ``heard`` is the text of
    the last stream so far.
    """

    name: str
    seed: str
    home: Path
    provider: Provider
    service: RecordingService
    kill_points: list[KillPoint]

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        assert isinstance(self.provider.model, PlanModel)
        self.books: Books = self.provider.model.books
        self.pod = Pod(self.home, self.provider, self.service)
        self.way = WAYS[int(self.name[1:]) % len(WAYS)]
        self.previous = ""
        self.proxy: Proxy | Workers
        if self.way in {"chain", "conversation"}:
            self.kill_points = [*(KillPoint(point, 1) for point in WITH_IDS), *self.kill_points]
        self.turns: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.is_mcp = int(self.name[1:]) % 2 == 1
        schema = {"type": "object", "properties": NUMBER["properties"]}
        tools = [
            self.pod.tool("balance", schema=schema),
            self.pod.tool("trade", "POST", schema=schema),
        ]
        if self.is_mcp:
            for each in tools:
                name = each["name"].partition(".")[2]
                each["execution"] = {
                    "transport": "mcp",
                    "service": "desk",
                    "base_url": self.service.url,
                    "tool_name": name,
                }
        self.is_live = self.random.random() < 0.5
        self.pod.agent("analyst", *tools, **({"stream": "live"} if self.is_live else {}))
        if self.way == "conversation":
            asyncio.run(self._own_conversation())

    async def _own_conversation(self) -> None:
        """Enter the conversation as if it had been made through the proxy."""
        store = SqliteOwnershipStore(Database(str(self.home / "state.db")))
        await store.save("analyst", KeptObject(f"conv_{self.name}", f"conv_{self.name}", "openai"))
        await store.close()

    def play(self, *, real: bool = False) -> None:
        """Run turns until the proxy has died often enough, run one more, and check the books."""
        with socket.create_server(
            ("127.0.0.1", 0 if not real else self.pod.port), backlog=64
        ) as listener:
            if real:
                listener.close()
            self.pod.port = self.pod.port if real else listener.getsockname()[1]
            proxy = Proxy(
                self.kill_points,
                lambda kill_point: self._begin(kill_point, None if real else listener),
                self.home / "died",
            )
            self.books.listeners[self.name] = proxy.passes
            self.proxy = proxy
            proxy.start()
            try:
                with (
                    self.pod.client(max_retries=20) as self.gpt,
                    self.pod.claude(max_retries=20) as self.anthropic,
                ):
                    while proxy.deaths < len(self.kill_points):
                        self._turn()
                    self._turn()
            finally:
                proxy.stop()
        self._check()

    def play_with_workers(self, deaths: int) -> None:
        """Run turns until so many of the proxy's two workers have died, run one
        more, and check the books.
        """
        self.pod.port = free_port()
        output = self.home / "stdout.log"
        self.proxy = proxy = Workers(
            self.pod,
            host_process.KillPlan(self.seed, deaths, self.home / "died", self.home / "up", output),
        )
        self.books.listeners[self.name] = proxy.passes
        proxy.start()
        try:
            with (
                self.pod.client(max_retries=20) as self.gpt,
                self.pod.claude(max_retries=20) as self.anthropic,
            ):
                while proxy.deaths < deaths:
                    self._turn()
                self._turn()
            eventually(
                lambda: len(proxy.workers()) == _WORKERS, "each worker that died was replaced"
            )
        finally:
            proxy.stop()
        self._check()

    def _begin(self, kill_point: KillPoint | None, listener: socket.socket | None) -> ProxyProcess:
        return (
            Mitmdump(self.pod, kill_point)
            if listener is None
            else MediatorProcess(self.pod, kill_point, listener)
        )

    def _turn(self) -> None:
        plan = [
            [
                self.random.choice(("write", "write", "read"))
                for _ in range(self.random.choice((1, 1, 2)))
            ]
            for _ in range(self.random.choice((1, 2)))
        ]
        name = f"{self.name}.{len(self.turns)}"
        self.turns.append(f"{name} {json.dumps(plan)}")
        self.messages.append({"role": "user", "content": self.turns[-1]})
        stream = self.random.random() < 0.5
        answer = self._asked(stream=stream)
        expected = answer_text(self.turns[-1], is_live=self.is_live and stream)
        assert answer == expected, self.books.faults[self.name] or answer
        self.books.answers[name] = answer
        self.messages.append({"role": "assistant", "content": answer})

    def _asked(self, *, stream: bool) -> str:
        ask = {"chat": self._asks_gpt, "messages": self._asks_claude}.get(
            self.way, self._asks_responses
        )
        for _ in range(_MOST_TRIES):
            try:
                return ask(stream=stream)
            except (openai.APIError, anthropic.APIError, httpx2.HTTPError, BrokenOffError) as error:
                assert not self.books.faults[self.name], self.books.faults[self.name]
                assert not isinstance(self.proxy, Workers) or self.proxy.is_alive, (
                    "the supervisor has ended"
                )
                failed = error
        raise failed

    def _asks_gpt(self, *, stream: bool) -> str:
        made = self.gpt.chat.completions.create(
            model="gpt-test", messages=self.messages, stream=stream
        )
        if not stream:
            return made.choices[0].message.content
        self.heard, ended = "", False
        for chunk in made:
            self.proxy.passes("the runner hears")
            self.heard += "".join(choice.delta.content or "" for choice in chunk.choices)
            ended = ended or any(choice.finish_reason for choice in chunk.choices)
        return self.heard if ended else broke_off()

    def _asks_claude(self, *, stream: bool) -> str:
        asked = {"model": "claude-test", "max_tokens": 100, "messages": self.messages}
        if not stream:
            return self.anthropic.messages.create(**asked).content[0].text
        self.heard, ended = "", False
        for event in self.anthropic.messages.create(**asked, stream=True):
            self.proxy.passes("the runner hears")
            if event.type == "content_block_delta":
                self.heard += event.delta.text
            ended = ended or event.type == "message_stop"
        return self.heard if ended else broke_off()

    def _asks_responses(self, *, stream: bool) -> str:
        new: dict[str, Any] = {"input": self.messages[-1:]}
        if self.way == "input":
            new = {"input": self.messages, "store": False}
        elif self.way == "conversation":
            new["conversation"] = f"conv_{self.name}"
        elif self.previous:
            new["previous_response_id"] = self.previous
        made = self.gpt.responses.create(model="gpt-test", stream=stream, **new)
        if not stream:
            self.previous = made.id
            return made.output_text
        self.heard = ""
        for event in made:
            self.proxy.passes("the runner hears")
            if event.type == "response.output_text.delta":
                self.heard += event.delta
            elif event.type == "response.completed":
                self.previous = event.response.id
                return self.heard
        return broke_off()

    def _check(self) -> None:
        """Check that nothing was done twice, claimed but not done, or forgotten."""
        assert not self.books.faults[self.name], self.books.faults[self.name]
        ids = [self._turn_id(words) for words in self.turns]
        ids = [turn_id for turn_id in ids if turn_id]
        assert len(set(ids)) == len(ids), "each turn has its own id"
        entries = self.pod.history("analyst")
        for entry in entries:
            HistoryEntry.model_validate_json(json.dumps(entry))
            made = [
                call
                for each in entry["tool_trace"]
                for call in each["tool_calls"]
                if call["status"] == "ok"
            ]
            assert all(("mcp" in call) == self.is_mcp for call in made), (
                "also of the calls of earlier attempts"
            )
        assert set(ids) <= {entry["turn_id"] for entry in entries if entry["status"] == "ok"}
        self._check_audit(len({entry["turn_id"] for entry in entries}))

    def _check_audit(self, turns: int) -> None:
        """Check that the chain is unbroken, and that each turn and call counts
        once, however often the proxy died.
        """
        history = self.home / "history"
        assert [verdict.findings[0] for verdict in verify((history,)) if verdict.broken] == []
        rows: list[RecordedCall] = []
        found = audit(AuditQuery((history,)), on_call=rows.append)
        assert found.turns.total == turns
        told = [
            (order, json.loads(self.books.told[order].content))
            for words in self.turns
            for order in orders(words)
        ]
        written = [
            order for order, answer in told if answer["ok"] and order not in self.books.reads
        ]
        assert len([row for row in rows if row.tool == "desk.trade" and row.status == "ok"]) == len(
            written
        )

    def _turn_id(self, words: str) -> str:
        """Return the one id under which all calls of a turn were made, in all its attempts."""
        for order in orders(words):
            told = json.loads(self.books.told[order].content)
            if order in self.books.reads:
                assert told["ok"], f"{order}: {told}"
            else:
                check_write(order, told, self.books.writes.get(order, []))
        made = [
            *map(self.books.writes.get, orders(words)),
            *map(self.books.reads.get, orders(words)),
        ]
        ids = {effect.turn for effects in made for effect in effects or ()}
        assert len(ids) <= 1, f"{words} was one turn, not {ids}"
        return ids.pop() if ids else ""


def check_write(order: str, told: dict[str, Any], effects: list[Effect]) -> None:
    """Check that a write was made at most once, and that the model was told the
    truth, or that the outcome is unknown.
    """
    assert len(effects) <= 1, f"{order} was done {len(effects)} times"
    number, place = order.split(".")[-2:]
    assert all(effect.key == f"{effect.turn}.{number}.{place}" for effect in effects)
    if told["ok"]:
        assert effects, f"{order} was not done"
    else:
        assert told["error"]["code"] == "outcome_unknown", f"{order}: {told}"


class BrokenOffError(Exception):
    """A stream that ended before its last event."""


def broke_off() -> str:
    raise BrokenOffError
