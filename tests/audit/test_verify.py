"""The chain's walk: what was done to a file is found, what a crash or a rotation does is no break."""

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

from claw_audit.chains import verify
from claw_audit.verify import Verdict
from tests.audit.made import Made


def verdict(made: Made, *, log: bool = False) -> Verdict:
    (found,) = verify((made.directory,), (str(made.log),) if log else ())
    return found


def said(found: Verdict) -> list[tuple[str, str, int]]:
    return [(one.kind, Path(one.file).name, one.line) for one in found.findings]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Five turns, and a log that knows their lines."""
    home = Made(tmp_path)
    for number in range(5):
        home.logged(f"t{number}")
    return home


@pytest.mark.requirement("audit:verify")
def test_a_chain_that_nobody_touched_holds(made: Made) -> None:
    found = verdict(made, log=True)
    assert (found.broken, found.lines, found.findings) == (0, 5, ())


@pytest.mark.requirement("audit:verify")
@pytest.mark.parametrize(
    ("change", "line", "what"),
    [
        (lambda ls: [*ls[:2], ls[2].replace(b'"t2"', b'"tX"'), *ls[3:]], 3, "edited"),
        (lambda ls: [ls[0], *ls[2:]], 2, "removed"),
        (lambda ls: ls[1:], 1, "missing"),
        (lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], 2, "moved"),
        (lambda ls: [*ls[:3], ls[2], *ls[3:]], 4, "once more"),
        (lambda ls: [*ls[:2], b'{"version":1}\n', *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:2], b"\n", *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:2], b"\x00\xff\n", *ls[2:]], 3, "no seal"),
        (lambda ls: [*ls[:4], ls[4][:40] + b"\n"], 5, "rest of it"),
    ],
)
def test_the_first_broken_line_is_named_with_its_place_and_what_was_done(
    made: Made, change: Callable[[list[bytes]], list[bytes]], line: int, what: str
) -> None:
    changed = change(made.lines())
    made.file().write_bytes(b"".join(changed))
    found = verdict(made)
    first = found.findings[0]
    assert (first.kind, first.line, first.offset) == ("broken", line, len(b"".join(changed[: line - 1])))
    assert what in first.what


@pytest.mark.requirement("audit:verify")
def test_a_line_of_another_agents_chain_does_not_pass_for_ones_own(made: Made) -> None:
    made.turn("t9", agent="clerk")
    shutil.copy(made.file(), made.file("clerk"))
    first = next(found for found in verify((made.directory,)) if found.agent == "clerk").findings[0]
    assert (first.kind, first.line, first.what) == ("broken", 1, "is a line of another agent")


@pytest.mark.requirement("audit:verify-benign")
@pytest.mark.parametrize("keep", [1, 60, -2, -80, -200])
def test_a_torn_end_is_no_break_and_is_said(made: Made, keep: int) -> None:
    lines = made.lines()
    made.file().write_bytes(b"".join(lines[:4]) + lines[4][:keep])
    found = verdict(made)
    assert (found.broken, found.lines, said(found)) == (0, 4, [("note", "history.jsonl", 5)])
    Made(made.directory.parent).turn("t5")
    found = verdict(made)
    assert (found.broken, found.lines, said(found)) == (0, 5, [("note", "history.jsonl", 5)])


@pytest.mark.requirement("audit:verify-benign")
@pytest.mark.parametrize("keep", [0, 1, 60, -80])
def test_zeros_at_the_end_where_power_was_lost_are_no_break_and_are_said(made: Made, keep: int) -> None:
    lines = made.lines()
    made.file().write_bytes(b"".join(lines[:4]) + lines[4][:keep] + b"\0" * 4096)
    found = verdict(made)
    assert (found.broken, found.lines, said(found)) == (0, 4, [("note", "history.jsonl", 5)])
    Made(made.directory.parent).turn("t5")
    found = verdict(made)
    assert (found.broken, found.lines, said(found)) == (0, 5, [("note", "history.jsonl", 5)])


@pytest.mark.requirement("audit:verify-benign")
def test_an_end_that_lacks_its_line_break_only_is_a_line(made: Made) -> None:
    made.file().write_bytes(made.file().read_bytes()[:-1])
    assert (verdict(made).lines, verdict(made).findings) == (5, ())
    Made(made.directory.parent).turn("t5")
    assert (verdict(made).lines, verdict(made).findings) == (6, ())


@pytest.mark.requirement("audit:verify-benign")
def test_a_beginning_that_was_rotated_away_is_no_break_and_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path, 2500)
    for number in range(9):
        made.turn(f"t{number}")
    found = verdict(made)
    assert (found.broken, said(found)) == (0, [("note", "history.jsonl.1", 1)])
    assert 0 < found.lines < 9


@pytest.mark.requirement("audit:verify")
def test_an_older_file_that_was_removed_is_a_break(tmp_path: Path) -> None:
    made = Made(tmp_path, 2500)
    for number in range(9):
        made.turn(f"t{number}")
    made.file(name="history.jsonl.1").unlink()
    found = verdict(made)
    assert said(found) == [("broken", "history.jsonl", 1)]
    assert "history.jsonl.1 is missing" in found.findings[0].what


@pytest.mark.requirement("audit:verify")
def test_a_file_that_can_not_be_read_is_no_chain_that_holds(made: Made) -> None:
    made.file().chmod(0)
    command = [sys.executable, "-c", "from claw_cli.app import main; main()", "audit", "verify"]
    command += ["--history", str(made.directory)]
    if os.geteuid() == 0:  # root reads everything, unless this right is taken from it
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Permission denied" in done.stdout


@pytest.mark.requirement("audit:verify")
def test_what_is_no_file_is_no_history_and_is_not_waited_for(made: Made) -> None:
    made.file().unlink()
    os.mkfifo(made.file())
    assert verdict(made).findings[0].what == "is no regular file"


def four_lines() -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="claw-chain-") as home:
        made = Made(Path(home))
        for number in range(4):
            made.turn(f"t{number}")
        return made.lines()


LINES = four_lines()
BYTES = b"".join(LINES)
PLACES = st.integers(0, len(BYTES) - 1)
ORDERS = st.permutations(range(len(LINES)))


def after(data: bytes) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="claw-chain-") as home:
        made = Made(Path(home))
        made.file().parent.mkdir()
        made.file().write_bytes(data)
        return verdict(made)


@pytest.mark.requirement("audit:verify-property")
@given(PLACES, st.integers(1, 255))
def test_any_byte_that_is_changed_is_found(place: int, by: int) -> None:
    changed = bytearray(BYTES)
    changed[place] ^= by
    assert after(bytes(changed)).broken


@pytest.mark.requirement("audit:verify-property")
@given(PLACES, st.integers(1, 3000))
def test_any_stretch_that_is_removed_is_found_but_for_an_end(place: int, length: int) -> None:
    data = BYTES[:place] + BYTES[place + length :]
    found, rest = after(data), data.rpartition(b"\n")[2]
    if place + length < len(BYTES):
        assert found.broken
    elif rest:  # what a crash does: it is said, unless only the line break went
        assert [one.kind for one in found.findings] == ["note"] * (rest + b"\n" != LINES[-1])


@pytest.mark.requirement("audit:verify-property")
@given(st.integers(0, len(BYTES)), st.binary(min_size=1, max_size=40) | st.sampled_from(LINES))
def test_anything_that_is_put_in_is_found(place: int, more: bytes) -> None:
    found = after(BYTES[:place] + more + BYTES[place:])
    assert found.broken or found.findings


@pytest.mark.requirement("audit:verify-property")
@given(ORDERS, st.integers(1, len(LINES)))
def test_any_other_order_and_any_line_less_is_found_but_for_the_last_ones(order: list[int], kept: int) -> None:
    chosen = order[:kept]
    assert bool(after(b"".join(LINES[number] for number in chosen)).broken) == (chosen != list(range(kept)))
