"""``claw audit [POD]``, ``claw audit show TURN``, ``claw audit verify``: what happened, afterwards (spec/inspect.md)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from typer.core import TyperGroup

from claw_audit.audit import LAST, Asked, audit
from claw_audit.chains import verify
from claw_audit.choice import Choice, Status
from claw_audit.finding import Attempts, find
from claw_audit.report import Unread, document
from claw_audit.sources import Progress, SourceError, agents, log_size, size_of
from claw_audit.verify import Finding, Verdict
from claw_audit.withheld import Grants
from claw_cli.arguments import AsJson, File, Pod
from claw_cli.audit_arguments import (
    Agent,
    Histories,
    Logs,
    checked,
    directories,
    fail,
    grants_of,
    logs,
    one_of,
    time_of,
)
from claw_cli.audit_csv import CsvCalls
from claw_cli.audit_tables import show as show_tables
from claw_cli.screen import console, plain
from claw_contract.transcript.render import render_transcript

_LARGE = 64 << 20
"""Bytes that are read in a moment."""
_FIRST = "list"


class _ListsFirst(TyperGroup):
    """``claw audit …`` without a verb of its own is ``claw audit list …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The verb, where there is none."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [_FIRST, *args]
        return super().parse_args(ctx, args)


audit_verbs = typer.Typer(name="audit", cls=_ListsFirst, add_completion=False, rich_markup_mode=None)


@audit_verbs.callback()
def audit_verb() -> None:
    """What agents did: turns, calls, failures, tokens, cost.

    From history and the proxy's log. Without a command: list.

    Exit 0; 1 for errors and a broken chain, 2 for wrong usage.
    """


@audit_verbs.command(_FIRST)
def list_verb(  # noqa: PLR0913, PLR0917 - each an option of its own
    pod: Pod = None,
    file: File = None,
    history: Histories = None,
    log: Logs = None,
    agent: Agent = "",
    tool: Annotated[str, typer.Option("--tool", metavar="TOOL", help="Calls of one tool, as service.tool.")] = "",
    status: Annotated[Status | None, typer.Option("--status", help="What ended so only.")] = None,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="2h, 3d, or RFC 3339.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="The same; the end of the time.")] = "",
    turn: Annotated[str, typer.Option("--turn", metavar="ID", help="One turn, by the beginning of its id.")] = "",
    last: Annotated[
        int, typer.Option("--last", min=0, max=10_000, help="So many calls and failures one by one.")
    ] = LAST,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every call as CSV.")] = False,
) -> None:
    """Counts and tables. With POD: which tools of it were not shown, too.

    Exit 0; 1 for errors and for files that can't be read, 2 for wrong usage.
    """
    if as_json and as_csv:
        fail("--json and --csv: only one of them", 2)
    now = time.time()
    times = time_of(since, now, "--since"), time_of(until, now, "--until")
    choice = Choice(agent, checked(tool, "--tool"), status, *times, checked(turn, "--turn"))
    named = logs(log)
    places = directories(history, needed=not named)
    _there(places, agent, alone=not named and pod is None and file is None)
    each = CsvCalls(sys.stdout) if as_csv else None
    asked = Asked(places, named, choice, last, _grants(pod, file, agent))
    with _errors(), _progress(places, named, twice=True) as progress:
        report = audit(asked, progress, each)
    if as_json:
        sys.stdout.write(json.dumps(document(report), indent=2) + "\n")
    elif not as_csv:
        show_tables(report, console())
    _tell(report.unread)


@audit_verbs.command("show")
def show(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The beginning of a turn's id.")],
    history: Histories = None,
    agent: Agent = "",
    as_json: AsJson = False,
) -> None:
    """The transcript of a turn: who said what to whom.

    Exit 0; 1 for errors, 2 for an unknown turn, a beginning of several, and wrong usage.
    """
    places, prefix = directories(history), checked(turn, "TURN")
    _there(places, agent)
    with _errors(), _progress(places, ()) as progress:
        found = find(places, prefix, agent, progress)
    for problem in found.problems:
        sys.stderr.write(f"error: {plain(problem)}\n")
    if len(found.turns) != 1:
        names = ", ".join(found.turns)
        fail(f"{turn}: " + (f"several turns begin so: {names}" if names else "no turn of history begins so"), 2)
    (attempts,) = found.turns.values()
    if as_json:
        sys.stdout.write(json.dumps(attempts.last, indent=2) + "\n")
    else:  # a transcript has no signs that a terminal obeys
        sys.stdout.write("".join(f"{line}\n" for line in _transcript(attempts)))
    if found.problems:
        raise typer.Exit(1)


def _transcript(attempts: Attempts) -> Iterator[str]:
    earlier = attempts.earlier()
    if more := attempts.count - 1 - len(earlier):
        yield f"{more} earlier attempts, and"
    yield from (f"an earlier attempt: {one}" for one in earlier)
    yield from render_transcript(attempts.last).split("\n")


@audit_verbs.command("verify")
def verify_verb(history: Histories = None, log: Logs = None, agent: Agent = "", as_json: AsJson = False) -> None:
    """Whether history was tampered with.

    With --log: whether lines were cut off at its end or its beginning, too.

    Exit 0; 1 for a broken chain and errors, 2 for wrong usage.
    """
    places, named = directories(history), logs(log)
    _there(places, agent, alone=not named)
    with _errors(), _progress(places, named) as progress:
        verdicts = verify(places, named, agent, progress)
    holds = not any(verdict.broken for verdict in verdicts)
    if as_json:
        told = {"version": 1, "holds": holds, "chains": [asdict(verdict) for verdict in verdicts]}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{plain(line)}\n" for line in _verdicts(verdicts)))
    if not holds:
        raise typer.Exit(1)


def _verdicts(verdicts: list[Verdict]) -> Iterator[str]:
    if not verdicts:
        yield "there is no history"
    for verdict in verdicts:
        lines = f"{verdict.lines} line{'' if verdict.lines == 1 else 's'}"
        more = f", in {verdict.broken} places; the first:" if verdict.broken > 1 else ""
        yield f"{verdict.agent}: {lines}, {'BROKEN' if verdict.broken else 'the chain holds'}{more}"
        yield from (f"  {_finding(found)}" for found in verdict.findings)


def _finding(found: Finding) -> str:
    place = f":{found.line} (byte {found.offset})" if found.line else ""
    return f"{'note: ' if found.kind == 'note' else ''}{found.file}{place}: {found.what}"


def _grants(pod: Path | None, file: Path | None, agent: str) -> Grants | None:
    if pod is not None and file is not None:
        raise typer.BadParameter("the pod file is named twice: as the argument, and by --file")
    named = pod or file
    if named is None:
        return None
    grants = grants_of(named)
    one_of(agent, grants.agents, str(named))
    return grants


def _there(places: tuple[Path, ...], agent: str, *, alone: bool = True) -> None:
    """Says where there is no history, which is easily taken for nothing that happened. ``alone``: there is no log either."""
    checked(agent, "--agent")
    with _errors():
        known = {name for name, _ in agents(places)}
    where = " and ".join(map(str, places))
    if places and not known:
        sys.stderr.write(f"note: {plain(where)} has no directory of an agent\n")
    elif alone:
        one_of(agent, known, where)


def _tell(unread: Unread) -> None:
    if unread.lines:
        many = f"{unread.lines} line{'' if unread.lines == 1 else 's'} could not be read"
        sys.stderr.write("".join(f"{plain(line)}\n" for line in (f"{many}:", *(f"  {one}" for one in unread.first))))
    for why in unread.files:
        sys.stderr.write(f"error: {plain(why)}\n")
    if unread.files:
        raise typer.Exit(1)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        fail(str(error))


@contextmanager
def _progress(places: tuple[Path, ...], named: tuple[str, ...], *, twice: bool = False) -> Iterator[Progress]:
    """A bar for what takes a while, where somebody looks on. History is read ``twice`` for a list."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    total = sum(size_of(place) for _, place in agents(places)) * (1 + twice) + sum(map(log_size, named))
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True, disable=total < _LARGE) as bar:
        task = bar.add_task("reading", total=total)
        yield Progress(lambda size: bar.advance(task, size))
