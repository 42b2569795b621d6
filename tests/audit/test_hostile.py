"""Files that are damaged, hostile or endless: what can't be read is counted and named, and nothing else happens."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_audit.audit import Asked, audit
from claw_audit.bounded import MOST_ROWS, OTHERS
from claw_audit.chains import verify
from claw_audit.choice import Choice
from claw_audit.finding import find
from claw_audit.lines import LINE_LIMIT, lines
from claw_audit.report import Report
from claw_audit.sources import SourceError
from tests.audit.made import Made, call, entry


@pytest.fixture
def made(tmp_path: Path) -> Made:
    home = Made(tmp_path)
    home.turn("t1", call())
    return home


def report(made: Made, *logs: str) -> Report:
    return audit(Asked((made.directory,), logs))


def line(**more: Any) -> bytes:
    return json.dumps({**entry("t2"), **more}).encode()


DAMAGED = {
    "half a line": (line()[:100], "is no JSON"),
    "damaged UTF-8": (line().replace(b'"analyst"', b'"\xff\xfe"').replace(b'"ok"', b'"\xc3"'), "is no JSON"),
    "binary": (bytes(range(11, 256)), "is no JSON"),
    "no object": (b"[1]", "is not of the form: the whole of it"),
    "another version": (line(version=2), "is of another version"),
    "another version of another form": (b'{"version":2,"status":5}', "is of another version"),
    "no version": (b'{"status":"ok","ts":"x"}', "lacks `version`"),
    "no turn": (line(turn_id=""), "names no turn"),
    "a word for a number": (line(status_code="200"), "is not of the form: $.status_code"),
    "a call without a name": (line(tool_trace=[{"tool_calls": [{}]}]), "lacks `name`"),
    "deep": (
        b'{"version":1,"status":"ok","ts":"x","turn_id":"y","request_original":' + b"[" * 200_000,
        "is nested too deeply",
    ),
    "huge numbers": (line().replace(b"0.5", b"1e999"), "is not of the form: $.usage.reported_cost_usd"),
    "empty": (b"", "is empty"),
    "terminal": (b"\x1b]0;owned\x07\x1b[2J", "is no JSON"),
}


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize("name", DAMAGED)
def test_a_line_that_can_not_be_read_is_counted_and_named_and_the_others_count(made: Made, name: str) -> None:
    data, why = DAMAGED[name]
    first = made.file().read_bytes()
    made.file().write_bytes(first + data + b"\n" + first)
    found = report(made)
    assert (found.turns.total, found.unread.lines) == (2, 1)
    assert found.unread.first[0].startswith(f"{made.file()}:2 (byte {len(first)}) {why}")


@pytest.mark.requirement("audit:damaged")
@given(st.lists(st.binary(max_size=60) | st.sampled_from([data for data, _ in DAMAGED.values()]), max_size=6))
def test_no_bytes_are_an_error(tmp_path_factory: pytest.TempPathFactory, data: list[bytes]) -> None:
    made = Made(tmp_path_factory.mktemp("hostile"))
    made.file().parent.mkdir()
    made.file().write_bytes(b"\n".join(data))
    made.log.write_bytes(b"\n".join(data))
    report(made, str(made.log))
    with suppress(SourceError):  # a packed log that is cut: nothing can be said of the ends
        verify((made.directory,), (str(made.log),))
    find((made.directory,), "t")


@pytest.mark.requirement("audit:damaged")
def test_a_line_that_is_being_written_is_no_line_yet(made: Made) -> None:
    with made.file().open("ab") as file:
        file.write(line()[:300])
    assert (report(made).turns.total, report(made).unread.lines) == (1, 0)


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool_call", "turn_id": [], "name": {}, "latency_ms": "x", "round": -1, "status": 5, "code": []},
        {"type": "response", "turn_id": "t", "cost_usd": "free", "tokens_in": 1.5, "latency_ms": [], "status_code": {}},
        {"type": "intervention", "intervention": 5},
        {"type": "error", "error": {"a": 1}, "total_rounds": True},
    ],
)
def test_an_event_of_wrong_types_is_an_event_all_the_same(made: Made, event: dict[str, Any]) -> None:
    made.log.write_text(json.dumps({"ts": "x", "claw_id": "analyst", **event}) + "\n", encoding="utf-8")
    found = report(made, str(made.log))
    assert (found.unread.lines, [one.name for one in found.events]) == (0, [event["type"]])


@pytest.mark.requirement("audit:damaged")
def test_a_packed_log_that_is_cut_or_damaged_counts_as_far_as_it_goes_and_is_named(made: Made) -> None:
    for number in range(2000):
        made.ends(f"log{number}", noise=os.urandom(20).hex())
    packed = gzip.compress(made.log.read_bytes())
    for damaged in (packed[: len(packed) // 2], packed[: len(packed) // 2] + b"\0" * 400):
        made.log.write_bytes(damaged)
        found = report(made, str(made.log))
        assert 1 < found.turns.total < 2001
        assert [why.removeprefix(f"{made.log}: ") for why in found.unread.files] in (["is cut off"], ["is damaged"])


@pytest.mark.requirement("audit:damaged")
def test_what_can_not_be_opened_is_named_and_the_others_count(made: Made) -> None:
    made.turn("t9", agent="clerk")
    made.file("clerk").unlink()
    os.mkfifo(made.file("clerk"))
    found = report(made, str(made.log) + ".gone")
    assert found.turns.total == 1
    assert found.unread.files == (
        f"{made.file('clerk')}: is no regular file",
        f"{made.log}.gone: No such file or directory",
    )


@pytest.mark.requirement("audit:constant-memory")
def test_names_without_number_stand_in_one_row(made: Made) -> None:
    for number in range(MOST_ROWS + 50):
        made.ends(f"a{number}", agent=f"agent-{number}")
    found = report(made, str(made.log))
    assert len(found.agents) == MOST_ROWS + 1
    assert (found.agents[-1].agent, found.agents[-1].turns.total) == (OTHERS, 51)


@pytest.mark.requirement("audit:constant-memory")
def test_a_line_that_is_too_long_is_passed_over_piece_by_piece() -> None:
    left = [b"x" * (1 << 20)] * (3 * (LINE_LIMIT >> 20)) + [b"\nshort\n", b"last"]
    pieces = iter([*left, b""])
    found = [(one.number, one.data, one.offset) for one in lines(lambda _most: next(pieces))]
    size = 3 * LINE_LIMIT
    assert found == [(1, None, 0), (2, b"short\n", size + 1), (3, b"last", size + 7)]


MEASURED = """
import resource, sys
from pathlib import Path
from claw_audit.audit import Asked, audit
from claw_audit.chains import verify
from claw_audit.choice import Choice
history, log = Path(sys.argv[1]), sys.argv[2]
audit(Asked((history,), ()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = audit(Asked((history,), (log,)))
chains = verify((history,), (log,))
print(found.turns.total, found.unread.lines, chains[0].lines, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.requirement("audit:constant-memory")
@pytest.mark.long
def test_files_of_any_size_are_read_in_constant_memory(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.turn("t1", call(), request_original="x" * 250_000)
    whole = made.file().read_bytes()
    with made.file().open("wb") as file:
        file.writelines([whole] * 600)  # 150 MB
        file.truncate(file.tell() + (200 << 20))  # and a line of nothing, which takes no room on the disk
    made.ends("t1")
    ends = made.log.read_bytes()
    with gzip.open(made.log, "wb", compresslevel=1) as packed:
        packed.writelines([ends * 1000] * 30)
    command = [sys.executable, "-c", MEASURED, str(made.directory), str(made.log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    turns, unread, chain, kilobytes = map(int, done.stdout.split())
    assert (turns, unread, chain) == (600, 1, 600)
    assert kilobytes < 60_000


@pytest.mark.requirement("audit:moving")
def test_what_is_written_and_rotated_while_it_is_read_neither_counts_twice_nor_breaks_the_chain(tmp_path: Path) -> None:
    made = Made(tmp_path, 40_000)
    writes = iter(range(100_000))

    def goes_on() -> None:
        for _ in range(60):
            made.turn(f"t{next(writes)}", call())

    goes_on()
    totals = []
    for _ in range(5):
        told = audit(Asked((made.directory,)), each=lambda _row: made.turn(f"t{next(writes)}", call()))
        totals.append(told.turns.total)
        assert told.unread.lines == 0
        assert not any(verdict.broken for verdict in verify((made.directory,)))
    assert all(0 < total <= 100 for total in totals)


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize(
    "ts", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", "1969-12-31T00:00:00Z", "-" * 999, ""]
)
def test_a_time_that_is_none_is_no_time(made: Made, ts: str) -> None:
    made.turn("t2", call(ts * 1000), ts=ts)
    found = report(made)
    assert (found.turns.total, found.first, found.last) == (2, *["2026-01-01T00:00:00.000Z"] * 2)
    assert max(len(row.ts) + len(row.tool) for row in found.calls) < 500
    assert audit(Asked((made.directory,), choice=Choice(since=0.0))).turns.total == 1
