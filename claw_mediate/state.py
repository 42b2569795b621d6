"""The state that ``CLAW_STATE`` names, opened: the continuity store, the journal and what agents have spent, in one place.

A file that can't be opened, or is damaged, and a server that refuses us, keep the proxy from starting. A server that is only
not there does not: until it is, requests go on without their hidden rounds, nothing that may write is run (``tape``), and
``/ready`` says so. One event tells when it goes, one when it is back.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple, assert_never

from claw_mediate.telemetry.event_log import EventLog
from claw_state.continuity import ContinuityStore
from claw_state.health import Health, OnHealthChange
from claw_state.journal import Journal
from claw_state.lease import Owner
from claw_state.spending import Spending
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.schema import describe_error
from claw_state.sqlite.spending import SqliteSpending
from claw_state.url import File, Place, Server
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal
from claw_state.valkey.link import Link, probe_server
from claw_state.valkey.spending import ValkeySpending


class State(NamedTuple):
    """What outlives a turn."""

    store: ContinuityStore
    journal: Journal
    spending: Spending
    place: Place
    database: Database | None = None
    """What is not on a server."""


def opened(place: Place, log: EventLog, before: State | None = None) -> State:
    """``before``: of the mediator before this one in this process. What is in memory is handed on, and of a file there is one
    connection; each mediator is somebody else at turns. Raises ``ValueError`` with one line, and a remedy where there is one,
    when there can be no state there.
    """
    match place:
        case File(path):
            try:
                if before is not None and before.place == place and before.database is not None:
                    return _in_file(place, before.database.share())
                return _in_file(place, Database(path, health=Health(_teller(log, place))))
            except (OSError, sqlite3.Error) as error:
                raise ValueError(f"the state {path!r} can't be opened: {describe_error(error)}") from error
        case Server():
            log.protect(place.secrets)
            health = Health(_teller(log, place))
            if (gone := probe_server(place)) is not None:
                health.fail(gone)
            link = Link(place, health)
            return State(ValkeyContinuityStore(link), ValkeyJournal(link, Owner.current()), ValkeySpending(link), place)
        case _:
            assert_never(place)


def _in_file(place: Place, database: Database) -> State:
    try:
        journal = SqliteJournal(database, Owner.current())
        return State(SqliteContinuityStore(database), journal, SqliteSpending(database), place, database)
    except OSError:
        database.close()
        raise


def _teller(log: EventLog, place: Place) -> OnHealthChange:
    def tell(why: str | None) -> None:
        if why is None:
            log.event("state", state="usable", place=place.shown)
        else:
            log.event("error", error="state_unusable", place=place.shown, reason=why)

    return tell
