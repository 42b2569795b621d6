"""Reading a state's file changes nothing, whoever has it open or left it open; deleted data is not
on the disk any more.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_state.continuity import Anchor
from claw_state.journal import RequestFingerprint, StoredResponse
from claw_state.lease import LeaseOwner
from claw_state.sqlite import inventory as sqlite_inventory
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.inventory import SqliteInventory
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.schema import TURNS, open_database
from claw_state.url import File, StoreError, parse_place

HIDDEN = b"planted-hidden-round"


def files(directory: Path) -> dict[str, bytes]:
    """Return the content of each file; that of the index is left out, since every
    reading process writes there.
    """
    return {
        file.name: b"" if file.name.endswith("-shm") else file.read_bytes()
        for file in sorted(directory.iterdir())
    }


@contextmanager
def written(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield another process that has written the file, and has it open until it is
    told to end or is killed.
    """
    code = (
        "import asyncio, sys\n"
        "from claw_state.continuity import Anchor\n"
        "from claw_state.sqlite.continuity import SqliteContinuityStore\n"
        "from claw_state.sqlite.connection import Database\n"
        "store = SqliteContinuityStore(Database(sys.argv[1]))\n"
        f"asyncio.run(store.save('analyst', Anchor('x', ()), '', {HIDDEN!r}))\n"
        "print('written', flush=True)\n"
        "sys.stdin.read()\n"
        "asyncio.run(store.close())\n"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(file)], **streams) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def told(file: Path) -> list[tuple[str, int]]:
    return [
        (state.agent, state.rounds.count)
        for state in SqliteInventory(File(str(file))).inventory().agents
    ]


@pytest.mark.requirement("state:inventory")
def test_reading_changes_no_file_whether_a_proxy_runs_was_killed_or_ended(
    tmp_path: Path,
) -> None:
    home, copied = tmp_path / "home", tmp_path / "copied"
    home.mkdir()
    with written(home / "s.db") as process:
        before = files(home)
        assert list(before) == ["s.db", "s.db-shm", "s.db-wal"]
        assert told(home / "s.db") == [("analyst", 1)]
        assert files(home) == before
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert told(home / "s.db") == [("analyst", 1)]
    assert files(home) == before
    shutil.copytree(home, copied)
    (copied / "s.db-shm").unlink()
    assert told(copied / "s.db") == [("analyst", 1)]
    assert list(files(copied)) == ["s.db", "s.db-wal"]
    with written(home / "s.db") as process:
        process.communicate("")
    assert list(files(home)) == ["s.db"]
    before = files(home)
    assert told(home / "s.db") == [("analyst", 2)]
    assert files(home) == before


@pytest.mark.requirement("state:inventory", "store:whole")
def test_a_link_to_a_file_is_that_file_with_what_stands_beside_it(tmp_path: Path) -> None:
    link, home = tmp_path / "link.db", tmp_path / "home"
    home.mkdir()
    link.symlink_to(home / "s.db")
    assert parse_place(str(link)) == File(str(home / "s.db"))
    with written(home / "s.db"):
        found = CliRunner().invoke(app, ["state", "--state", str(link), "--json"])
        assert [one["agent"] for one in json.loads(found.stdout)["agents"]] == ["analyst"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["home", "link.db"]


@pytest.mark.requirement("state:inventory")
def test_a_file_in_which_nothing_stands_yet_is_an_empty_state(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    assert told(tmp_path / "s.db") == []
    assert files(tmp_path) == {"s.db": b""}


@pytest.mark.requirement("state:forget")
async def test_deleted_data_is_in_no_byte_of_the_file_or_its_log(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    store, journal = (
        SqliteContinuityStore(Database(str(file))),
        SqliteJournal(Database(str(file)), LeaseOwner.current()),
    )
    for number in range(40):
        await store.save("analyst", Anchor(f"x{number}", ()), "", HIDDEN * 5000)
        await journal.begin(
            f"t{number}", "analyst", RequestFingerprint(f"t{number}", "", "planted-words", "")
        )
        await journal.record_response(f"t{number}", 1, b"planted-reply" * 5000)
        await journal.end(f"t{number}", StoredResponse(200, "text/plain", b"planted-answer" * 5000))
    await store.save("executor", Anchor("x", ()), "", b"another's")
    forgotten = SqliteInventory(File(str(file))).forget("analyst")
    assert forgotten is not None
    assert (forgotten.rounds, forgotten.turns, forgotten.lingers) == (40, 40, False)
    held = b"".join(files(tmp_path).values())
    assert b"another's" in held
    assert b"planted" not in held
    assert file.stat().st_size < 500_000, "of nine megabytes"
    await store.save("analyst", Anchor("x", ()), "", b"anew")
    assert [one.messages for one in await store.find("analyst", ["x"])] == [b"anew"]
    await store.close()
    await journal.close()


@pytest.mark.requirement("state:forget")
async def test_a_log_that_somebody_reads_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    store = SqliteContinuityStore(Database(str(file)))
    await store.save("analyst", Anchor("x", ()), "", HIDDEN)
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM kept").fetchall()
        forgotten = SqliteInventory(File(str(file))).forget("analyst")
    assert forgotten is not None
    assert (forgotten.rounds, forgotten.lingers) == (1, True)
    await store.close()


@pytest.mark.requirement("state:errors")
def test_a_lock_that_does_not_end_is_an_error_and_nothing_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_inventory, "_PATIENCE_SECONDS", 0.01)
    file = tmp_path / "s.db"
    with closing(open_database(str(file), TURNS)) as database:
        database.execute(
            "INSERT INTO turns VALUES ('t', 'analyst', '', '', '', '', 'done', '', 0, NULL)"
        )
        database.execute("BEGIN IMMEDIATE")
        kept = SqliteInventory(File(str(file)))
        with pytest.raises(
            StoreError, match="another process has locked it for too long; try again"
        ):
            kept.forget("analyst")
        assert kept.inventory().agents[0].turns == {"done": 1}, "reading waits for no lock"
        database.execute("COMMIT")
        assert kept.forget("analyst") is not None
