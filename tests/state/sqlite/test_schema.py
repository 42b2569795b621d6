"""The tables of a file: of a newer version, and of an earlier one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.sqlite.schema import HIDDEN_ROUNDS, OWNED, SCHEMA, SPENDING, TURNS, open_database
from tests.state.test_ownership_objects import FILE


@pytest.mark.requirement("state:newer")
def test_a_file_of_a_newer_claw_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with closing(open_database(str(file), TURNS)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        database.execute(f"PRAGMA user_version={SCHEMA + 1}")
    before = file.read_bytes()
    with pytest.raises(
        sqlite3.NotSupportedError, match=f"schema {SCHEMA + 1}, and this one knows {SCHEMA}"
    ):
        SqliteContinuityStore(Database(str(file)))
    assert file.read_bytes() == before


@pytest.mark.requirement("objects:rows")
async def test_a_file_of_an_earlier_version_gets_the_table_and_keeps_its_rows(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    with closing(sqlite3.connect(file)) as earlier:
        earlier.executescript(HIDDEN_ROUNDS + TURNS + SPENDING + OWNED + "PRAGMA user_version=1;")
        record = msgspec.msgpack.encode(["resp_1", "resp_1", "openai"])
        earlier.execute("INSERT INTO owned VALUES ('a', 'resp_1', ?, 4e9)", (record,))
        earlier.commit()
    store = SqliteOwnershipStore(Database(str(file)))
    assert await store.find("a", "resp_1") is not None
    await store.save_objects("a", [FILE])
    assert await store.find_objects("a", [FILE.name]) == [FILE]
    await store.close()
