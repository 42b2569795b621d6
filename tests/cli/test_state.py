"""``claw state`` as an operator runs it: its output, the values that it never
shows, and its errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from claw_cli.app import app
from claw_state.continuity import Anchor
from claw_state.journal import RequestFingerprint
from claw_state.lease import LeaseOwner, LifeLock
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.schema import SCHEMA, TURNS, open_database
from tests.cli.running import claw
from tests.state.server import SharedState, shared_state
from tests.waiting import nobody_listens

PASSWORD = "planted-password-0001"


def state(*arguments: str, answer: str = "", **environ: str) -> Result:
    return CliRunner().invoke(
        app, ["state", *arguments], env={"CLAW_STATE": "", **environ}, input=answer
    )


def fails(*arguments: str, **environ: str) -> str:
    """Return the one line of an error; it is no traceback."""
    result = state(*arguments, **environ)
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").strip()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    """Yield a state file with a hidden round and a failed turn of ``analyst``, and
    a running turn of ``executor``.
    """
    name = str(tmp_path / "s.db")

    async def write() -> None:
        store, journal = (
            SqliteContinuityStore(Database(name), lambda: 1e9),
            SqliteJournal(Database(name), LeaseOwner("elsewhere", 1, "b")),
        )
        await store.save("analyst", Anchor("x", ()), "", b"hidden" * 300)
        await journal.begin("t1", "analyst", RequestFingerprint("a", "", "", ""))
        await journal.end("t1", None)
        await journal.begin("t2", "executor", RequestFingerprint("a", "", "", ""))
        await store.close()
        await journal.close()

    asyncio.run(write())
    with closing(sqlite3.connect(name)) as database:
        database.execute("INSERT INTO spending VALUES ('analyst', 0, 3, 0.25, 1)")
        database.executemany(
            "INSERT INTO owned VALUES ('analyst', ?, x'', 0)", [("resp_1",), ("conv_1",)]
        )
        database.commit()
    with closing(LifeLock(name, "b")):
        yield name


@pytest.mark.requirement("cli:state")
def test_a_table_tells_of_each_agent_and_json_of_the_same(file: str) -> None:
    result = state("--state", file)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert " ".join(lines[0]).startswith(f"{file} (SQLite, schema {SCHEMA}): ")
    assert " ".join(lines[3]) == (
        "analyst 1 1.8 KiB 2001-09-09T01:46:40Z 2001-09-09T01:46:40Z 0 2 0 0 0 1 0 0 3 0.2500 + ?"
    )
    assert " ".join(lines[4]) == "executor 0 0 bytes 0 0 1 0 0 0 0 0"
    told = json.loads(state("--json", CLAW_STATE=file).stdout)
    assert told.keys() == {"place", "store", "schema", "bytes", "log_bytes", "keys", "agents"}
    assert told["agents"][0] == {
        "agent": "analyst",
        "hidden_rounds": {
            "count": 1,
            "bytes": 1800,
            "oldest": "2001-09-09T01:46:40Z",
            "latest": "2001-09-09T01:46:40Z",
            "marks": 0,
        },
        "own_ids": 2,
        "turns": {
            "running": 0,
            "abandoned": 0,
            "cut_off": 0,
            "failed": 1,
            "answered": 0,
            "done": 0,
        },
        "spent": {"requests": 3, "usd": 0.25, "unknown": 1},
    }


@pytest.mark.requirement("cli:state")
def test_the_command_itself_reads_the_environment_and_prints_to_a_pipe(
    file: str, tmp_path: Path
) -> None:
    result = claw(tmp_path, "state", CLAW_STATE=file)
    assert (result.returncode, result.stderr) == (0, "")
    assert "analyst" in result.stdout


@pytest.mark.requirement("cli:state")
def test_a_name_that_a_terminal_would_obey_is_printed_without_its_signs(file: str) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "UPDATE turns SET agent = ? WHERE agent = 'executor'", ("\x1b[2J[red]bad\x07",)
        )
        database.commit()
    told = state("--state", file).stdout
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "[red]bad" in told
    assert "\x1b" not in state("--state", file, "--json").stdout


@pytest.mark.requirement("cli:state-forget")
def test_forgetting_says_what_went_and_what_was_left_and_why(file: str) -> None:
    result = state("forget", "analyst", "--yes", "--state", file)
    assert (result.exit_code, result.stdout) == (
        0,
        "forgot of analyst: 1 hidden round, 2 owned ids, 1 turn\n",
    )
    result = state("--state", file, "forget", "executor", "--yes", CLAW_STATE="/elsewhere")
    assert result.stdout.startswith(
        "forgot of executor: 0 hidden rounds, 0 turns\nleft: 1 turn that a proxy runs now"
    )
    told = json.loads(state("forget", "executor", "--yes", "--json", CLAW_STATE=file).stdout)
    assert told == {
        "agent": "executor",
        "rounds": 0,
        "marks": 0,
        "turns": 0,
        "running": 1,
        "owned": 0,
        "lingers": False,
    }
    (analyst, _) = json.loads(state("--json", CLAW_STATE=file).stdout)["agents"]
    assert analyst["spent"]["requests"] == 3, "forgetting is no way round a budget"


@pytest.mark.requirement("cli:state-forget")
def test_nothing_is_forgotten_without_a_yes(file: str) -> None:
    result = state("forget", "analyst", "--state", file)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: forgetting analyst can't be undone: confirm with --yes\n",
    )
    assert (
        json.loads(state("--json", CLAW_STATE=file).stdout)["agents"][0]["hidden_rounds"]["count"]
        == 1
    )


@pytest.mark.requirement("state:errors")
def test_an_agent_of_which_nothing_is_kept_is_an_error_that_names_those_that_are(file: str) -> None:
    assert fails("forget", "analist", "--yes", "--state", file) == (
        "nothing is kept of analist: there are analyst, executor"
    )


@pytest.mark.requirement("state:errors")
@pytest.mark.parametrize(
    "named", ["", "http://cache/0", "redis://:planted-password-0001@cache:x/0"]
)
def test_a_place_that_is_none_is_wrong_usage(named: str) -> None:
    for result in (state("--state", named), state("forget", "a", "--yes", CLAW_STATE=named)):
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert "--state" in result.stderr
        assert PASSWORD not in result.stderr


def damaged(file: Path) -> None:
    with closing(open_database(str(file), TURNS)) as database:
        database.executemany(
            "INSERT INTO turns VALUES (?, 'a', '', '', '', '', 'done', '', 0, ?)",
            [(n, b"x" * 3000) for n in range(50)],
        )
    with file.open("r+b") as out:
        out.seek(4096)
        out.write(b"\xff" * 60_000)


def newer(file: Path) -> None:
    with closing(open_database(str(file), TURNS)) as database:
        database.execute(f"PRAGMA user_version={SCHEMA + 1}")


def anothers(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE bookmarks (url)")


def of_other_columns(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE turns (url)")


PLACES: dict[str, tuple[Any, str]] = {
    "missing": (
        lambda _: None,
        "there is no state at {}: the proxy makes it when it starts with CLAW_STATE={}",
    ),
    "directory": (Path.mkdir, "{} is not a file: name the one that the proxy's CLAW_STATE names"),
    "pipe": (os.mkfifo, "{} is not a file: name the one that the proxy's CLAW_STATE names"),
    "no database": (
        lambda file: file.write_bytes(b"none" * 5000),
        "the state {} can't be used: file is not a database; ",
    ),
    "damaged": (
        damaged,
        "the state {} can't be used: database disk image is malformed; move the file away ",
    ),
    "newer": (
        newer,
        (
            "the state {} can't be used: a newer claw has written it (schema 2, and this one "
            "knows 1): use "
        ),
    ),
    "another's": (
        anothers,
        "{} is a database of something else: name the file that the proxy's CLAW_STATE names",
    ),
    "of other columns": (of_other_columns, "the state {} can't be used: no such column: "),
}


@pytest.mark.requirement("state:errors", "state:newer")
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_state_is_told_with_its_place_and_is_not_touched(
    tmp_path: Path, place: str
) -> None:
    file = tmp_path / "s.db"
    make, message = PLACES[place]
    make(file)
    before = sorted(tmp_path.iterdir()), file.read_bytes() if file.is_file() else b""
    expected = message.replace("{}", str(file))
    assert fails("--state", str(file)).startswith(expected)
    assert fails("forget", "a", "--yes", "--state", str(file)).startswith(
        expected.split(": no such")[0]
    )
    assert (sorted(tmp_path.iterdir()), file.read_bytes() if file.is_file() else b"") == before


@contextmanager
def as_nobody() -> Iterator[None]:
    """Become another user if this is root, who may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.requirement("state:errors")
def test_a_file_that_this_user_may_not_read_is_told() -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        file = Path(home, "s.db")
        open_database(str(file), TURNS).close()
        assert state("--state", str(file)).exit_code == 0
        if os.geteuid() != 0:
            file.chmod(0)
        with as_nobody():
            told = state("--state", str(file))
    assert (
        told.stderr
        == f"error: this user has no access to the state {file}: run this as the proxy's user\n"
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharedState]:
    with shared_state(tmp_path / "server", PASSWORD) as made:
        yield made


@pytest.mark.requirement("state:errors")
def test_a_server_that_refuses_us_or_is_not_there_is_told_and_no_password_is(
    server: SharedState,
) -> None:
    assert (
        state("--state", server.url).stdout
        == f"{server.place.shown} (Valkey, schema 1): 0 keys\nnothing is kept\n"
    )
    wrong = fails("--state", server.url.replace(PASSWORD, "planted-wrong-0002"))
    assert wrong.startswith(f"the state at {server.place.shown} refuses us: ")
    assert "planted" not in wrong
    assert "refuses us: Authentication required" in fails(
        CLAW_STATE=server.url.replace(f":{PASSWORD}@", "")
    )
    server.asks("SET", "claw:agents", "not a set")
    assert "refuses us: WRONGTYPE" in fails("--state", server.url)
    server.asks("SET", "claw:schema", "2")
    newer = (
        f"a newer claw has written the state at {server.place.shown} (schema 2, and this one "
        "knows 1): "
    )
    assert fails("--state", server.url).startswith(newer)
    with nobody_listens() as url:
        gone = fails("--state", url.replace("http://", f"redis://:{PASSWORD}@"))
    assert "can't be reached" in gone
    assert "redis://127.0.0.1:" in gone
    assert PASSWORD not in gone


@pytest.mark.requirement("state:errors")
def test_without_the_client_s_package_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    assert fails("--state", "redis://cache").endswith(
        "which is not installed: pip install 'clawdapus[redis]'"
    )
