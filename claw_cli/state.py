"""``claw state``: show what is stored for each agent. ``claw state forget AGENT``: forget it.

The page is docs/state.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from claw_cli.arguments import AsJson
from claw_cli.screen import (
    console,
    count,
    fail,
    names_in_short,
    plain,
    print_json,
    print_lines,
    table,
)
from claw_state.inventory import TURN_STATES, AgentState, DeletionCounts, Inventory, StateInventory
from claw_state.sqlite.inventory import SqliteInventory
from claw_state.url import File, StoreError, parse_place

_KIB = 1024
_NO_STATE = (
    "no state is named: give --state PLACE, or set CLAW_STATE to what the proxy has "
    "(without CLAW_STATE the proxy keeps its state in memory, and only it can read that)"
)
_WARNING = (
    "Conversations of {agent} will go on without their hidden rounds, it can no longer name what "
    "providers keep for it, and a runner that retries within ten minutes will begin a new turn, "
    "which makes its writes again. Forget?"
)

state_verbs = typer.Typer(name="state", add_completion=False, rich_markup_mode=None)
_PLACE = "A file, or redis://…, as the proxy's CLAW_STATE."
Place = Annotated[str, typer.Option("--state", envvar="CLAW_STATE", metavar="PLACE", help=_PLACE)]
PlaceAgain = Annotated[str, typer.Option("--state", metavar="PLACE", help=_PLACE)]
"""The same option after ``forget``.

It does not read the environment, which would take precedence over the option before ``forget``.
"""


@state_verbs.callback(invoke_without_command=True)
def state(context: typer.Context, named: Place = "", as_json: AsJson = False) -> None:
    """Show what is kept of each agent, or forget it.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    context.obj = named  # for ``forget``
    if context.invoked_subcommand is not None:
        return

    try:
        inventory = _open(named).inventory()
    except StoreError as error:
        fail(str(error))

    if as_json:
        print_json(_document(inventory))
    else:
        _show(inventory)


@state_verbs.command("forget")
def forget(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")],
    named: PlaceAgain = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget an agent's hidden rounds, owned ids and turns.

    Running turns and what it has spent are left.

    Exit 0; 1 for errors, 2 for wrong usage and without a yes.
    """
    store = _open(named or context.obj)
    if not yes:
        if not sys.stdin.isatty():
            fail(f"forgetting {agent} can't be undone: confirm with --yes", 2)
        typer.confirm(_WARNING.format(agent=agent), abort=True)

    try:
        forgotten = store.forget(agent)
        if forgotten is None:
            others = names_in_short([each.agent for each in store.inventory().agents])
            fail(f"nothing is kept of {agent}: there are {others or 'no agents'}")
    except StoreError as error:
        fail(str(error))

    if as_json:
        print_json({"agent": agent, **asdict(forgotten)})
    else:
        print_lines(_summary(agent, forgotten))


def _open(named: str) -> StateInventory:
    if not named:
        fail(_NO_STATE, 2)
    try:
        place = parse_place(named)
    except ValueError as error:
        fail(f"--state: {error}", 2)

    if isinstance(place, File):
        return SqliteInventory(place)

    # Imported only here, because it imports asyncio, which is slow.
    from claw_state.valkey.inventory import ValkeyInventory

    return ValkeyInventory(place)


def _summary(agent: str, forgotten: DeletionCounts) -> Iterator[str]:
    marks = f", {count(forgotten.marks, 'mark')}" if forgotten.marks else ""
    owned = f", {count(forgotten.owned, 'owned id')}" if forgotten.owned else ""
    yield (
        f"forgot of {agent}: {count(forgotten.rounds, 'hidden round')}{marks}{owned}, "
        f"{count(forgotten.turns, 'turn')}"
    )

    if forgotten.running:
        yield (
            f"left: {count(forgotten.running, 'turn')} that a proxy runs now, and whose writes "
            "would else be in doubt; forget again when it has ended"
        )
    if forgotten.lingers:
        yield (
            "the log beside the file is being read: it holds what was forgotten until a proxy "
            "next truncates it"
        )


def _show(inventory: Inventory) -> None:
    screen = console()
    size = f"{inventory.keys} keys"
    if inventory.size is not None:
        size = f"{_bytes(inventory.size)}, and {_bytes(inventory.log or 0)} in its log"
    place = f"{inventory.place} ({inventory.store}, schema {inventory.schema})"
    screen.print(f"{place}: {size}", soft_wrap=True)
    if not inventory.agents:
        screen.print("nothing is kept")
        return

    headings = (
        "hidden rounds",
        "size",
        "oldest use",
        "latest use",
        "marks",
        "owned ids",
        *(state.replace("_", " ") for state in TURN_STATES),
        "requests",
        "USD",
    )
    grid = table("agent", *headings, numbers=len(headings))
    for agent in inventory.agents:
        grid.add_row(*_cells(agent))
    screen.print(grid)


def _cells(agent: AgentState) -> Iterator[str]:
    rounds = agent.rounds
    yield plain(agent.agent)
    yield str(rounds.count)
    yield _bytes(rounds.size)
    yield _time(rounds.oldest) or ""
    yield _time(rounds.newest) or ""
    yield str(rounds.marks)
    yield str(agent.owned)

    for state in TURN_STATES:
        yield str(agent.turns.get(state, 0))

    spent = agent.spent
    if spent is None:
        yield ""
        yield ""
    else:
        more = " + ?" if spent.unknown else ""
        yield str(spent.requests)
        yield f"{spent.cost:.4f}{more}"


def _bytes(number: int) -> str:
    """Return a size in its largest unit.

    >>> _bytes(1536)
    '1.5 KiB'
    """
    if number < _KIB:
        return f"{number} bytes"

    size = number / _KIB
    for unit in ("KiB", "MiB"):
        if size < _KIB:
            return f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} GiB"


def _time(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None without a time, and for one out of range."""
    if seconds is None:
        return None
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def _document(inventory: Inventory) -> dict[str, Any]:
    return {
        "place": inventory.place,
        "store": inventory.store,
        "schema": inventory.schema,
        "bytes": inventory.size,
        "log_bytes": inventory.log,
        "keys": inventory.keys,
        "agents": [_agent(agent) for agent in inventory.agents],
    }


def _agent(state: AgentState) -> dict[str, Any]:
    rounds = state.rounds
    spent: dict[str, Any] | None = None
    if state.spent is not None:
        spent = {
            "requests": state.spent.requests,
            "usd": state.spent.cost,
            "unknown": state.spent.unknown,
        }

    return {
        "agent": state.agent,
        "hidden_rounds": {
            "count": rounds.count,
            "bytes": rounds.size,
            "oldest": _time(rounds.oldest),
            "latest": _time(rounds.newest),
            "marks": rounds.marks,
        },
        "own_ids": state.owned,
        "turns": {name: state.turns.get(name, 0) for name in TURN_STATES},
        "spent": spent,
    }
