"""The hash chain and its log: history has every turn that the log names, and what
is missing is named.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_audit.verify import ChainVerdict, MissingTurns, verify
from tests.audit.proxy_files import ProxyFiles, json_lines
from tests.audit.test_verify import said, verdict

OLDER = "history.jsonl.1"


def logged(files: ProxyFiles, *turn_ids: str, **more: str) -> None:
    """Append turns to history and to the log."""
    for turn_id in turn_ids:
        files.logged(turn_id, **more)


def turns(first: int, behind: int) -> list[str]:
    """Return ids in the proxy's own form."""
    return [f"turn_{1 + number:032x}" for number in range(first, behind)]


def rotated_away(result: ChainVerdict, log: Path) -> tuple[str, ...]:
    """Return the turns that are missing because of a rotation, and for no other reason."""
    assert [(each.log, each.why) for each in result.missing] == [(str(log), "rotated")]
    (rotated,) = result.missing
    assert rotated.count == len(rotated.turns)
    return tuple(turn.turn_id for turn in rotated.turns)


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
def test_a_missing_turn_is_named_by_its_id_its_agent_its_time_and_its_hash(
    files: ProxyFiles,
) -> None:
    event = json_lines(files.log)[3]
    files.file().write_bytes(b"".join(files.lines()[:3]))
    (missing_turns,) = verdict(files, log=True).missing
    first, second = missing_turns.turns
    assert (missing_turns.why, missing_turns.count) == ("removed", 2)
    assert (first.turn_id, second.turn_id) == tuple(turns(3, 5))
    assert (first.agent, first.at, first.history_hash) == (
        "analyst",
        event["ts"],
        event["history_hash"][:16],
    )


@pytest.mark.requirement("audit:verify-anchor")
def test_of_thousands_of_missing_turns_the_first_are_named_and_all_are_counted(
    tmp_path: Path,
) -> None:
    files = ProxyFiles(tmp_path)
    logged(files, *turns(0, 2000))
    files.file().unlink()
    (missing_turns,) = verdict(files, log=True).missing
    assert (missing_turns.count, len(missing_turns.turns)) == (2000, 10)
    assert missing_turns.turns[9].turn_id == turns(9, 10)[0]


@pytest.mark.requirement("audit:verify-anchor")
def test_a_line_that_the_proxy_could_not_write_is_missing(files: ProxyFiles) -> None:
    files.events.event(
        "error",
        "analyst",
        turn_id="turn_x",
        error="history_not_written",
        reason="No space left on device",
    )
    (missing_turns,) = verdict(files, log=True).missing
    assert (missing_turns.why, missing_turns.count, missing_turns.turns[0].turn_id) == (
        "not written",
        1,
        "turn_x",
    )


@pytest.mark.requirement("audit:verify-benign")
def test_what_leaves_no_line_of_history_is_not_missed(files: ProxyFiles) -> None:
    files.events.event("request", "analyst", turn_id="running", mediated=True)
    files.events.event(
        "error", "analyst", turn_id="crashed", error="internal", reason="builtins.KeyError"
    )
    files.events.event("error", "analyst", turn_id=None, error="unauthorized")
    files.ends(
        "forwarded", total_rounds=0
    )  # a token count, or another path: forwarded, and no line
    result = verdict(files, log=True)
    assert (result.broken, result.findings) == (0, ())


@pytest.mark.requirement("audit:verify-benign")
@pytest.mark.parametrize("kept", [slice(2, None), slice(3), slice(1, 4), slice(0)])
def test_a_log_may_begin_later_and_end_earlier_than_history(files: ProxyFiles, kept: slice) -> None:
    events = files.log.read_bytes().splitlines(keepends=True)
    files.log.write_bytes(b"".join(events[kept]))
    result = verdict(files, log=True)
    assert (result.broken, result.findings) == (0, ())


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("keep", [1, 4])
def test_cut_lines_are_missed_after_the_proxy_appended_more(files: ProxyFiles, keep: int) -> None:
    files.file().write_bytes(b"".join(files.lines()[:keep]))
    logged(files, *turns(5, 6))
    assert verdict(files).findings == ()
    assert missing(files) == (
        1,
        "1 line that is missing" if keep == 4 else "4 lines that are missing",
    )


@pytest.mark.requirement("audit:verify-anchor")
def test_a_deleted_history_is_missed_after_a_new_one_was_begun(files: ProxyFiles) -> None:
    files.file().unlink()
    logged(ProxyFiles(files.directory.parent), *turns(5, 6))
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


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("restarted", [False, True])
def test_turns_that_were_rotated_away_are_missing_and_named(
    tmp_path: Path, *, restarted: bool
) -> None:
    files = ProxyFiles(tmp_path, 2500)
    for turn_id in turns(0, 12):
        logged(ProxyFiles(tmp_path, 2500) if restarted else files, turn_id)
    result = verdict(files, log=True)
    assert said(result) == [("broken", "history.jsonl", 0), ("note", OLDER, 1)]
    assert 3 < result.lines < 12
    assert rotated_away(result, files.log) == tuple(turns(0, 12 - result.lines))
    older = files.file(name=OLDER)
    kept = older.read_bytes().splitlines(keepends=True)
    older.write_bytes(b"".join(kept[1:]))
    assert verdict(files).broken == 0
    again = verdict(files, log=True)
    assert [each.why for each in again.missing] == [
        "removed"
    ]  # no logged rotation begins with what is first now


@pytest.mark.requirement("audit:verify-anchor")
def test_a_copy_of_the_older_files_completes_history(tmp_path: Path) -> None:
    """Files of a directory of archives count, whatever the number that they had there."""
    files = ProxyFiles(tmp_path, 2500)
    archive = tmp_path / "archive" / "analyst"
    archive.mkdir(parents=True)
    for number, turn_id in enumerate(turns(0, 12)):
        logged(files, turn_id)
        if files.file(name=OLDER).exists():
            shutil.copy(files.file(name=OLDER), archive / f"history.jsonl.{99 - number}")
    found = verify((files.directory, archive.parent), (str(files.log),))
    assert [each.missing for each in found] == [(), ()]


@pytest.mark.requirement("audit:verify-anchor", "history:rotation")
@pytest.mark.parametrize("generations", [1, 3, 5])
def test_as_many_older_files_as_the_setting_says_are_one_chain(
    tmp_path: Path, generations: int
) -> None:
    files = ProxyFiles(tmp_path, 2500, generations)
    logged(files, *turns(0, 40))
    names = sorted(path.name for path in files.file().parent.iterdir())
    assert names == [
        "history.jsonl",
        *(f"history.jsonl.{number}" for number in range(1, generations + 1)),
    ]
    result = verdict(files, log=True)
    assert said(result) == [
        ("broken", "history.jsonl", 0),
        ("note", f"history.jsonl.{generations}", 1),
    ]
    (rotated,) = result.missing
    assert (rotated.why, rotated.count) == ("rotated", 40 - result.lines)
    assert result.lines > 3 * generations


@pytest.mark.requirement("audit:verify-benign")
def test_a_crash_during_a_rotation_is_still_a_rotation(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path, 2500)
    while not files.file(name=OLDER).exists():
        logged(files, *turns(1, 2))
    files.file().unlink()  # the crash came before the first line of the new file
    logs = files.log.read_bytes().splitlines(keepends=True)
    files.log.write_bytes(b"".join(logs[:-1]))
    again = ProxyFiles(tmp_path, 2500)
    while (
        first := again.file(name=OLDER).read_bytes().partition(b"\n")[0]
    ) and b'"prev":"' + b"0" * 64 in first:
        logged(again, *turns(2, 3))
    result = verdict(again, log=True)
    assert set(rotated_away(result, again.log)) == set(turns(1, 2))


@pytest.mark.requirement("audit:verify-anchor")
@pytest.mark.parametrize("order", [lambda logs: logs, lambda logs: logs[::-1]])
def test_pieces_of_a_log_may_be_named_in_any_order(
    tmp_path: Path, order: Callable[[list[str]], list[str]]
) -> None:
    files = ProxyFiles(tmp_path, 2500)
    logged(files, *turns(0, 14))
    events = files.log.read_bytes().splitlines(keepends=True)
    names = []
    for number, piece in enumerate((events[:2], events[2:7], events[7:])):
        file = tmp_path / f"log.{number}"
        file.write_bytes(
            b"".join(piece).replace(b'"ts":"20', b'"ts":"2%d' % number)
        )  # a century between them
        names.append(str(file))
    (result,) = verify((files.directory,), tuple(order(names)))
    found: list[MissingTurns] = [*result.missing]
    assert {each.why for each in found} == {"rotated"}
    assert sum(each.count for each in found) == 14 - result.lines


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
