"""The chain and its log: every line that the log knows is there, but for what the proxy rotated away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_audit.verify import verify
from tests.audit.made import Made
from tests.audit.test_verify import said, verdict

OLDER = "history.jsonl.1"


def logged(made: Made, *turn_ids: str, **more: str) -> None:
    """Turns, in history and in the log."""
    for turn_id in turn_ids:
        made.logged(turn_id, **more)


def turns(first: int, behind: int) -> list[str]:
    return [f"t{number}" for number in range(first, behind)]


def missing(made: Made) -> tuple[int, str]:
    """How often the chain is broken, and what of the log's is not there."""
    found = verdict(made, log=True)
    return found.broken, found.findings[0].what.partition("records ")[2].partition(",")[0]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    home = Made(tmp_path)
    logged(home, *turns(0, 5))
    return home


@pytest.mark.requirement("audit:verify-anchor")
def test_lines_that_were_cut_off_at_a_lines_end_show_to_who_has_the_log_and_to_nobody_else(made: Made) -> None:
    made.file().write_bytes(b"".join(made.lines()[:4]))
    assert (verdict(made).broken, verdict(made).findings) == (0, ())
    assert missing(made) == (1, "1 line that is missing")
    shutil.rmtree(made.directory / "analyst")
    assert missing(made) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_what_is_not_there_is_named_as_the_log_names_it(made: Made) -> None:
    events = made.log.read_text(encoding="utf-8").splitlines()
    made.file().write_bytes(b"".join(made.lines()[:3]))
    what = verdict(made, log=True).findings[0].what
    begun = what.partition("history_hash ")[2].partition("…")[0]
    assert [begun in event for event in events] == [False, False, False, True, False]


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("keep", [1, 4])
def test_lines_that_were_cut_off_show_also_when_the_proxy_has_gone_on_behind_the_cut(made: Made, keep: int) -> None:
    made.file().write_bytes(b"".join(made.lines()[:keep]))
    logged(made, "t5")
    assert verdict(made).findings == ()
    assert missing(made) == (1, "1 line that is missing" if keep == 4 else "4 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_a_history_that_was_deleted_shows_also_when_another_one_was_begun(made: Made) -> None:
    made.file().unlink()
    logged(Made(made.directory.parent), "t5")
    assert verdict(made).findings == ()
    assert missing(made) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_what_a_forged_line_says_of_its_time_excuses_nothing(made: Made) -> None:
    made.file().unlink()
    Made(made.directory.parent).turn("t9", ts="2999-01-01T00:00:00.000Z")
    assert verdict(made).findings == ()
    assert missing(made) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_a_beginning_that_was_removed_shows_though_the_rest_looks_rotated(made: Made) -> None:
    lines = made.lines()
    made.file(name=OLDER).write_bytes(lines[3])
    made.file().write_bytes(lines[4])
    assert said(verdict(made)) == [("note", OLDER, 1)]
    assert missing(made) == (1, "3 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_the_proxy_rotated_away_is_not_missed_and_all_else_is(tmp_path: Path, *, restarted: bool) -> None:
    made = Made(tmp_path, 2500)
    for turn_id in turns(0, 12):
        logged(Made(tmp_path, 2500) if restarted else made, turn_id)
    found = verdict(made, log=True)
    assert (found.broken, said(found)) == (0, [("note", OLDER, 1)])
    assert 3 < found.lines < 12
    older = made.file(name=OLDER)
    kept = older.read_bytes().splitlines(keepends=True)
    older.write_bytes(b"".join(kept[1:]))
    assert verdict(made).broken == 0
    assert missing(made)[0] == 1


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
def test_a_crash_within_a_rotation_excuses_what_was_rotated_away_too(tmp_path: Path) -> None:
    made = Made(tmp_path, 2500)
    while not made.file(name=OLDER).exists():
        logged(made, "t")
    made.file().unlink()  # the first line behind it never came to be
    logs = made.log.read_bytes().splitlines(keepends=True)
    made.log.write_bytes(b"".join(logs[:-1]))
    again = Made(tmp_path, 2500)
    while (first := again.file(name=OLDER).read_bytes().partition(b"\n")[0]) and b'"prev":"' + b"0" * 64 in first:
        logged(again, "u")
    found = verdict(again, log=True)
    assert (found.broken, said(found)) == (0, [("note", OLDER, 1)])


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
@pytest.mark.parametrize("order", [lambda logs: logs, lambda logs: logs[::-1]])
def test_a_log_in_pieces_is_one_log_in_whatever_order_they_are_named(
    tmp_path: Path, order: Callable[[list[str]], list[str]]
) -> None:
    made = Made(tmp_path, 2500)
    logged(made, *turns(0, 14))
    events = made.log.read_bytes().splitlines(keepends=True)
    names = []
    for number, piece in enumerate((events[:2], events[2:7], events[7:])):
        file = tmp_path / f"log.{number}"
        file.write_bytes(b"".join(piece).replace(b'"ts":"20', b'"ts":"2%d' % number))  # a century between them
        names.append(str(file))
    (found,) = verify((made.directory,), tuple(order(names)))
    assert (found.broken, said(found)) == (0, [("note", OLDER, 1)])


@pytest.mark.requirement("audit:verify-anchor")
def test_lines_in_any_of_several_directories_are_there(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    made = []
    for number, home in enumerate(homes):
        home.mkdir()
        made.append(Made(home))
        logged(made[-1], *turns(3 * number, 3 * number + 3))
    places, logs = tuple(one.directory for one in made), tuple(str(one.log) for one in made)
    assert [one.broken for one in verify(places, logs)] == [0, 0]
    made[0].file().write_bytes(made[0].lines()[0])
    assert sum(one.broken for one in verify(places, logs)) == 1


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("strange", [5, None, "", "x" * 64, "0" * 63, "٠" * 64])
def test_a_hash_that_is_none_is_missed_by_nobody(made: Made, strange: object) -> None:
    made.ends("t9", history_hash=strange, history_rotated=strange)
    assert verdict(made, log=True).broken == 0
