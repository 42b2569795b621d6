"""The status of the pod's CA, for ``claw certs status``, and for ``claw up`` before it starts.

An error is a problem that keeps the proxy from starting, now or after a rotation, or that keeps
runners from trusting it. Everything else is a warning. Each problem has its remedy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from claw_certs.ca import Authority, UnfitError
from claw_certs.key_file import CA_FILE, load_ca
from claw_certs.names import ca_names
from claw_certs.store import PRIVATE, PUBLIC, StagedCaError, StoredCas, read_staged, read_store

_ROTATION_PERIOD = timedelta(days=30)  # time before its end in which a CA is to be rotated


@dataclass(frozen=True)
class CaProblem:
    """A problem with the CA. ``remedy`` is a clause that says what to do."""

    severity: Literal["error", "warning"]
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}: {self.remedy}"


@dataclass(frozen=True)
class CaStatus:
    """The status of a pod's CA."""

    stored: StoredCas | None
    """None if the CA can't be read."""
    hosts: dict[str, bool]
    """True for each host that the signing CA covers."""
    left_out: dict[str, str]
    """The hosts that no CA of a pod can cover, each with the reason."""
    problems: tuple[CaProblem, ...]

    @property
    def is_sound(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)


def ca_status(directory: Path, hosts: Iterable[str], now: datetime, pod: str) -> CaStatus:
    """Return the status of a pod's CA.

    ``pod``: the pod file as the operator names it, for the remedies.
    """
    left_out = dict(ca_names(hosts).left_out)
    coverable = sorted(set(hosts) - set(left_out))
    try:
        stored = read_store(directory)
    except StagedCaError as error:
        problem = _staged_problem(error, pod)
        return CaStatus(None, dict.fromkeys(coverable, False), left_out, (problem,))
    except (OSError, UnfitError) as error:
        problem = _unreadable_problem(error, directory, pod)
        return CaStatus(None, dict.fromkeys(coverable, False), left_out, (problem,))

    signing = stored.signing
    covered = {host: signing is not None and signing.covers(host) for host in coverable}
    problems = list(_stored_problems(directory, stored, now, pod))
    try:
        if stored.next is not None:
            read_staged(directory, now)
    except StagedCaError as error:
        problems.append(_staged_problem(error, pod))
    else:
        if signing is not None:
            problems += _rotation_problems(stored, signing, coverable, now, pod)
    return CaStatus(stored, covered, left_out, tuple(problems))


def _stored_problems(
    directory: Path, stored: StoredCas, now: datetime, pod: str
) -> Iterator[CaProblem]:
    """Yield the problems of the signing CA, and of the files that runners get."""
    if stored.signing is None:
        yield CaProblem("error", f"there is no CA in {directory}", f"run `claw certs init {pod}`")
        return

    try:
        load_ca(directory / PRIVATE, now)
    except UnfitError as error:
        # Most errors of ``load_ca`` end with their remedy in parentheses.
        text, _, remedy = str(error).partition(" (")
        remedy = remedy.rstrip(")") or f"see {directory / PRIVATE / CA_FILE}"
        yield CaProblem("error", text, remedy)

    scope = stored.signing.excessive_scope
    if scope is not None:
        text = f"{stored.signing.name} may sign for {scope}"
        remedy = f"`claw certs init {pod} --force` makes one for the governed hosts only"
        yield CaProblem("error", text, remedy)

    for name in stored.stale_files:
        text = f"{directory / PUBLIC / name}, which runners trust, is missing, or is not of this CA"
        remedy = f"run `claw certs init {pod}`, which writes it anew, and recreate the runners"
        yield CaProblem("error", text, remedy)


def _unreadable_problem(error: OSError | UnfitError, directory: Path, pod: str) -> CaProblem:
    reason = str(error)
    if isinstance(error, OSError):
        reason = f"{error.filename}: {error.strerror}"
    remedy = f"run `claw certs init {pod} --force` for another, once it is no longer in the way"
    return CaProblem("error", f"the CA in {directory} can't be used: {reason}", remedy)


def _staged_problem(error: StagedCaError, pod: str) -> CaProblem:
    remedy = f"run `claw certs rotate {pod}`, which makes another, and recreate the runners"
    return CaProblem("error", str(error), remedy)


def _rotation_problems(
    stored: StoredCas, signing: Authority, hosts: Iterable[str], now: datetime, pod: str
) -> Iterator[CaProblem]:
    """Yield the reasons to begin a rotation, or to finish one."""
    rotate = f"`claw certs rotate {pod}`"
    finish = f"`claw certs rotate {pod} --finish`"

    latest = stored.next or signing
    missing = [host for host in hosts if not latest.covers(host)]
    if missing:
        text = f"{latest.name} does not cover {', '.join(missing)}"
        if stored.next is None:
            remedy = f"run {rotate}, which makes a CA for today's hosts"
        else:
            remedy = f"run {finish}, then {rotate} for today's hosts"
        yield CaProblem("warning", text, remedy)

    # If the runners' files are stale, they come first: `_stored_problems` reports them.
    if stored.next is not None and stored.is_trusted:
        text = f"a rotation is under way: {stored.next.name} is trusted, and does not sign yet"
        remedy = f"once all runners were recreated since, run {finish}"
        yield CaProblem("warning", text, remedy)
    elif stored.next is None and expires_soon(signing, now):
        text = f"{signing.name} expires on {signing.ends:%Y-%m-%d}"
        yield CaProblem("warning", text, f"run {rotate}")


def expires_soon(authority: Authority, now: datetime) -> bool:
    """Return True in the last 30 days of the CA."""
    return now < authority.ends < now + _ROTATION_PERIOD
