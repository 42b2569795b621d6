"""``claw state [--state PLACE] [--json]``: what is kept of each agent; ``claw state forget AGENT``: forget it (issue 4, 4)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, assert_never

import typer

from claw_cli.arguments import AsJson
from claw_cli.screen import console, plain, table
from claw_state.inventory import TURN_STATES, AgentState, DeletionCounts, Inventory, StateInventory
from claw_state.sqlite.inventory import SqliteInventory
from claw_state.url import File, Server, StoreError, parse_place

_MOST_NAMED = 10
_NO_PLACE = (
    "no state is named: give --state PLACE, or set CLAW_STATE as the proxy has it"
    " (without one the proxy keeps its state in memory, where nobody else reads it)"
)
_WARNING = (
    "Conversations of {agent} go on without their hidden rounds, and a runner that tries again within ten minutes begins a"
    " new turn, whose writes are made again. Forget?"
)
state_verbs = typer.Typer(name="state", add_completion=False, rich_markup_mode=None)
_PLACE = "A file, or redis://…, as the proxy's CLAW_STATE."
Place = Annotated[str, typer.Option("--state", envvar="CLAW_STATE", metavar="PLACE", help=_PLACE)]
PlaceAgain = Annotated[str, typer.Option("--state", metavar="PLACE", help=_PLACE)]
"""Behind ``forget``. Without the environment, which would beat what stands before it."""


@state_verbs.callback(invoke_without_command=True)
def state(context: typer.Context, named: Place = "", as_json: AsJson = False) -> None:
    """What is kept of each agent, and forgetting it.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    context.obj = named
    if context.invoked_subcommand is None:
        with _errors():
            found = _kept(named).inventory()
        if as_json:
            sys.stdout.write(json.dumps(_document(found), indent=2, ensure_ascii=False) + "\n")
        else:
            _show(found)


@state_verbs.command("forget")
def forget(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")],
    named: PlaceAgain = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget an agent's hidden rounds and turns.

    Turns that run are left, and what it has spent stays.

    Exit 0; 1 for errors, 2 for wrong usage and without a yes.
    """
    kept = _kept(named or context.obj)
    if not yes:
        if not sys.stdin.isatty():
            _fail(f"forgetting {agent} can't be undone: say --yes", 2)
        typer.confirm(_WARNING.format(agent=agent), abort=True)
    with _errors():
        forgotten = kept.forget(agent)
        if forgotten is None:
            raise StoreError(f"nothing is kept of {agent}: {_known(kept.inventory())}")
    if as_json:
        sys.stdout.write(json.dumps({"agent": agent, **asdict(forgotten)}, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _told(agent, forgotten)))


def _kept(named: str) -> StateInventory:
    if not named:
        _fail(_NO_PLACE, 2)
    try:
        where = parse_place(named)
    except ValueError as error:
        _fail(f"--state: {error}", 2)
    match where:
        case File():
            return SqliteInventory(where)
        case Server():
            # It brings asyncio along, which no other verb needs.
            from claw_state.valkey.inventory import ValkeyInventory

            return ValkeyInventory(where)
        case _:
            assert_never(where)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        _fail(str(error), 1)


def _fail(why: str, code: int) -> NoReturn:
    sys.stderr.write(f"error: {plain(why)}\n")
    raise typer.Exit(code)


def _told(agent: str, forgotten: DeletionCounts) -> Iterator[str]:
    marks = f", {_many(forgotten.marks, 'mark')}" if forgotten.marks else ""
    yield f"forgot of {agent}: {_many(forgotten.rounds, 'hidden round')}{marks}, {_many(forgotten.turns, 'turn')}"
    if forgotten.running:
        yield (
            f"left: {_many(forgotten.running, 'turn')} that a proxy is at now, and whose writes would else be in doubt;"
            " forget again when that is over"
        )
    if forgotten.lingers:
        yield "the log beside the file is being read: it holds what was forgotten until a proxy next cuts it"


def _known(found: Inventory) -> str:
    names = [known.agent for known in found.agents]
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"there are {', '.join(names[:_MOST_NAMED])}{more}" if names else "there is nothing of any agent"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _show(found: Inventory) -> None:
    shown = console()
    shown.print(f"{found.place} ({found.store}, schema {found.schema}): {_size(found)}", soft_wrap=True)
    if not found.agents:
        shown.print("nothing is kept")
        return
    headings = (
        "hidden rounds",
        "size",
        "oldest use",
        "latest use",
        "marks",
        *map(_words, TURN_STATES),
        "requests",
        "USD",
    )
    rows = table("agent", *headings, numbers=len(headings))
    for agent in found.agents:
        rows.add_row(*_row(agent))
    shown.print(rows)


def _row(agent: AgentState) -> Iterator[str]:
    rounds, spent = agent.rounds, agent.spent
    yield plain(agent.agent)
    yield from (
        str(rounds.count),
        _bytes(rounds.size),
        _time(rounds.oldest) or "",
        _time(rounds.newest) or "",
        str(rounds.marks),
    )
    yield from (str(agent.turns.get(state, 0)) for state in TURN_STATES)
    yield from (str(spent.requests), f"{spent.cost:.4f}{' + ?' if spent.unknown else ''}") if spent else ("", "")


def _size(found: Inventory) -> str:
    if found.size is None:
        return f"{found.keys} keys"
    return f"{_bytes(found.size)}, and {_bytes(found.log or 0)} in its log"


def _bytes(number: int) -> str:
    """In the largest unit of which there is a whole one.

    >>> _bytes(1536)
    '1.5 KiB'
    """
    size, units = float(number), ["bytes", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:  # noqa: PLR2004 - of one unit in the next
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def _time(seconds: float | None) -> str | None:
    """As ISO 8601 has it, in UTC; None where there is none, or none that can be."""
    try:
        return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def _words(state: str) -> str:
    return state.replace("_", " ")


def _document(found: Inventory) -> dict[str, Any]:
    return {
        "place": found.place,
        "store": found.store,
        "schema": found.schema,
        "bytes": found.size,
        "log_bytes": found.log,
        "keys": found.keys,
        "agents": [_agent(agent) for agent in found.agents],
    }


def _agent(state: AgentState) -> dict[str, Any]:
    rounds = state.rounds
    told = {
        "count": rounds.count,
        "bytes": rounds.size,
        "oldest": _time(rounds.oldest),
        "latest": _time(rounds.newest),
        "marks": rounds.marks,
    }
    spent = state.spent
    return {
        "agent": state.agent,
        "hidden_rounds": told,
        "turns": {name: state.turns.get(name, 0) for name in TURN_STATES},
        "spent": None if spent is None else {"requests": spent.requests, "usd": spent.cost, "unknown": spent.unknown},
    }
