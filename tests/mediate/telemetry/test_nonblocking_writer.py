"""Writing lines to a pipe that nobody reads, or that is read late."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.nonblocking_writer import LineWriter
from tests.waiting import DEADLINE, eventually

LINE = b"x" * 999 + b"\n"


class Pipe(NamedTuple):
    reads: int
    writes: int

    def read(self, size: int) -> bytes:
        """Read exactly so many bytes."""
        data = b""
        while len(data) < size:
            data += os.read(self.reads, size - len(data))
        return data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    yield made
    closed(made)


def closed(pipe: Pipe) -> None:
    for end in pipe:
        with suppress(OSError):
            os.close(end)


@contextmanager
def full(size: int) -> Iterator[None]:
    """Limit the size of files, like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_is_there_when_it_is_written(pipe: Pipe) -> None:
    LineWriter(pipe.writes).write(b"one\n")
    assert os.read(pipe.reads, 99) == b"one\n"


@pytest.mark.requirement("log:unread")
def test_what_nobody_reads_is_kept_up_to_a_bound_and_dropped_by_whole_lines_beyond_it(
    pipe: Pipe,
) -> None:
    lines, written = LineWriter(pipe.writes, max_bytes=10_000), 500
    for number in range(written):
        lines.write(b"%03d" % number + LINE)
    assert lines.dropped > 0
    assert lines.take_unreported() == 0, "there is no room to tell of them"
    got = pipe.read((written - lines.dropped) * 1003)
    eventually(lambda: not lines._queue, "all that was kept is written")
    numbers = [int(line[:3]) for line in got.splitlines()]
    assert numbers == sorted(set(numbers))
    assert all(line[3:] == LINE[:-1] for line in got.splitlines())
    assert eventually(lines.take_unreported, "it is told of") == lines.dropped
    assert lines.take_unreported() == 0, "it was told of"
    lines.write(b"next\n")
    assert os.read(pipe.reads, 99) == b"next\n"


def test_a_line_longer_than_the_pipe_comes_out_whole_when_it_is_read(pipe: Pipe) -> None:
    lines, line = LineWriter(pipe.writes), b"y" * 300_000 + b"\n"
    lines.write(line)
    lines.write(b"next\n")
    assert pipe.read(len(line) + 5) == line + b"next\n"
    lines.flush(time.monotonic() + DEADLINE)
    assert lines.dropped == 0


def test_who_flushes_waits_no_longer_than_it_may(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writes)
    lines.write(b"z" * 300_000)
    lines.flush(time.monotonic() + 0.01)
    assert lines._queue
    pipe.read(300_000)


@pytest.mark.requirement("log:lost")
@pytest.mark.parametrize("size", [5, 300_000])
def test_a_reader_that_has_gone_away_stops_nothing_and_what_it_missed_is_counted(
    pipe: Pipe, size: int
) -> None:
    lines = LineWriter(pipe.writes)
    os.close(pipe.reads)
    lines.write(b"w" * size)
    lines.write(b"w" * size)
    assert not lines._queue, "nothing is waited for"
    assert lines.dropped == 2
    assert lines.take_unreported() == 0, "there is nobody to tell of them"


@pytest.mark.requirement("log:lost")
def test_a_reader_that_goes_away_while_lines_are_kept_ends_the_waiting(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writes)
    lines.write(b"w" * 300_000)
    lines.write(b"next\n")
    os.close(pipe.reads)
    lines.flush(time.monotonic() + DEADLINE)
    assert not lines._queue
    assert lines.dropped == 2


@pytest.mark.requirement("log:lost")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("size", [300, 300_000])
def test_a_file_that_somebody_made_one_that_does_not_wait_is_waited_for(
    kind: str, size: int
) -> None:
    made = (
        Pipe(*os.pipe()) if kind == "pipe" else Pipe(*(end.detach() for end in socket.socketpair()))
    )
    os.set_blocking(made.writes, False)
    lines, written = (
        LineWriter(made.writes),
        [b"%04d" % number + b"y" * size + b"\n" for number in range(600_000 // size)],
    )
    for line in written:
        lines.write(line)
    whole = b"".join(written)
    assert made.read(len(whole)) == whole
    lines.flush(time.monotonic() + DEADLINE)
    assert not lines._queue
    assert lines.dropped == 0
    closed(made)


@pytest.mark.requirement("log:lost")
@pytest.mark.parametrize("room", [0, 1, 500, 999])
def test_a_line_that_a_full_disk_tears_is_counted_and_the_next_one_begins_anew(
    tmp_path: Path, room: int
) -> None:
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lines = LineWriter(descriptor)
    lines.write(b"first\n")
    with full(file.stat().st_size + room):
        lines.write(LINE)
        lines.write(LINE)
        assert lines.dropped == 2
        assert lines.take_unreported() == 0, "there is no room to tell of them"
    lines.write(b"next\n")
    lines.write(b"last\n")
    os.close(descriptor)
    torn = [LINE[:room]] if room else []
    assert file.read_bytes().splitlines() == [b"first", *torn, b"next", b"last"]
    assert (lines.take_unreported(), lines.dropped) == (2, 2)


@pytest.mark.requirement("log:lost")
def test_what_is_no_whole_line_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lines = LineWriter(descriptor)
    for piece in (b"said ", b"in ", b"pieces\n"):
        lines.write(piece)
    os.close(descriptor)
    assert file.read_bytes() == b"said in pieces\n"


def test_two_descriptors_of_one_pipe_share_what_is_kept(pipe: Pipe) -> None:
    other = os.dup(pipe.writes)
    try:
        assert LineWriter.of(pipe.writes) is LineWriter.of(other)
    finally:
        os.close(other)


@pytest.mark.requirement("log:unread")
def test_the_log_says_how_many_lines_are_missing_once_it_is_read_again(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = LineWriter(pipe.writes, max_bytes=100_000)
    monkeypatch.setattr(LineWriter, "of", lambda _descriptor: lines)
    log = EventLog()
    while not lines.dropped:
        log.event("join", "analyst", how="running")
    said = b""
    while lines._thread is not None:
        if select.select([pipe.reads], [], [], 0.05)[0]:
            said += os.read(pipe.reads, 65536)
    log.event("state", state="usable", place="state.db")
    while b'"state.db"' not in said:
        said += os.read(pipe.reads, 65536)
    *_, dropped, last = map(json.loads, said.splitlines())
    assert (dropped["error"], dropped["lines"], last["type"]) == (
        "log_lines_dropped",
        lines.dropped,
        "state",
    )
