"""``claw audit [POD]``, ``claw audit show TURN``, ``claw audit verify`` (docs/audit.md)."""

import os
import re
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from typer.core import TyperGroup

from claw_audit.audit import LAST, AgentGrants, AuditQuery, Filters, PodGrants, Status, audit
from claw_audit.history_source import Attempts, find_turns
from claw_audit.report import SkippedInput, document
from claw_audit.sources import Progress, SourceError, agent_directories, ignore, total_bytes
from claw_audit.turns import parse_time
from claw_audit.verify import ChainVerdict, MissingTurns, verify
from claw_cli.arguments import AsJson, File, Pod, pod_file
from claw_cli.audit_output import csv_writer, print_tables
from claw_cli.screen import console, count, fail, names_in_short, plain, print_json, print_lines
from claw_compile.compiler import check_pod, output_of
from claw_contract.names import canonical_name
from claw_contract.transcript.render import render_transcript

ENVIRON = "CLAW_SESSION_HISTORY_DIR"

_NO_SOURCE = (
    f"no history is named: give --history DIR, or set {ENVIRON} as the proxy has it "
    "(in Compose it is a volume: docker compose cp cllama:/claw/history .); or give --log FILE"
)
_WITHOUT_LOG = (
    "note: without --log, whole lines that are missing at the beginning or the end of history "
    "do not show"
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_AGO = re.compile(rf"([0-9]{{1,9}})([{''.join(_UNITS)}])")
_SHOW_PROGRESS_FROM = 64 << 20  # bytes; less is read in a moment
_DEFAULT = "list"

_HISTORY = f"Directory of history; may be given more than once. [env: {ENVIRON}]"
Histories = Annotated[list[Path] | None, typer.Option("--history", metavar="DIR", help=_HISTORY)]
_LOG = "The proxy's output, also compressed with gzip; - is standard input."
Logs = Annotated[list[str] | None, typer.Option("--log", metavar="FILE", help=_LOG)]
Agent = Annotated[str, typer.Option("--agent", metavar="AGENT", help="Only this agent.")]


class _Tool(msgspec.Struct):
    name: str


class _Agent(msgspec.Struct):
    digest: str
    tools: list[_Tool] = []


class _Manifest(msgspec.Struct):
    agents: dict[str, _Agent]


def directories(named: list[Path] | None, *, needed: bool = True) -> tuple[Path, ...]:
    """Return the directories of history: those that are named, else that of the environment.

    Exit 2 if there is none and one is needed.
    """
    if named:
        return tuple(named)

    from_environment = os.environ.get(ENVIRON)
    if from_environment:
        return (Path(from_environment),)

    if needed:
        fail(_NO_SOURCE, 2)
    return ()


def logs(named: list[str] | None) -> tuple[str, ...]:
    """Return the names of the logs, each file once: a log read twice would count twice."""
    name_by_path = {os.path.realpath(name): name for name in named or ()}
    return tuple(name_by_path.values())


def checked(word: str, option: str) -> str:
    """Return a name to look for; exit 2 if it has control characters, which no name of ours has."""
    if not word.isprintable():
        fail(f"{option}: {word} is no name", 2)
    return word


def one_of(agent: str, known: Collection[str], where: str) -> None:
    """Exit 2 if an agent is named that is not known."""
    checked(agent, "--agent")
    if agent and agent not in known:
        known_names = names_in_short(sorted(known)) or "none"
        fail(f"{where}: has no agent {agent}; it has {known_names}", 2)


def time_of(text: str, now: float, option: str) -> float | None:
    """Return a point in time in seconds: a time, or a period before ``now``; None for "".

    Exit 2 for any other text.

    >>> time_of("1h30m", 10_000.0, "--since"), time_of("1970-01-01T00:00:01Z", 0.0, "--since")
    (4600.0, 1.0)
    """
    if not text:
        return None

    is_period = _AGO.sub("", text) == ""
    if is_period:
        return now - sum(int(number) * _UNITS[unit] for number, unit in _AGO.findall(text))

    seconds = parse_time(text)
    if seconds is None:
        fail(f"{option}: {text} is no time; say 2h, 3d, or 2026-01-31T08:00:00Z", 2)
    return seconds


def grants_of(pod: Path, agent: str) -> PodGrants:
    """Return the compiled grants of a pod, and the tools that its services declare.

    The grants are those of the last compile, because they were in force. If the pod file has
    errors now, no declared tools are known. Exit 1 for a pod that was never compiled.
    """
    manifest = output_of(pod, None) / "pod-manifest.json"
    try:
        compiled = msgspec.json.decode(manifest.read_bytes(), type=_Manifest)
    except FileNotFoundError:
        fail(f"{manifest}: the pod was never compiled: claw compile {pod}")
    except OSError as error:
        fail(f"{manifest}: {error.strerror}")
    except (msgspec.DecodeError, RecursionError):
        fail(f"{manifest}: can't be read; compile the pod again")

    agents: dict[str, AgentGrants] = {}
    for name, compiled_agent in compiled.agents.items():
        granted = frozenset(tool.name for tool in compiled_agent.tools)
        agents[name] = AgentGrants(compiled_agent.digest, granted)

    plan = check_pod(pod, os.environ).value
    if plan is None:
        sys.stderr.write(
            f"note: {pod} has errors (claw check), so the tools that its services declare "
            "are not known\n"
        )
    one_of(agent, agents, str(pod))

    declared: set[str] = set()
    descriptors = {} if plan is None else plan.pod.descriptors
    for service, descriptor in descriptors.items():
        if descriptor is not None:
            declared.update(canonical_name(service, tool.name) for tool in descriptor.tools)
    return PodGrants(agents, frozenset(declared))


class DefaultCommandGroup(TyperGroup):
    """A group in which ``claw audit …`` without a command means ``claw audit list …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


audit_verbs = typer.Typer(
    name="audit", cls=DefaultCommandGroup, add_completion=False, rich_markup_mode=None
)


@audit_verbs.callback()
def audit_verb() -> None:
    """Show what agents did: turns, calls, failures, tokens, cost.

    From history and the proxy's log. Without a command: list.

    Exit 0; 1 for errors and a broken chain, 2 for wrong usage.
    """


@audit_verbs.command(_DEFAULT)
def list_verb(  # noqa: PLR0913, PLR0917 - each an option of its own
    pod: Pod = None,
    file: File = None,
    history: Histories = None,
    log: Logs = None,
    agent: Agent = "",
    tool: Annotated[
        str, typer.Option("--tool", metavar="TOOL", help="Only calls of this tool (service.tool).")
    ] = "",
    status: Annotated[
        Status | None, typer.Option("--status", help="Only turns and calls with this outcome.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="2h, 3d, or RFC 3339.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="The same, for the end of the period.")
    ] = "",
    turn: Annotated[
        str, typer.Option("--turn", metavar="ID", help="Only one turn, by the beginning of its id.")
    ] = "",
    last: Annotated[
        int,
        typer.Option(
            "--last", min=0, max=10_000, help="Number of calls and failures to list one by one."
        ),
    ] = LAST,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every call as CSV.")] = False,
) -> None:
    """Print counts and tables. With POD, also its tools that were not shown.

    Exit 0; 1 for errors and for files that can't be read, 2 for wrong usage.
    """
    if as_json and as_csv:
        fail("--json and --csv: only one of them", 2)

    now = time.time()
    filters = Filters(
        agent=agent,
        tool=checked(tool, "--tool"),
        status=status,
        since=time_of(since, now, "--since"),
        until=time_of(until, now, "--until"),
        turn=checked(turn, "--turn"),
    )

    log_names = logs(log)
    histories = directories(history, needed=not log_names)
    is_of_pod = pod is not None or file is not None
    _check_agent(histories, agent, needs_history=not log_names and not is_of_pod)

    on_call = csv_writer(sys.stdout) if as_csv else ignore
    grants = grants_of(pod_file(pod, file), agent) if is_of_pod else None
    query = AuditQuery(histories, log_names, filters, last, grants)
    with _exit_on_error(), _progress_bar(histories, log_names, passes=2) as progress:
        report = audit(query, progress, on_call)

    if as_json:
        print_json(document(report), ascii_only=True)
    elif not as_csv:
        print_tables(report, console())
    _print_skipped(report.unread)


@audit_verbs.command("show")
def show(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The beginning of a turn's id.")],
    history: Histories = None,
    agent: Agent = "",
    as_json: AsJson = False,
) -> None:
    """Print the transcript of a turn: who said what to whom.

    Exit 0; 1 for errors, 2 for an unknown turn, a beginning of several, and wrong usage.
    """
    histories = directories(history)
    prefix = checked(turn, "TURN")
    _check_agent(histories, agent)

    with _exit_on_error(), _progress_bar(histories, ()) as progress:
        result = find_turns(histories, prefix, agent, progress)

    for problem in result.problems:
        sys.stderr.write(f"error: {plain(problem)}\n")
    if not result.turns:
        fail(f"{turn}: no turn of history begins so", 2)
    if len(result.turns) > 1:
        fail(f"{turn}: several turns begin so: {', '.join(result.turns)}", 2)

    (attempts,) = result.turns.values()
    if as_json:
        print_json(attempts.last, ascii_only=True)
    else:
        print_lines(_transcript_lines(attempts))  # a transcript has no control characters

    # What could be read is shown; the exit code says that there may be more.
    if result.problems:
        raise typer.Exit(1)


def _transcript_lines(attempts: Attempts) -> Iterator[str]:
    earlier = attempts.earlier()
    not_shown = attempts.count - 1 - len(earlier)
    if not_shown:
        yield f"{not_shown} earlier attempts, and"
    yield from (f"an earlier attempt: {line}" for line in earlier)
    yield from render_transcript(attempts.last).split("\n")


@audit_verbs.command("verify")
def verify_verb(
    history: Histories = None, log: Logs = None, agent: Agent = "", as_json: AsJson = False
) -> None:
    """Check that history was not tampered with.

    With --log: also that history has every turn that the log names.

    Exit 0; 1 for a broken chain, a missing turn and errors, 2 for wrong usage.
    """
    histories = directories(history)
    log_names = logs(log)
    _check_agent(histories, agent, needs_history=not log_names)

    with _exit_on_error(), _progress_bar(histories, log_names) as progress:
        chains = verify(histories, log_names, agent, progress)
    holds = not any(chain.broken for chain in chains)

    if as_json:
        report = {"version": 1, "holds": holds, "chains": [asdict(chain) for chain in chains]}
        print_json(report, ascii_only=True)
    else:
        print_lines(plain(line) for line in _chain_lines(chains))
        if not log_names:
            print_lines([_WITHOUT_LOG])

    if not holds:
        raise typer.Exit(1)


def _chain_lines(chains: list[ChainVerdict]) -> Iterator[str]:
    if not chains:
        yield "there is no history"

    for chain in chains:
        state = "BROKEN" if chain.broken else "the chain holds"
        places = f", in {chain.broken} places; the first:" if chain.broken > 1 else ""
        yield f"{chain.agent}: {count(chain.lines, 'line')}, {state}{places}"

        for finding in chain.findings:
            note = "note: " if finding.kind == "note" else ""
            place = f":{finding.line} (byte {finding.offset})" if finding.line else ""
            yield f"  {note}{finding.file}{place}: {finding.what}"

        for missing in chain.missing:
            yield from _missing_lines(missing)


def _missing_lines(missing: MissingTurns) -> Iterator[str]:
    for turn in missing.turns:
        name = turn.turn_id or "a turn"
        at = turn.at or "an unknown time"
        line = f" (history_hash {turn.history_hash}…)" if turn.history_hash else ""
        yield f"  missing: {name} of {turn.agent} at {at}, {missing.why}{line}"

    not_named = missing.count - len(missing.turns)
    if not_named > 0:
        yield f"  missing: {not_named} more, {missing.why}"


def _check_agent(histories: tuple[Path, ...], agent: str, *, needs_history: bool = True) -> None:
    """Exit 2 if history is needed and does not have the agent; print a note if it is empty."""
    checked(agent, "--agent")
    with _exit_on_error():
        known = agent_directories(histories)

    names = " and ".join(map(str, histories))
    if histories and not known:
        sys.stderr.write(f"note: {plain(names)} has no directory of an agent\n")
    elif needs_history:
        one_of(agent, known, names)


def _print_skipped(skipped: SkippedInput) -> None:
    if skipped.lines:
        sys.stderr.write(f"{count(skipped.lines, 'line')} could not be read:\n")
    for line in skipped.first:
        sys.stderr.write(f"  {plain(line)}\n")

    for reason in skipped.files:
        sys.stderr.write(f"error: {plain(reason)}\n")
    if skipped.files:
        raise typer.Exit(1)


@contextmanager
def _exit_on_error() -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        fail(str(error))


@contextmanager
def _progress_bar(
    histories: tuple[Path, ...], log_names: tuple[str, ...], *, passes: int = 1
) -> Iterator[Progress]:
    """Show a progress bar on a terminal, if there is much to read.

    ``passes``: how often the histories are read.
    """
    if not sys.stderr.isatty():
        yield ignore
        return

    total = total_bytes(histories, log_names, passes)
    bar = Bar(
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=total < _SHOW_PROGRESS_FROM,
    )
    with bar:
        task = bar.add_task("reading", total=total)
        yield lambda size: bar.advance(task, size)
