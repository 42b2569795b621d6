"""Files that are damaged, hostile or endless: lines that can't be read are counted and named, and
nothing else happens.
"""

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

from claw_audit.audit import AuditQuery, Filters, audit
from claw_audit.history_source import find_turns
from claw_audit.report import Report
from claw_audit.sources import SourceError
from claw_audit.verify import verify
from tests.audit.proxy_files import ProxyFiles, call, entry


@pytest.fixture
def files(files_of_a_turn: ProxyFiles) -> ProxyFiles:
    return files_of_a_turn


def report(files: ProxyFiles, *logs: str) -> Report:
    return audit(AuditQuery((files.directory,), logs))


def line(**more: Any) -> bytes:
    return json.dumps({**entry("t2"), **more}).encode()


DAMAGED = {
    "half a line": (line()[:100], "is not JSON"),
    "damaged UTF-8": (
        line().replace(b'"analyst"', b'"\xff\xfe"').replace(b'"ok"', b'"\xc3"'),
        "is not JSON",
    ),
    "binary": (bytes(range(11, 256)), "is not JSON"),
    "no object": (b"[1]", "has an unexpected form: the whole line"),
    "another version": (line(version=2), "has another version"),
    "another version of another form": (b'{"version":2,"status":5}', "has another version"),
    "no version": (b'{"status":"ok","ts":"x"}', "lacks `version`"),
    "no turn": (line(turn_id=""), "has no turn id"),
    "a word for a number": (line(status_code="200"), "has an unexpected form: $.status_code"),
    "a call without a name": (line(tool_trace=[{"tool_calls": [{}]}]), "lacks `name`"),
    "deep": (
        b'{"version":1,"status":"ok","ts":"x","turn_id":"y","request_original":' + b"[" * 200_000,
        "is nested too deeply",
    ),
    "huge numbers": (
        line().replace(b"0.5", b"1e999"),
        "has an unexpected form: $.usage.reported_cost_usd",
    ),
    "empty": (b"", "is empty"),
    "terminal": (b"\x1b]0;owned\x07\x1b[2J", "is not JSON"),
}


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize("name", DAMAGED)
def test_an_unreadable_line_is_named_and_the_others_count(files: ProxyFiles, name: str) -> None:
    data, why = DAMAGED[name]
    first = files.file().read_bytes()
    files.file().write_bytes(first + data + b"\n" + first)
    result = report(files)
    assert (result.turns.total, result.unread.lines) == (2, 1)
    assert result.unread.first[0].startswith(f"{files.file()}:2 (byte {len(first)}) {why}")


@pytest.mark.requirement("audit:damaged")
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([data for data, _ in DAMAGED.values()]), max_size=6
    )
)
def test_no_content_of_a_file_raises_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes]
) -> None:
    files = ProxyFiles(tmp_path_factory.mktemp("hostile"))
    files.file().parent.mkdir()
    files.file().write_bytes(b"\n".join(data))
    files.log.write_bytes(b"\n".join(data))
    report(files, str(files.log))
    with suppress(SourceError):  # a compressed log that is cut can't be verified
        verify((files.directory,), (str(files.log),))
    find_turns((files.directory,), "t")


@pytest.mark.requirement("audit:damaged")
def test_a_line_that_is_still_being_written_is_ignored(files: ProxyFiles) -> None:
    with files.file().open("ab") as file:
        file.write(line()[:300])
    assert (report(files).turns.total, report(files).unread.lines) == (1, 0)


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "tool_call",
            "turn_id": [],
            "name": {},
            "latency_ms": "x",
            "round": -1,
            "status": 5,
            "code": [],
        },
        {
            "type": "response",
            "turn_id": "t",
            "cost_usd": "free",
            "tokens_in": 1.5,
            "latency_ms": [],
            "status_code": {},
        },
        {"type": "intervention", "intervention": 5},
        {"type": "error", "error": {"a": 1}, "total_rounds": True},
    ],
)
def test_an_event_with_members_of_wrong_types_still_counts(
    files: ProxyFiles, event: dict[str, Any]
) -> None:
    files.log.write_text(
        json.dumps({"ts": "x", "claw_id": "analyst", **event}) + "\n", encoding="utf-8"
    )
    result = report(files, str(files.log))
    assert (result.unread.lines, [one.name for one in result.events]) == (0, [event["type"]])


@pytest.mark.requirement("audit:damaged")
def test_a_damaged_gzip_log_is_named_and_counts_up_to_the_damage(files: ProxyFiles) -> None:
    for number in range(2000):
        files.ends(f"log{number}", noise=os.urandom(20).hex())
    packed = gzip.compress(files.log.read_bytes())
    for damaged in (packed[: len(packed) // 2], packed[: len(packed) // 2] + b"\0" * 400):
        files.log.write_bytes(damaged)
        result = report(files, str(files.log))
        assert 1 < result.turns.total < 2001
        assert [why.removeprefix(f"{files.log}: ") for why in result.unread.files] in (
            ["is cut off"],
            ["is damaged"],
        )


MEASURED = """
import resource, sys
from pathlib import Path
from claw_audit.audit import AuditQuery, audit
from claw_audit.verify import verify
from claw_audit.audit import Filters
history, log = Path(sys.argv[1]), sys.argv[2]
audit(AuditQuery((history,), ()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = audit(AuditQuery((history,), (log,)))
chains = verify((history,), (log,))
print(found.turns.total, found.unread.lines, chains[0].lines, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.requirement("audit:constant-memory")
@pytest.mark.long
def test_files_of_any_size_are_read_in_constant_memory(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path)
    files.turn("t1", call(), request_original="x" * 250_000)
    whole = files.file().read_bytes()
    with files.file().open("wb") as file:
        file.writelines([whole] * 360)  # 90 MB
        file.truncate(
            file.tell() + (100 << 20)
        )  # and a line of NUL bytes, which takes no room on the disk
    files.ends("t1")
    ends = files.log.read_bytes()
    with gzip.open(files.log, "wb", compresslevel=1) as packed:
        packed.writelines([ends * 1000] * 30)
    command = [sys.executable, "-c", MEASURED, str(files.directory), str(files.log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    turns, unread, chain, kilobytes = map(int, done.stdout.split())
    assert (turns, unread, chain) == (360, 1, 360)
    assert kilobytes < 60_000


@pytest.mark.requirement("audit:moving")
def test_writes_and_rotations_during_an_audit_count_nothing_twice_and_break_no_chain(
    tmp_path: Path,
) -> None:
    files = ProxyFiles(tmp_path, 40_000)
    writes = iter(range(100_000))

    def goes_on() -> None:
        for _ in range(60):
            files.turn(f"t{next(writes)}", call())

    goes_on()
    totals = []
    for _ in range(5):
        result = audit(
            AuditQuery((files.directory,)),
            on_call=lambda _row: files.turn(f"t{next(writes)}", call()),
        )
        totals.append(result.turns.total)
        assert result.unread.lines == 0
        assert not any(verdict.broken for verdict in verify((files.directory,)))
    assert all(0 < total <= 100 for total in totals)


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize(
    "ts",
    [
        "9999-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31T00:00:00Z",
        "-" * 999,
        "",
    ],
)
def test_an_invalid_time_is_ignored(files: ProxyFiles, ts: str) -> None:
    files.turn("t2", call(ts * 1000), ts=ts)
    result = report(files)
    assert (result.turns.total, result.first, result.last) == (2, *["2026-01-01T00:00:00.000Z"] * 2)
    assert max(len(row.ts) + len(row.tool) for row in result.calls) < 500
    assert audit(AuditQuery((files.directory,), filters=Filters(since=0.0))).turns.total == 1
