from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from claw_state.continuity import ContinuityStore
from claw_state.inventory import StateInventory
from claw_state.journal import Journal
from claw_state.lease import LeaseOwner
from claw_state.ownership import OwnershipStore
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.inventory import SqliteInventory
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.url import File
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.inventory import ValkeyInventory
from claw_state.valkey.journal import ValkeyJournal
from claw_state.valkey.ownership import ValkeyOwnershipStore
from tests.state.server import SharedState, shared_state


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedState]:
    with shared_state(tmp_path / "server") as server:
        yield server


@pytest.fixture(params=["sqlite", "valkey"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[type, object]]:
    """Return a function that returns the store's class and the place of one state."""
    if request.param == "sqlite":
        return lambda: (SqliteContinuityStore, str(tmp_path / "state.db"))
    server = request.getfixturevalue("shared")
    return lambda: (ValkeyContinuityStore, ValkeyClient(server.place, timeout=10))


def in_use(place: Any) -> Any:
    """Open the place if it is a file; return it."""
    return Database(place) if isinstance(place, str) else place


@asynccontextmanager
async def reopened(
    opens: Callable[[], tuple[type, object]],
    clock: Clock,
    in_sqlite: Callable[..., Any],
    in_valkey: Callable[..., Any],
) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that opens a part of the same state once more, as another
    proxy does; close each at the end.
    """
    made: list[Any] = []

    def reopen(*given: Any) -> Any:
        kind, place = opens()
        made.append(
            (in_sqlite if kind is SqliteContinuityStore else in_valkey)(
                in_use(place), *given, clock
            )
        )
        return made[-1]

    yield reopen
    for one in made:
        await one.close()


@pytest.fixture
async def stores(
    opens: Callable[[], tuple[type, object]], clock: Clock
) -> AsyncIterator[Callable[[], ContinuityStore]]:
    async with reopened(opens, clock, SqliteContinuityStore, ValkeyContinuityStore) as store:
        yield store


@pytest.fixture
async def journals(
    opens: Callable[[], tuple[type, object]], clock: Clock
) -> AsyncIterator[Callable[[LeaseOwner], Journal]]:
    async with reopened(opens, clock, SqliteJournal, ValkeyJournal) as journal:
        yield journal


@pytest.fixture
async def ownerships(
    opens: Callable[[], tuple[type, object]], clock: Clock
) -> AsyncIterator[Callable[[], OwnershipStore]]:
    async with reopened(opens, clock, SqliteOwnershipStore, ValkeyOwnershipStore) as ownership:
        yield ownership


@pytest.fixture
def kept(
    opens: Callable[[], tuple[type, object]], request: pytest.FixtureRequest, clock: Clock
) -> StateInventory:
    """Return the inventory of the same state, which an operator sees."""
    kind, where = opens()
    if kind is SqliteContinuityStore:
        return SqliteInventory(File(str(where)), clock)
    server: SharedState = request.getfixturevalue("shared")
    return ValkeyInventory(server.place, clock)
