"""The state that ``CLAW_STATE`` names, in one place.

It is the continuity store, the journal, the agents' spending, and which agent owns what a provider
keeps.

A damaged or unusable file, or a server that refuses us, keeps the proxy from starting. An
unreachable server does not: until it is back, requests go on without their hidden rounds, no tool
that may write is called (``turns/checkpoint.py``), and ``/ready`` reports it. Loss and return are
one event each.
"""

import sqlite3
from typing import NamedTuple, assert_never

from claw_mediate.telemetry.event_log import EventLog
from claw_state.continuity import ContinuityStore
from claw_state.health import Health, OnHealthChange
from claw_state.journal import Journal
from claw_state.lease import LeaseOwner
from claw_state.ownership import OwnershipStore
from claw_state.spending import Spending
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.sqlite.ownership import SqliteOwnershipStore
from claw_state.sqlite.schema import describe_error
from claw_state.sqlite.spending import SqliteSpending
from claw_state.url import File, Place, ServerAddress
from claw_state.valkey.client import (
    ValkeyClient,
    find_eviction_policy,
    probe_server,
    replace_pod_name,
)
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal
from claw_state.valkey.ownership import ValkeyOwnershipStore
from claw_state.valkey.spending import ValkeySpending


class State(NamedTuple):
    """The stores of what outlives a turn."""

    store: ContinuityStore
    journal: Journal
    spending: Spending
    ownership: OwnershipStore
    place: Place
    database: Database | None = None  # The SQLite database; None on a server


def open_state(place: Place, log: EventLog, before: State | None = None, pod: str = "") -> State:
    """Open the state of this pod.

    Raise ``ValueError`` with one line, and a remedy if there is one, for an unusable place.

    ``before`` is the state of this process's previous mediator: state in memory is passed on, and a
    file keeps one connection. Each mediator has leases of its own.
    """
    match place:
        case File(path):
            try:
                if before is not None and before.place == place and before.database is not None:
                    return _in_file(place, before.database.share())
                return _in_file(place, Database(path, health=Health(_health_log(log, place))))
            except (OSError, sqlite3.Error) as error:
                reason = describe_error(error)
                raise ValueError(f"the state {path!r} can't be opened: {reason}") from error
        case ServerAddress():
            return _on_server(place, log, pod)
        case _:
            assert_never(place)


def _on_server(place: ServerAddress, log: EventLog, pod: str) -> State:
    """Return the state on a server, whether it can be reached now or not."""
    log.protect(place.secrets)
    health = Health(_health_log(log, place))
    problem = probe_server(place)
    if problem is not None:
        health.fail(problem)
    else:
        _warn_of_server(place, log, pod)

    client = ValkeyClient(place, health)
    return State(
        ValkeyContinuityStore(client),
        ValkeyJournal(client, LeaseOwner.current()),
        ValkeySpending(client),
        ValkeyOwnershipStore(client),
        place,
    )


def _warn_of_server(place: ServerAddress, log: EventLog, pod: str) -> None:
    """Log what an operator must change at a server: it may forget, or it serves another pod too."""
    policy = find_eviction_policy(place)
    if policy is not None:
        reason = (
            f"its maxmemory-policy is {policy}: it may forget what must not be done twice; "
            "set noeviction"
        )
        log.event("error", error="state_evicts", place=place.shown, reason=reason)

    other = replace_pod_name(place, pod) if pod else None
    if other is not None:
        reason = (
            f"a proxy of the pod {other!r} opened this database before one of {pod!r}: agents of "
            "one name would share conversations, budgets and files; give each pod a number of its "
            "own at the end of CLAW_STATE, such as /1"
        )
        log.event("error", error="state_shared", place=place.shown, reason=reason)


def _in_file(place: Place, database: Database) -> State:
    """Return the state in a database, which is closed if it can't be used."""
    try:
        clock = database.open_clock()
        return State(
            SqliteContinuityStore(database, clock),
            SqliteJournal(database, LeaseOwner.current(), clock),
            SqliteSpending(database, clock),
            SqliteOwnershipStore(database, clock),
            place,
            database,
        )
    except (OSError, sqlite3.Error):
        database.close()
        raise


def _health_log(log: EventLog, place: Place) -> OnHealthChange:
    """Return a function that logs loss and return of the state."""

    def log_change(problem: str | None) -> None:
        if problem is None:
            log.event("state", state="usable", place=place.shown)
        else:
            log.event("error", error="state_unusable", place=place.shown, reason=problem)

    return log_change
