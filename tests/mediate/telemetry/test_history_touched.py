"""Files of history that somebody else has changed: a cut is reported, and nothing
stops the proxy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_mediate.telemetry.history import AppendedLine, History
from tests.turns.desk import Desk

NONE = Redactor(())


def append(history: History, number: int) -> AppendedLine:
    return history.append(
        "analyst", {"version": 1, "turn_id": f"t{number}", "said": "x" * 100}, NONE
    )


def cut(file: Path) -> None:
    with file.open("rb+") as opened:
        opened.truncate(len(opened.readline()))


def replaced(file: Path) -> None:
    file.with_name("new").write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    file.with_name("new").replace(file)


def moved(file: Path) -> None:
    file.rename(file.with_name("history.jsonl-yesterday"))


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def longer(file: Path) -> None:
    append(History(file.parent.parent, 10**9), 9)


def rotated(file: Path) -> None:
    append(History(file.parent.parent, 10), 9)


@pytest.mark.requirement("log:history-cut")
@pytest.mark.parametrize(
    ("touched", "told"),
    [
        (cut, True),
        (replaced, True),
        (moved, False),
        (emptied, False),
        (longer, False),
        (rotated, False),
    ],
)
def test_only_a_file_that_was_cut_is_reported_and_only_once(
    tmp_path: Path, touched: Callable[[Path], None], *, told: bool
) -> None:
    history = History(tmp_path, 10**9)
    for number in range(3):
        append(history, number)
    touched(tmp_path / "analyst" / "history.jsonl")
    assert [append(history, number).is_cut for number in (3, 4)] == [told, False]


@pytest.mark.requirement("log:history-hash")
def test_a_line_says_whether_it_begins_a_file_since_the_one_before_was_full(tmp_path: Path) -> None:
    history = History(tmp_path, 600)
    assert [append(history, number).has_rotated for number in range(7)] == [
        False,
        False,
        True,
        False,
        True,
        False,
        True,
    ]
    assert [append(History(tmp_path, 600), number).has_rotated for number in range(2)] == [
        False,
        True,
    ]
    moved(tmp_path / "analyst" / "history.jsonl")
    assert append(
        History(tmp_path, 10**9), 9
    ).has_rotated  # as after a crash before the line was written
    assert not append(history, 10).has_rotated


@pytest.mark.requirement("log:history-cut")
async def test_the_log_reports_a_cut_history_and_with_the_turns_end_a_rotation(
    desk: Desk,
) -> None:
    for words in ("One", "Two"):
        desk.model_says("Done.")
        await desk.asks(words)
    cut(desk.home / "history" / "analyst" / "history.jsonl")
    desk.model_says("Done.")
    await desk.asks("Three")
    (told,) = desk.told("error")
    assert (told["error"], told["claw_id"]) == ("history_cut", "analyst")
    ends = desk.told("response")
    assert told["turn_id"] == ends[-1]["turn_id"]
    assert not any("history_rotated" in end for end in ends)
    assert [line["hash"] for line in desk.history()] == [
        ends[0]["history_hash"],
        ends[2]["history_hash"],
    ]


HANGS = """
import sys
from pathlib import Path
from tests.mediate.telemetry.test_history_touched import History, append
try:
    append(History(Path(sys.argv[1]), 10**9), 1)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.long
@pytest.mark.requirement("history:no-file")
@pytest.mark.parametrize("read", [False, True])
def test_a_pipe_in_place_of_the_file_is_an_error_at_once(tmp_path: Path, *, read: bool) -> None:
    file = tmp_path / "analyst" / "history.jsonl"
    file.parent.mkdir()
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK) if read else None
    # In another process, because a hanging one must be stopped.
    command = [sys.executable, "-c", HANGS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "is no regular file\n"
    if reader is not None:
        os.close(reader)


@pytest.mark.requirement("history:no-file")
def test_a_pipe_in_place_of_an_older_file_is_an_error_at_once(
    tmp_path: Path,
) -> None:
    file = tmp_path / "analyst" / "history.jsonl.1"
    file.parent.mkdir()
    os.mkfifo(file)
    command = [sys.executable, "-c", HANGS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout


@pytest.mark.requirement("history:no-file")
def test_a_directory_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "analyst" / "history.jsonl").mkdir(parents=True)
    with pytest.raises(OSError, match="is no regular file"):
        append(History(tmp_path, 10**9), 1)


@pytest.mark.requirement("log:history-cut")
def test_a_cut_is_reported_after_the_file_could_not_be_looked_at(tmp_path: Path) -> None:
    history = History(tmp_path, 10**9)
    file = tmp_path / "analyst" / "history.jsonl"
    for number in range(3):
        append(history, number)
    aside = file.rename(file.with_name("aside"))
    file.mkdir()
    with pytest.raises(OSError, match="no regular file"):
        append(history, 3)

    file.rmdir()
    aside.rename(file)
    cut(file)
    assert append(history, 4).is_cut
