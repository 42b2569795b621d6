"""Arguments of ``claw audit``: sources, times, agents and the pod.

``--history`` overrides CLAW_SESSION_HISTORY_DIR. A pod's agents and grants are those of its compiled tree. The tools that its
services declare are read from the pod file, if that has no errors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from claw_audit.turns import parse_time
from claw_audit.withheld import AgentGrants, PodGrants
from claw_cli.screen import plain
from claw_compile.compiler import check_pod, output_of
from claw_contract.names import canonical_name

MANIFEST = "pod-manifest.json"
ENVIRON = "CLAW_SESSION_HISTORY_DIR"
_NO_SOURCE = (
    f"no history is named: give --history DIR, or set {ENVIRON} as the proxy has it"
    " (in Compose it is a volume: docker compose cp cllama:/claw/history .); or give --log FILE"
)
_MAX_NAMED = 10
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_AGO = re.compile(rf"([0-9]{{1,9}})([{''.join(_UNITS)}])")
Histories = Annotated[
    list[Path] | None,
    typer.Option(
        "--history", metavar="DIR", help=f"Directory of history; may be given more than once. [env: {ENVIRON}]"
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="FILE", help="The proxy's output, also compressed with gzip; - is standard input."),
]
Agent = Annotated[str, typer.Option("--agent", metavar="AGENT", help="Only this agent.")]


class _Tool(msgspec.Struct):
    name: str


class _Agent(msgspec.Struct):
    digest: str
    tools: list[_Tool] = []


class _Manifest(msgspec.Struct):
    agents: dict[str, _Agent]


def fail(why: str, code: int = 1) -> NoReturn:
    """Print an error in one line and exit."""
    sys.stderr.write(f"error: {plain(why)}\n")
    raise typer.Exit(code)


def directories(named: list[Path] | None, *, needed: bool = True) -> tuple[Path, ...]:
    """Return the directories of history; exit if there is none and one is needed."""
    histories = tuple(named or ([Path(os.environ[ENVIRON])] if os.environ.get(ENVIRON) else []))
    if not histories and needed:
        fail(_NO_SOURCE, 2)
    return histories


def logs(named: list[str] | None) -> tuple[str, ...]:
    """Return the names of the logs, each file once."""
    return tuple({os.path.realpath(name): name for name in named or ()}.values())


def checked(word: str, option: str) -> str:
    """Return a name to look for; exit if it has control characters, as no name of ours has."""
    if not word.isprintable():
        fail(f"{option}: {word} is no name", 2)
    return word


def one_of(agent: str, known: Collection[str], where: str) -> None:
    """Exit if an agent is named that is not known."""
    if checked(agent, "--agent") and agent not in known:
        names = sorted(known)
        more = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        fail(f"{where}: has no agent {agent}; it has {', '.join(names[:_MAX_NAMED]) or 'none'}{more}", 2)


def time_of(text: str, now: float, option: str) -> float | None:
    """Return the seconds of a time, or of a period before ``now``; None for "".

    >>> time_of("1h30m", 10_000.0, "--since"), time_of("1970-01-01T00:00:01Z", 0.0, "--since")
    (4600.0, 1.0)
    """
    if not text:
        return None
    if _AGO.sub("", text) == "":
        return now - sum(int(number) * _UNITS[unit] for number, unit in _AGO.findall(text))
    if (at := parse_time(text)) is None:
        fail(f"{option}: {text} is no time; say 2h, 3d, or 2026-01-31T08:00:00Z", 2)
    return at


def grants_of(pod_file: Path) -> PodGrants:
    """Return the compiled grants of a pod, and the tools that its services declare."""
    manifest = output_of(pod_file, None) / MANIFEST
    try:
        compiled = msgspec.json.decode(manifest.read_bytes(), type=_Manifest)
    except FileNotFoundError:
        fail(f"{manifest}: the pod was never compiled: claw compile {pod_file}")
    except OSError as error:
        fail(f"{manifest}: {error.strerror}")
    except (msgspec.DecodeError, RecursionError):
        fail(f"{manifest}: can't be read; compile the pod again")
    agents = {
        name: AgentGrants(agent.digest, frozenset(tool.name for tool in agent.tools))
        for name, agent in compiled.agents.items()
    }
    return PodGrants(agents, _declared(pod_file))


def _declared(pod_file: Path) -> frozenset[str]:
    plan = check_pod(pod_file, os.environ).value
    if plan is None:
        sys.stderr.write(
            f"note: {pod_file} has errors (claw check), so the tools that its services declare are not known\n"
        )
        return frozenset()
    described = plan.pod.descriptors.items()
    return frozenset(
        canonical_name(service, tool.name)
        for service, descriptor in described
        if descriptor
        for tool in descriptor.tools
    )
