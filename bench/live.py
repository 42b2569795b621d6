"""The bench of live streams: ``python bench/live.py [--quick] [--page FILE]``.

The same stream goes to the runner without a proxy (direct), through the proxy for an agent without
tools (passed), live and buffered for agents with tools. Each event has the time at which the
provider sent it, so its delay is measured, not concluded.

Everything is one run, in rounds: each round has all rows. Every operation is checked: all its
events are there, in their order, the provider was asked as often as the row says, and a live
stream's first word was there before its last one was sent (a buffered one's was not).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import page
import table
import wire
from live_peers import SLOW_SECONDS
from markdown import grid
from stage import Process, Site, ask, peers_of, percentile, pod

SUBJECTS = ("direct", "passed", "live", "buffered")
AGENTS = {"passed": "plain", "live": "live", "buffered": "analyst"}
_STAMP = re.compile(rb"#(\d{8})@(\d+\.\d{6})~")
_CALL_STAMP = re.compile(rb"[^\d]@(\d+\.\d{6})~")
_CONTENT = re.compile(rb'"content": ?"[^"]')
_DONE = b"data: [DONE]"
_TIMEOUT = 120


class WrongWorkError(Exception):
    """A row that did not do what its name says."""


@dataclass(frozen=True)
class Row:
    """Streams of so many events, so many of them at once."""

    what: str
    streams: int
    operations: int
    events: int
    gap_us: int
    size: int = 24
    end: str = "text"
    by: tuple[str, ...] = SUBJECTS

    @property
    def asks(self) -> int:
        return 2 if self.hides_a_reply else 1

    @property
    def hides_a_reply(self) -> bool:
        """True if the first reply calls a tool, and the second one is the answer."""
        return self.end in ("tool", "slow")

    def body(self, number: int) -> bytes:
        """Return the request of one operation; no two belong to one conversation."""
        model = f"live-{self.events}-{self.gap_us}-{self.size}-{self.end}"
        body = json.loads(wire.question(0, stream=True))
        text = json.dumps({**body, "model": model}).encode()
        return text.replace(wire.MARK, b"turn-%08d" % number)


PACED, FAST = "paced, 50 a second", "as fast as it goes, 1 KiB"
TOOL, NATIVE = "hidden reply, then its tool", "native call, held until the verdict"
SLOW = "a tool that takes 3 s"


@dataclass(frozen=True)
class Plan:
    """The size of a run: rounds, the part of a full run's operations, the streams that run at once,
    and the events of a paced one.

    ``shares``: open streams are held at the proxy that has done the rest, which saves two starts.
    """

    rounds: int = 3
    share: float = 1.0
    streams: int = 32
    paced: int = 100
    shares: bool = False
    slow: int = 2
    """The number of tools that take seconds."""


FULL = Plan()
QUICK = Plan(1, 0.2)
SMOKE = Plan(1, 0.02, streams=4, paced=40, shares=True, slow=0)


def rows(plan: Plan) -> tuple[Row, ...]:
    """Return the rows in the size of the plan."""

    def some(number: int) -> int:
        return max(1, round(number * plan.share))

    many = plan.streams
    slow = [Row(SLOW, 1, plan.slow, 10, 10_000, end="slow", by=("live",))] if plan.slow else []
    return (
        Row(PACED, 1, some(4), plan.paced, 20_000),
        Row(PACED, many, many * some(2), plan.paced, 20_000),
        Row(FAST, 1, 1, some(5_000), 0, 1024, by=("direct", "passed", "live")),
        Row(FAST, many, many, some(1_000), 0, 1024, by=("direct", "passed", "live")),
        Row(TOOL, 1, some(25), 10, 10_000, end="tool", by=("live", "buffered")),
        Row(NATIVE, 1, some(25), 10, 10_000, end="native"),
        *slow,
    )


@dataclass
class Stream:
    """The stream that one runner got."""

    asked_at: float
    first_at: float = 0.0
    ended_at: float = 0.0
    sent: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    contents: int = 0
    last_sent: float = 0.0
    """When the last bytes of a stream with a call were sent."""
    silence: float = 0.0
    """The longest time, in seconds, from some bytes behind the head to the next."""


@dataclass
class Measurements:
    """The measurements of one subject in one row, over all rounds."""

    firsts: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """Seconds from the last byte of a reply to the last one at the runner."""
    tools: list[float] = field(default_factory=list)
    """Seconds from the last byte of a hidden reply to its tool's request."""
    rates: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    """Microseconds of the proxy's CPU for each event."""
    silences: list[float] = field(default_factory=list)
    """The longest silence of each stream whose tool takes seconds."""
    late: int = 0
    """Events that arrived after the next one was sent."""
    joined: int = 0
    events: int = 0


class Runner(asyncio.Protocol):
    """A client that reads one stream, whose replies have so many events each."""

    def __init__(self, request: bytes, events: int) -> None:
        self._request = request
        self._events = events
        self._received = bytearray()
        self._has_head = False
        self._body = bytearray()
        self._last_at = 0.0  # When bytes behind the head came last
        self.transport: asyncio.Transport | None = None
        self.found = Stream(0.0)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.full: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.found.asked_at = time.monotonic()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._received += data
        if not self._has_head:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            if not self._received.startswith(b"HTTP/1.1 200"):
                self._fail(bytes(self._received[:500]))
                return
            del self._received[: end + 4]
            self._has_head = True

        if self._last_at:
            self.found.silence = max(self.found.silence, now - self._last_at)
        self._last_at = now
        is_over = self._unchunk()
        self._read(now)
        if is_over and not self.done.done():
            self.found.ended_at = now
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"closed: {error}".encode())

    def _fail(self, problem: bytes) -> None:
        for future in (self.done, self.begun, self.full):
            if not future.done():
                future.set_exception(WrongWorkError(problem))
                future.exception()

    def _unchunk(self) -> bool:
        """Move whole chunks to the body. Return whether the last one was there."""
        place = 0
        is_over = False
        while (end := self._received.find(b"\r\n", place)) >= 0:
            size = int(self._received[place:end], 16)
            after = end + 2 + size + 2
            if len(self._received) < after:
                break
            self._body += self._received[end + 2 : after - 2]
            place = after
            if not size:
                is_over = True
                break
        del self._received[:place]
        return is_over

    def _read(self, now: float) -> None:
        """Take the whole lines of the body; the provider wrote into each event when it sent it."""
        end = self._body.rfind(b"\n") + 1
        lines = bytes(self._body[:end])
        del self._body[:end]

        found = self.found
        for number, sent in _STAMP.findall(lines):
            if int(number) != len(found.sent) % self._events:
                self._fail(b"event %b came as number %d" % (number, len(found.sent)))
            found.sent.append(float(sent))
            found.arrived.append(now)
        found.contents += len(_CONTENT.findall(lines))

        if found.sent and not found.first_at:
            found.first_at = now
            if not self.begun.done():
                self.begun.set_result(None)
        if len(found.sent) >= self._events and not self.full.done():
            self.full.set_result(None)

        call = _CALL_STAMP.search(lines)
        if call is not None:
            found.last_sent = float(call[1])


class Bench:
    """The rows at one site."""

    def __init__(self, site: Site, process: Process) -> None:
        self._site = site
        self._process = process
        self._number = 0
        self.found: dict[tuple[Row, str], Measurements] = defaultdict(Measurements)
        self.left: dict[str, list[float]] = defaultdict(list)
        """Seconds from a runner's close to the provider's."""
        self.memory: dict[str, list[float]] = defaultdict(list)
        """KiB of the proxy for each open stream."""

    async def measure(self, row: Row, by: str) -> None:
        """Run the operations of a row once."""
        self._figures()
        before = self._process.cpu()
        begun = time.monotonic()
        left = iter(range(row.operations))
        streams: list[Stream] = []

        async def work(place: int) -> None:
            # Agents do not begin at the same moment; the streams of a paced row take turns.
            await asyncio.sleep(row.events * row.gap_us / 1_000_000 * place / row.streams)
            streams.extend([await self._stream(row, by) for _ in left])

        async with asyncio.timeout(_TIMEOUT):
            await asyncio.gather(*map(work, range(row.streams)))

        seconds = time.monotonic() - begun
        cpu = self._process.cpu() - before
        figures = self._figures()
        check_streams(row, by, streams, figures)

        found = self.found[row, by]
        events = row.operations * row.events
        found.rates.append(events / seconds)
        found.cpus.append(cpu / events * 1e6)
        found.tools += figures["tool_delays"]
        for stream in streams:
            _add(found, row, stream)

    async def leave(self, by: str, operations: int) -> None:
        """Leave streams after their first word."""
        row = Row("left", 1, operations, 1_000, 20_000)
        for _ in range(operations):
            self._figures()
            runner = await self._connect(row, by)
            await runner.begun
            assert runner.transport is not None
            left_at = time.monotonic()
            runner.transport.abort()
            closed = await self._closed()
            self.left[by].append(closed - left_at)

    async def _closed(self) -> float:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            closed: dict[str, float] = self._figures()["closed"]
            if closed:
                return max(closed.values())
            await asyncio.sleep(0.05)
        raise WrongWorkError("the provider's connection stays open")

    async def hold(self, by: str, streams: int, *, shares: bool) -> None:
        """Hold many streams open at a proxy of their own, and measure the memory of one.

        A proxy that has worked would use memory again that it has, and seem to need none; with
        ``shares``, it is taken all the same.
        """
        row = Row("held open", streams, streams, 32, 0, 256, end="hang")
        with nullcontext(self._process) if shares else self._site.ours() as process:
            warm, self._process = self._process, process
            try:
                await self._stream(Row("warm", 1, 1, 32, 0, 256), by)
                before = process.rss()
                runners = [await self._connect(row, by) for _ in range(streams)]
                await asyncio.gather(*(runner.full for runner in runners))
                grown = process.rss() - before
            finally:
                self._process = warm
        self.memory[by].append(grown / streams / 1024)
        for runner in runners:
            assert runner.transport is not None
            runner.transport.abort()

    async def _stream(self, row: Row, by: str) -> Stream:
        runner = await self._connect(row, by)
        try:
            await runner.done
        finally:
            assert runner.transport is not None
            runner.transport.close()
        return runner.found

    async def _connect(self, row: Row, by: str) -> Runner:
        self._number += 1
        agent = AGENTS.get(by, "plain")
        request = wire.http("POST", wire.CHAT, agent, row.body(self._number)).encode()
        port = self._site.ports["provider"] if by == "direct" else self._process.port
        loop = asyncio.get_running_loop()
        _, runner = await loop.create_connection(
            lambda: Runner(request, row.events), "127.0.0.1", port
        )
        return runner

    def _figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = json.loads(ask(self._site.ports["provider"], "figures"))
        return figures


def check_streams(row: Row, by: str, streams: list[Stream], figures: dict[str, Any]) -> None:
    """Raise ``WrongWorkError`` unless all streams are what the row says."""
    asked = sorted(figures["requests"].values())
    if asked != [row.asks] * row.operations:
        raise WrongWorkError(f"{row.what}, {by}: the provider was asked {asked} times")

    hidden = row.hides_a_reply
    if hidden and len(figures["tool_delays"]) != row.operations:
        raise WrongWorkError(f"{row.what}, {by}: not every tool was called")

    for stream in streams:
        if not hidden and len(stream.sent) != row.events:
            raise WrongWorkError(
                f"{row.what}, {by}: {len(stream.sent)} of {row.events} events arrived"
            )
        if row.gap_us and not hidden:
            came_live = stream.arrived[0] < stream.sent[-1]
            if came_live == (by == "buffered"):
                raise WrongWorkError(f"{row.what}, {by}: it did not stream as it should")
        took = stream.ended_at - stream.asked_at
        if row.end == "slow" and not stream.silence < SLOW_SECONDS <= took:
            raise WrongWorkError(
                f"{row.what}, {by}: {took:.1f} s, of which {stream.silence:.1f} s were silent"
            )
        if row.end == "native" and not stream.last_sent:
            raise WrongWorkError(f"{row.what}, {by}: there was no call")


def _add(found: Measurements, row: Row, stream: Stream) -> None:
    found.firsts.append(stream.first_at - stream.asked_at)
    if row.end == "slow":
        found.silences.append(stream.silence)
    if row.hides_a_reply:
        return

    found.events += len(stream.sent)
    found.joined += max(0, len(stream.sent) - stream.contents)
    found.delays += [
        arrived - sent for arrived, sent in zip(stream.arrived, stream.sent, strict=True)
    ]
    found.late += sum(
        arrived > sent for arrived, sent in zip(stream.arrived, stream.sent[1:], strict=False)
    )
    if stream.last_sent:
        found.ends.append(stream.ended_at - stream.last_sent)


@contextmanager
def peers(home: Path) -> Iterator[Site]:
    """Run the provider and the service, and write the agents' context."""
    with peers_of("live_peers.py", number=2) as (provider, service):
        agents = {"analyst": "http", "live": "live", "plain": ""}
        context = pod(home, f"http://127.0.0.1:{service}", agents)
        yield Site(home, {"provider": provider, "service": service}, context, None)


def tables(bench: Bench) -> dict[str, str]:
    """Return the tables as Markdown, by their names in ``docs/performance.md``."""
    head = (
        "what",
        "streams",
        "by",
        "first word p50 ms",
        "p99 ms",
        "delay of a word p50 ms",
        "p99 ms",
        "late %",
        "joined %",
        "events/s",
        "CPU µs an event",
    )
    lines = [
        _line(row, by, found)
        for (row, by), found in bench.found.items()
        if row.what in (PACED, FAST)
    ]
    moments = [*_moments(bench)]
    return {
        "live": "\n".join(grid(head, lines)),
        "live-moments": "\n".join(grid(("what", "by", "p50", "p99", "unit"), moments)),
    }


def _line(row: Row, by: str, found: Measurements) -> tuple[str, ...]:
    is_paced = row.what == PACED
    # A buffered answer has no words on their way: its provider sends one document at the end.
    has_delays = is_paced and by != "buffered"
    shown = [*_ms(found.firsts), *(_ms(found.delays) if has_delays else ("", ""))]
    late = _percent(found.late, found.events) if has_delays else ""
    joined = _percent(found.joined, found.events) if by != "buffered" else ""
    rate = "" if is_paced else f"{median(found.rates):,.0f}"
    cpu = "" if by == "direct" else f"{median(found.cpus):.0f}"
    return (row.what, str(row.streams), by, *shown, late, joined, rate, cpu)


def _percent(number: int, events: int) -> str:
    return f"{100 * number / events:.1f}"


def _moments(bench: Bench) -> Iterator[tuple[str, ...]]:
    for (_, by), found in bench.found.items():
        if found.silences:
            yield (f"longest silence, with {SLOW}", by, *_ms(found.silences), "ms")
        elif found.tools:
            yield ("last byte of a hidden reply → its tool's request", by, *_ms(found.tools), "ms")
        if found.ends:
            yield ("last byte of a reply with a call → the runner", by, *_ms(found.ends), "ms")
    for by, seconds in bench.left.items():
        yield ("the runner leaves → the provider's connection closes", by, *_ms(seconds), "ms")
    for by, sizes in bench.memory.items():
        yield ("memory of an open stream", by, f"{median(sizes):.0f}", f"{max(sizes):.0f}", "KiB")


def _ms(seconds: list[float]) -> tuple[str, str]:
    return f"{1000 * median(seconds):.2f}", f"{1000 * percentile(seconds):.2f}"


async def run(bench: Bench, options: argparse.Namespace) -> None:
    plan = QUICK if options.quick else SMOKE if options.smoke else FULL
    for number in range(plan.rounds):
        for row in rows(plan):
            for by in row.by:
                if options.only in f"{row.what}, {by}":
                    await bench.measure(row, by)
        if options.only in "leaves":
            for by in ("passed", "live"):
                await bench.leave(by, max(1, round(10 * plan.share)))
        if options.only in "memory":
            for by in ("passed", "live"):
                await bench.hold(by, max(2, round(100 * plan.share)), shares=plan.shares)
        print(f"done: round {number + 1} of live streams", flush=True)


def main() -> None:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="claw-bench-") as place:
        home = Path(place)
        with peers(home) as site, site.ours() as process:
            bench = Bench(site, process)
            try:
                asyncio.run(run(bench, options))
            finally:  # a run that stops prints what it has found so far
                found = tables(bench)
                machine = table.machine(sorted(os.sched_getaffinity(0)))
                print(machine, *found.values(), sep="\n\n")
    if options.page:
        for name, text in found.items():
            page.replace(options.page, name, text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures live streams beside those that pass.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one round, and few operations")
    size.add_argument("--smoke", action="store_true", help="a few streams, to test the bench")
    parser.add_argument("--only", default="", help="measure only what contains this")
    parser.add_argument("--page", type=Path, help="the page in which the tables are written anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
