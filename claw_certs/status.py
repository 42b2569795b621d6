"""How it stands with the pod's CA: what `claw certs status` tells, and `claw up` before it starts anything.

Rules. An error is what the proxy refuses to start on, now or after a rotation, or what no runner would trust; all else is a
warning. Each has its remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from claw_certs.ca import Authority, UnfitError
from claw_certs.key_file import FILE, of_directory
from claw_certs.names import names_of
from claw_certs.store import PRIVATE, PUBLIC, Kept, StagedError, kept, staged

SOON = timedelta(days=30)
"""How long before its end a CA is to be rotated."""


@dataclass(frozen=True)
class Problem:
    """``remedy`` is what to do, as one clause."""

    severity: Literal["error", "warning"]
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}: {self.remedy}"


@dataclass(frozen=True)
class Standing:
    """``hosts``: host → whether the CA that signs covers it; ``left_out``: hosts that no CA of a pod can cover, and why."""

    kept: Kept | None
    hosts: dict[str, bool]
    left_out: dict[str, str]
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)


def standing(directory: Path, hosts: Iterable[str], now: datetime, pod: str) -> Standing:
    """``pod``: how the operator names the pod file, for the remedies."""
    names = names_of(hosts)
    left_out = dict(names.left_out)
    wanted = sorted(set(hosts) - set(left_out))
    try:
        found = kept(directory)
    except StagedError as error:
        return Standing(None, dict.fromkeys(wanted, False), left_out, (_of_staged(error, pod),))
    except (OSError, UnfitError) as error:
        remedy = f"run `claw certs init {pod} --force` for another, once it is no longer in the way"
        problem = Problem("error", f"the CA in {directory} can't be used: {_line(error)}", remedy)
        return Standing(None, dict.fromkeys(wanted, False), left_out, (problem,))
    covered = {host: found.signing is not None and found.signing.covers(host) for host in wanted}
    problems = (*_of_the_key(directory, found, now, pod), *_of_trust(directory, found, pod))
    waiting = tuple(_of_the_next(directory, found, now, pod))
    coming = (*_of_hosts(found, wanted, pod), *_of_time(found, now, pod)) if found.signing and not waiting else ()
    return Standing(found, covered, left_out, (*problems, *waiting, *coming))


def _of_the_key(directory: Path, found: Kept, now: datetime, pod: str) -> Iterator[Problem]:
    if found.signing is None:
        yield Problem("error", f"there is no CA in {directory}", f"run `claw certs init {pod}`")
        return
    try:
        of_directory(directory / PRIVATE, now)
    except UnfitError as error:
        text, _, remedy = str(error).partition(" (")
        yield Problem("error", text, remedy.rstrip(")") or f"see {directory / PRIVATE / FILE}")
    if (wide := found.signing.too_wide) is not None:
        text = f"{found.signing.name} may sign for {wide}"
        yield Problem("error", text, f"`claw certs init {pod} --force` makes one for the governed hosts only")


def _of_the_next(directory: Path, found: Kept, now: datetime, pod: str) -> Iterator[Problem]:
    if found.next is None:
        return
    try:
        staged(directory, now)
    except StagedError as error:
        yield _of_staged(error, pod)


def _of_staged(error: StagedError, pod: str) -> Problem:
    return Problem("error", str(error), f"run `claw certs rotate {pod}`, which makes another, and recreate the runners")


def _of_trust(directory: Path, found: Kept, pod: str) -> Iterator[Problem]:
    for name in found.stale if found.signing is not None else ():
        text = f"{directory / PUBLIC / name}, which runners trust, is missing, or is not of this CA"
        yield Problem("error", text, f"run `claw certs init {pod}`, which writes it anew, and recreate the runners")


def _of_hosts(found: Kept, hosts: Iterable[str], pod: str) -> Iterator[Problem]:
    latest = found.next or found.signing
    assert latest is not None
    if missing := [host for host in hosts if not latest.covers(host)]:
        again = f"run `claw certs rotate {pod}`, which makes a CA for today's hosts"
        first = f"run `claw certs rotate {pod} --finish`, then `claw certs rotate {pod}` for today's hosts"
        text = f"{latest.name} does not cover {', '.join(missing)}"
        yield Problem("warning", text, again if found.next is None else first)


def _of_time(found: Kept, now: datetime, pod: str) -> Iterator[Problem]:
    assert found.signing is not None
    if found.next is not None and not found.is_trusted:
        return  # the files of public/ come first
    if found.next is not None:
        text = f"a rotation is under way: {found.next.name} is trusted, and does not sign yet"
        yield Problem("warning", text, f"once all runners were recreated since, run `claw certs rotate {pod} --finish`")
    elif ends_soon(found.signing, now):
        text = f"{found.signing.name} expires on {found.signing.ends:%Y-%m-%d}"
        yield Problem("warning", text, f"run `claw certs rotate {pod}`")


def ends_soon(authority: Authority, now: datetime) -> bool:
    """Whether it is time to rotate."""
    return now < authority.ends < now + SOON


def _line(error: OSError | UnfitError) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
