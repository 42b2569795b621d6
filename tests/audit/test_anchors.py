"""The hash chain and its log: history has every line that the log knows, except those that the proxy rotated away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_audit.verify import verify
from tests.audit.proxy_files import ProxyFiles
from tests.audit.test_verify import said, verdict

OLDER = "history.jsonl.1"


def logged(files: ProxyFiles, *turn_ids: str, **more: str) -> None:
    """Append turns to history and to the log."""
    for turn_id in turn_ids:
        files.logged(turn_id, **more)


def turns(first: int, behind: int) -> list[str]:
    return [f"t{number}" for number in range(first, behind)]


def missing(files: ProxyFiles) -> tuple[int, str]:
    """Return the number of breaks, and the lines that the log records and history lacks."""
    result = verdict(files, log=True)
    return result.broken, result.findings[0].what.partition("records ")[2].partition(",")[0]


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    home = ProxyFiles(tmp_path)
    logged(home, *turns(0, 5))
    return home


@pytest.mark.requirement("audit:verify-anchor")
def test_only_a_log_shows_whole_lines_that_were_cut_off(files: ProxyFiles) -> None:
    files.file().write_bytes(b"".join(files.lines()[:4]))
    assert (verdict(files).broken, verdict(files).findings) == (0, ())
    assert missing(files) == (1, "1 line that is missing")
    shutil.rmtree(files.directory / "analyst")
    assert missing(files) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_a_missing_line_is_named_by_the_hash_in_the_log(files: ProxyFiles) -> None:
    events = files.log.read_text(encoding="utf-8").splitlines()
    files.file().write_bytes(b"".join(files.lines()[:3]))
    what = verdict(files, log=True).findings[0].what
    begun = what.partition("history_hash ")[2].partition("…")[0]
    assert [begun in event for event in events] == [False, False, False, True, False]


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("keep", [1, 4])
def test_cut_lines_are_missed_after_the_proxy_appended_more(files: ProxyFiles, keep: int) -> None:
    files.file().write_bytes(b"".join(files.lines()[:keep]))
    logged(files, "t5")
    assert verdict(files).findings == ()
    assert missing(files) == (1, "1 line that is missing" if keep == 4 else "4 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_a_deleted_history_is_missed_after_a_new_one_was_begun(files: ProxyFiles) -> None:
    files.file().unlink()
    logged(ProxyFiles(files.directory.parent), "t5")
    assert verdict(files).findings == ()
    assert missing(files) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_the_time_of_a_forged_line_excuses_no_missing_line(files: ProxyFiles) -> None:
    files.file().unlink()
    ProxyFiles(files.directory.parent).turn("t9", ts="2999-01-01T00:00:00.000Z")
    assert verdict(files).findings == ()
    assert missing(files) == (1, "5 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor")
def test_a_removed_beginning_is_missed_though_the_rest_looks_rotated(files: ProxyFiles) -> None:
    lines = files.lines()
    files.file(name=OLDER).write_bytes(lines[3])
    files.file().write_bytes(lines[4])
    assert said(verdict(files)) == [("note", OLDER, 1)]
    assert missing(files) == (1, "3 lines that are missing")


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
@pytest.mark.parametrize("restarted", [False, True])
def test_only_lines_that_the_proxy_rotated_away_may_be_missing(tmp_path: Path, *, restarted: bool) -> None:
    files = ProxyFiles(tmp_path, 2500)
    for turn_id in turns(0, 12):
        logged(ProxyFiles(tmp_path, 2500) if restarted else files, turn_id)
    result = verdict(files, log=True)
    assert (result.broken, said(result)) == (0, [("note", OLDER, 1)])
    assert 3 < result.lines < 12
    older = files.file(name=OLDER)
    kept = older.read_bytes().splitlines(keepends=True)
    older.write_bytes(b"".join(kept[1:]))
    assert verdict(files).broken == 0
    assert missing(files)[0] == 1


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
def test_a_crash_during_a_rotation_still_excuses_the_rotated_lines(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path, 2500)
    while not files.file(name=OLDER).exists():
        logged(files, "t")
    files.file().unlink()  # the crash came before the first line of the new file
    logs = files.log.read_bytes().splitlines(keepends=True)
    files.log.write_bytes(b"".join(logs[:-1]))
    again = ProxyFiles(tmp_path, 2500)
    while (first := again.file(name=OLDER).read_bytes().partition(b"\n")[0]) and b'"prev":"' + b"0" * 64 in first:
        logged(again, "u")
    result = verdict(again, log=True)
    assert (result.broken, said(result)) == (0, [("note", OLDER, 1)])


@pytest.mark.requirement("audit:verify-anchor", "audit:verify-benign")
@pytest.mark.parametrize("order", [lambda logs: logs, lambda logs: logs[::-1]])
def test_pieces_of_a_log_may_be_named_in_any_order(tmp_path: Path, order: Callable[[list[str]], list[str]]) -> None:
    files = ProxyFiles(tmp_path, 2500)
    logged(files, *turns(0, 14))
    events = files.log.read_bytes().splitlines(keepends=True)
    names = []
    for number, piece in enumerate((events[:2], events[2:7], events[7:])):
        file = tmp_path / f"log.{number}"
        file.write_bytes(b"".join(piece).replace(b'"ts":"20', b'"ts":"2%d' % number))  # a century between them
        names.append(str(file))
    (result,) = verify((files.directory,), tuple(order(names)))
    assert (result.broken, said(result)) == (0, [("note", OLDER, 1)])


@pytest.mark.requirement("audit:verify-anchor")
def test_a_line_may_be_in_any_of_several_directories(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    files = []
    for number, home in enumerate(homes):
        home.mkdir()
        files.append(ProxyFiles(home))
        logged(files[-1], *turns(3 * number, 3 * number + 3))
    places, logs = tuple(one.directory for one in files), tuple(str(one.log) for one in files)
    assert [one.broken for one in verify(places, logs)] == [0, 0]
    files[0].file().write_bytes(files[0].lines()[0])
    assert sum(one.broken for one in verify(places, logs)) == 1


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("strange", [5, None, "", "x" * 64, "0" * 63, "٠" * 64])
def test_an_invalid_hash_in_the_log_is_ignored(files: ProxyFiles, strange: object) -> None:
    files.ends("t9", history_hash=strange, history_rotated=strange)
    assert verdict(files, log=True).broken == 0
