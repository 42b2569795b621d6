"""Verification of the hash chain: changes to a file are found; a crash or a
rotation is no break.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_audit.verify import ChainVerdict, verify
from tests.audit.proxy_files import ProxyFiles


def verdict(files: ProxyFiles, *, log: bool = False) -> ChainVerdict:
    (result,) = verify((files.directory,), (str(files.log),) if log else ())
    return result


def said(result: ChainVerdict) -> list[tuple[str, str, int]]:
    return [(one.kind, Path(one.file).name, one.line) for one in result.findings]


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    """Return the files of five turns, and a log that knows their lines."""
    home = ProxyFiles(tmp_path)
    for number in range(5):
        home.logged(f"t{number}")
    return home


@pytest.mark.requirement("audit:verify")
def test_an_untouched_chain_holds(files: ProxyFiles) -> None:
    result = verdict(files, log=True)
    assert (result.broken, result.lines, result.findings) == (0, 5, ())


@pytest.mark.requirement("audit:verify")
@pytest.mark.parametrize(
    ("change", "line", "what"),
    [
        (lambda ls: [*ls[:2], ls[2].replace(b'"t2"', b'"tX"'), *ls[3:]], 3, "edited"),
        (lambda ls: [ls[0], *ls[2:]], 2, "removed"),
        (lambda ls: ls[1:], 1, "missing"),
        (lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], 2, "moved"),
        (lambda ls: [*ls[:3], ls[2], *ls[3:]], 4, "repeats"),
        (lambda ls: [*ls[:2], b'{"version":1}\n', *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:2], b"\n", *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:2], b"\x00\xff\n", *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:4], ls[4][:40] + b"\n"], 5, "rest of it"),
    ],
)
def test_the_first_broken_line_is_named_with_its_place_and_the_reason(
    files: ProxyFiles, change: Callable[[list[bytes]], list[bytes]], line: int, what: str
) -> None:
    changed = change(files.lines())
    files.file().write_bytes(b"".join(changed))
    result = verdict(files)
    first = result.findings[0]
    assert (first.kind, first.line, first.offset) == (
        "broken",
        line,
        len(b"".join(changed[: line - 1])),
    )
    assert what in first.what


@pytest.mark.requirement("audit:verify")
def test_a_line_of_another_agent_breaks_the_chain(files: ProxyFiles) -> None:
    files.turn("t9", agent="clerk")
    shutil.copy(files.file(), files.file("clerk"))
    first = next(
        result for result in verify((files.directory,)) if result.agent == "clerk"
    ).findings[0]
    assert (first.kind, first.line, first.what) == ("broken", 1, "is a line of another agent")


@pytest.mark.requirement("audit:verify-benign")
@pytest.mark.parametrize("keep", [1, 60, -2, -80, -200])
def test_a_torn_end_is_a_note(files: ProxyFiles, keep: int) -> None:
    lines = files.lines()
    files.file().write_bytes(b"".join(lines[:4]) + lines[4][:keep])
    result = verdict(files)
    assert (result.broken, result.lines, said(result)) == (0, 4, [("note", "history.jsonl", 5)])
    ProxyFiles(files.directory.parent).turn("t5")
    result = verdict(files)
    assert (result.broken, result.lines, said(result)) == (0, 5, [("note", "history.jsonl", 5)])


@pytest.mark.requirement("audit:verify-benign")
@pytest.mark.parametrize("keep", [0, 1, 60, -80])
def test_zero_bytes_after_a_power_failure_are_a_note(files: ProxyFiles, keep: int) -> None:
    lines = files.lines()
    files.file().write_bytes(b"".join(lines[:4]) + lines[4][:keep] + b"\0" * 4096)
    result = verdict(files)
    assert (result.broken, result.lines, said(result)) == (0, 4, [("note", "history.jsonl", 5)])
    ProxyFiles(files.directory.parent).turn("t5")
    result = verdict(files)
    assert (result.broken, result.lines, said(result)) == (0, 5, [("note", "history.jsonl", 5)])


@pytest.mark.requirement("audit:verify-benign")
def test_a_last_line_without_a_line_break_is_a_line(files: ProxyFiles) -> None:
    files.file().write_bytes(files.file().read_bytes()[:-1])
    assert (verdict(files).lines, verdict(files).findings) == (5, ())
    ProxyFiles(files.directory.parent).turn("t5")
    assert (verdict(files).lines, verdict(files).findings) == (6, ())


@pytest.mark.requirement("audit:verify-benign")
def test_a_rotated_beginning_is_a_note(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path, 2500)
    for number in range(9):
        files.turn(f"t{number}")
    result = verdict(files)
    assert (result.broken, said(result)) == (0, [("note", "history.jsonl.1", 1)])
    assert 0 < result.lines < 9


@pytest.mark.requirement("audit:verify")
def test_a_removed_rotated_file_breaks_the_chain(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path, 2500)
    for number in range(9):
        files.turn(f"t{number}")
    files.file(name="history.jsonl.1").unlink()
    result = verdict(files)
    assert said(result) == [("broken", "history.jsonl", 1)]
    assert "history.jsonl.1 is missing" in result.findings[0].what


@pytest.mark.requirement("audit:verify")
def test_an_unreadable_file_breaks_the_chain(files: ProxyFiles) -> None:
    files.file().chmod(0)
    command = [sys.executable, "-c", "from claw_cli.app import main; main()", "audit", "verify"]
    command += ["--history", str(files.directory)]
    if os.geteuid() == 0:  # root may read every file unless these capabilities are dropped
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Permission denied" in done.stdout


@pytest.mark.requirement("audit:verify")
def test_a_pipe_breaks_the_chain_and_is_not_read(files: ProxyFiles) -> None:
    files.file().unlink()
    os.mkfifo(files.file())
    assert verdict(files).findings[0].what == "is not a regular file"


def four_lines() -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="claw-chain-") as home:
        files = ProxyFiles(Path(home))
        for number in range(4):
            files.turn(f"t{number}")
        return files.lines()


LINES = four_lines()
BYTES = b"".join(LINES)
PLACES = st.integers(0, len(BYTES) - 1)
ORDERS = st.permutations(range(len(LINES)))


def after(data: bytes) -> ChainVerdict:
    with tempfile.TemporaryDirectory(prefix="claw-chain-") as home:
        files = ProxyFiles(Path(home))
        files.file().parent.mkdir()
        files.file().write_bytes(data)
        return verdict(files)


@pytest.mark.requirement("audit:verify-property")
@given(PLACES, st.integers(1, 255))
def test_any_changed_byte_is_found(place: int, by: int) -> None:
    changed = bytearray(BYTES)
    changed[place] ^= by
    assert after(bytes(changed)).broken


@pytest.mark.requirement("audit:verify-property")
@given(PLACES, st.integers(1, 3000))
def test_any_removed_stretch_is_found_unless_it_is_the_end(place: int, length: int) -> None:
    data = BYTES[:place] + BYTES[place + length :]
    result, rest = after(data), data.rpartition(b"\n")[2]
    if place + length < len(BYTES):
        assert result.broken
    elif rest:  # a crash cuts off the end: that is noted, unless only the line break is missing
        assert [one.kind for one in result.findings] == ["note"] * (rest + b"\n" != LINES[-1])


@pytest.mark.requirement("audit:verify-property")
@given(st.integers(0, len(BYTES)), st.binary(min_size=1, max_size=40) | st.sampled_from(LINES))
def test_any_insertion_is_found(place: int, more: bytes) -> None:
    result = after(BYTES[:place] + more + BYTES[place:])
    assert result.broken or result.findings


@pytest.mark.requirement("audit:verify-property")
@given(ORDERS, st.integers(1, len(LINES)))
def test_any_other_order_and_any_missing_line_is_found_unless_it_is_the_last(
    order: list[int], kept: int
) -> None:
    chosen = order[:kept]
    assert bool(after(b"".join(LINES[number] for number in chosen)).broken) == (
        chosen != list(range(kept))
    )


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
