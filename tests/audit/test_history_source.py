"""History as turns: any number of attempts at one, and any number in one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from claw_audit.history_source import find_turns
from tests.audit.proxy_files import ProxyFiles, call
from tests.audit.test_audit_hostile import line

HELD = """
import resource, sys
from pathlib import Path
from claw_audit.history_source import find_turns
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = find_turns((Path(sys.argv[1]),), "t1").turns["t1"]
print(found.count, len(found.earlier()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.requirement("audit:constant-memory")
def test_any_number_of_attempts_at_a_turn_takes_bounded_memory(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path)
    files.turn("t1", call(), request_original={"x": ["y"] * 20_000})
    whole = files.file().read_bytes()
    with files.file().open("wb") as file:
        file.writelines([whole] * 400)
    command = [sys.executable, "-c", HELD, str(files.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, earlier, kilobytes = map(int, done.stdout.split())
    assert (count, earlier) == (400, 100)
    assert kilobytes < 60_000


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize("odd", ["1e400", "-1E99999999999999999999", "9" * 5000])
def test_a_turn_is_found_whatever_number_a_peer_has_said(
    files_of_a_turn: ProxyFiles, odd: str
) -> None:
    files_of_a_turn.file().write_bytes(
        line(response={"format": "json", "json": "odd"}).replace(b'"odd"', odd.encode()) + b"\n"
    )
    assert (
        find_turns((files_of_a_turn.directory,), "t2").turns["t2"].last["response"]["json"] == odd
    )
