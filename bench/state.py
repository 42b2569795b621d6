"""The cost of continuity and the journal for a turn, by the number of stored turns;
and turns that write at once.

The real mediator runs in this process, its peers in theirs. The time of the methods of the store
and the journal is measured. Turns are conversations of several agents, each of eight turns. The
turns that are stored before (``stored``) are spread over the last ten minutes, so that a run
deletes as many turns as it adds.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import stage
import wire
from stored import fill

from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import SETTINGS, Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal

_A_CONVERSATION = 8
_AGENTS = [f"agent-{number}" for number in range(8)]
"""The agents whose turns are measured; the state may hold turns of more."""
_STATE: dict[type, tuple[str, ...]] = {
    kind: names
    for kinds, names in (
        ((SqliteContinuityStore, ValkeyContinuityStore), ("save", "find", "mark_used")),
        (
            (SqliteJournal, ValkeyJournal),
            (
                "find",
                "begin",
                "record_response",
                "record_intent",
                "record_result",
                "end",
                "mark_delivered",
            ),
        ),
    )
    for kind in kinds
}


@dataclass(frozen=True)
class Plan:
    """The size of a run: numbers of stored turns, turns, numbers of concurrent turns."""

    stored: tuple[int, ...] = (10, 1_000, 100_000)
    turns: int = 400
    connections: tuple[int, ...] = (1, 16, 64)


@dataclass(frozen=True)
class StateCost:
    """Milliseconds of a turn, and of its calls of the store and the journal."""

    by: str
    stored: int
    state_p50: float
    state_p99: float
    turn_p50: float
    turn_p99: float


@dataclass(frozen=True)
class ConcurrentWrites:
    """Milliseconds of concurrent turns that write, and of the pauses of the event loop."""

    by: str
    connections: int
    p50: float
    p99: float
    pause_p99: float
    pause: float


class StateTimer:
    """A timer of the methods of the stores and the journals."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def timing(self) -> Iterator[None]:
        methods = [
            (kind, name, getattr(kind, name)) for kind, names in _STATE.items() for name in names
        ]
        for kind, name, method in methods:
            setattr(kind, name, self._around(method))
        try:
            yield
        finally:
            for kind, name, method in methods:
                setattr(kind, name, method)

    def _around[**P, T](self, method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(method)
        async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            started = time.perf_counter()
            try:
                return await method(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


class Conversations:
    """A mediator, and conversations with it."""

    def __init__(self, mediator: Mediator) -> None:
        self._mediator = mediator
        self.turns = 0
        self._numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)
        self._talks: dict[str, list[int]] = {}

    async def turn(self, who: int, kind: str) -> None:
        """Run the next turn of an agent's conversation; a conversation has eight
        turns, then another one begins.
        """
        agent = _AGENTS[who % len(_AGENTS)]
        talk = self._talks.setdefault(f"{who}", [])
        if len(talk) == _A_CONVERSATION:
            talk.clear()
        talk.append(next(self._numbers))

        body = wire.conversation(
            kind, f"You are {agent}, of desk {who}, in conversation {talk[0]}.", talk
        )
        headers = [
            ("authorization", f"Bearer {agent}:{wire.AGENT_SECRET}"),
            ("content-type", "application/json"),
        ]
        request = Request("POST", "/v1/chat/completions", headers, body)

        admitted = self._mediator.admit(request)
        assert not isinstance(admitted, RunnerResponse)
        exchange = await self._mediator.exchange(admitted, request)
        assert isinstance(exchange, RunnerResponse)

        # The whole answer, with the text that the provider gives to the turn's own number.
        said = b"".join([chunk async for chunk in exchange.chunks])
        assert exchange.status == 200, said
        assert wire.answer(talk[-1])[:20].encode() in said, said
        self.turns += 1

        # A turn writes once more when its runner has the answer.
        assert exchange.on_delivered is not None
        await exchange.on_delivered()


class Bench:
    """Mediators with their peers and their state, one after the other."""

    def __init__(self, plan: Plan, home: Path, ports: dict[str, int]) -> None:
        self._plan = plan
        self._home = home
        self._ports = ports

    async def stored(self, by: str, state: str) -> list[StateCost]:
        costs, there, timer = [], 0, StateTimer()
        for stored in self._plan.stored if state else self._plan.stored[:1]:
            if state:
                await fill(state, len(_AGENTS), there, stored)
            there = stored
            with timer.timing():
                async with self._hold_conversations(state) as conversations:
                    costs.append(await self._cost(conversations, by, stored if state else 0, timer))
        return costs

    async def together(self, by: str, state: str) -> list[ConcurrentWrites]:
        """Measure turns that write, so many at once as the plan says; return a row for each."""
        rows = []
        for connections in self._plan.connections:
            async with self._hold_conversations(state) as conversations:
                # The first turn of each conversation is not measured.
                await asyncio.gather(
                    *(conversations.turn(who, "writes") for who in range(connections))
                )

                pauses: list[float] = []
                recorder = asyncio.ensure_future(_record_pauses(pauses))
                times = await self._write_together(conversations, connections)
                recorder.cancel()

            p50 = median(times) * 1000
            p99 = _p99(times)
            longest_pause = max(pauses) * 1000
            rows.append(ConcurrentWrites(by, connections, p50, p99, _p99(pauses), longest_pause))
        return rows

    async def _write_together(self, conversations: Conversations, connections: int) -> list[float]:
        """Run turns that write, in ``connections`` conversations at once; return their seconds."""
        times: list[float] = []
        # All conversations take from one number of turns, so that none waits for the others.
        left = iter(range(max(self._plan.turns, 4 * connections)))

        async def converse(who: int) -> None:
            for _ in left:
                started = time.perf_counter()
                await conversations.turn(who, "writes")
                times.append(time.perf_counter() - started)

        await asyncio.gather(*map(converse, range(connections)))
        return times

    async def _cost(
        self, conversations: Conversations, by: str, stored: int, timer: StateTimer
    ) -> StateCost:
        for who in range(len(_AGENTS) * 2):
            await conversations.turn(who % len(_AGENTS), "reads")
        turns, state = [], []
        for number in range(self._plan.turns):
            before, started = timer.seconds, time.perf_counter()
            await conversations.turn(number % len(_AGENTS), "reads")
            turns.append(time.perf_counter() - started)
            state.append(timer.seconds - before)
        return StateCost(
            by, stored, median(state) * 1000, _p99(state), median(turns) * 1000, _p99(turns)
        )

    @asynccontextmanager
    async def _hold_conversations(self, state: str) -> AsyncIterator[Conversations]:
        """Yield conversations with a new mediator.

        Stop the bench if its turns have not each asked the provider twice and the service once.
        """
        home = Path(tempfile.mkdtemp(dir=self._home))
        context = stage.pod(
            home, f"http://127.0.0.1:{self._ports['service']}", dict.fromkeys(_AGENTS, "http")
        )
        env = {
            "CLAW_CONTEXT_ROOT": str(context),
            "CLAW_AUTH_DIR": str(home / "auth"),
            "CLAW_SESSION_HISTORY_DIR": str(home / "history"),
            "CLAW_STATE": state,
            "OPENAI_API_KEY": "sk-bench-provider-key-0003",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self._ports['provider']}/v1",
        }
        settings = Settings.of(
            {setting.name: env.get(setting.env, setting.default) for setting in SETTINGS}
        )
        mediator = Mediator(settings, EventLog(lambda _: None), env)
        before = self._count_requests()
        try:
            conversations = Conversations(mediator)
            yield conversations
        finally:
            await mediator.close(5)
        made = [now - earlier for earlier, now in zip(before, self._count_requests(), strict=True)]
        if made != [2 * conversations.turns, conversations.turns]:
            raise SystemExit(
                f"{conversations.turns} turns made {made[0]} requests of the model, {made[1]} of the service"
            )

    def _count_requests(self) -> list[int]:
        return [stage.count_requests(self._ports[peer]) for peer in ("provider", "service")]


async def measure(plan: Plan) -> tuple[list[StateCost], list[ConcurrentWrites]]:
    """Return both results for each kind of state that this machine has."""
    with (
        tempfile.TemporaryDirectory(prefix="claw-bench-state-") as name,
        _run_server(Path(name)) as server,
        stage.peer("provider") as provider,
        stage.peer("service") as service,
    ):
        bench = Bench(plan, Path(name), {"provider": provider, "service": service})
        file = Path(name) / "file" / "state.db"
        states = {"memory": "", "SQLite": str(file), **({"Valkey": server} if server else {})}
        stored = [row for by, state in states.items() for row in await bench.stored(by, state)]
        together = [row for by, state in states.items() for row in await bench.together(by, state)]
        return stored, together


@contextmanager
def _run_server(home: Path) -> Iterator[str]:
    """Run a Valkey (or Redis) as a pod should have it and yield its URL; yield ""
    if none is installed.
    """
    binary = shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        yield ""
        return
    port = stage.free_port()
    options: dict[str, Any] = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": home,
        "save": "",
        "appendonly": "yes",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(
        [binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        try:
            stage.wait_until(lambda: stage.is_listening(port), "the server of the state listens")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()


async def _record_pauses(pauses: list[float]) -> None:
    while True:
        asleep = time.perf_counter()
        await asyncio.sleep(0.001)
        pauses.append(time.perf_counter() - asleep - 0.001)


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[min(int(len(seconds) * 0.99), len(seconds) - 1)] * 1000
