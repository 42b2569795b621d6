"""The cost of a hostile file is bounded, in memory and in time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claw_audit.log_source import LogParser
from claw_audit.turns import UnreadableLineError
from tests.audit.proxy_files import ProxyFiles, call

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


@pytest.mark.requirement("audit:constant-memory")
@pytest.mark.parametrize("part", ["", "€"])
def test_any_number_of_small_parts_of_a_line_takes_bounded_memory(part: str) -> None:
    parser, line = LogParser(100_000), json.dumps({"log": part}).encode()
    for _ in range(500):
        assert parser.parse(line) is None
    with pytest.raises(UnreadableLineError, match="is longer"):
        list(map(parser.parse, [line] * 1000))


@pytest.mark.requirement("audit:damaged")
def test_a_line_of_digits_is_checked_in_linear_time(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path)
    files.turn("t1")
    with files.file().open("ab") as file:
        file.write(b"{" + b"1" * (4 << 20) + b"x\n")
    # In another process, which can be stopped.
    code = "import sys; from claw_cli.app import main; main()"
    command = [sys.executable, "-c", code, "audit", "verify", "--history", str(files.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, "has no seal" in done.stdout) == (1, True)
