"""``claw certs init|rotate|status [POD]``: the CA that a pod's runners trust (issue 6 item 2; certs/README.md)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from claw_certs.ca import Authority, UnfitError, Wanted
from claw_certs.names import Names, names_of
from claw_certs.store import Kept, StagedError, finish, init, rotate
from claw_certs.bundle import public_cas
from claw_certs.status import Standing, standing
from claw_cli.arguments import AsJson, File, Pod, pod_file
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_text
from claw_compile.output.deployment import CA_ROOT
from claw_compile.output.proxy_env import opened_hosts

certs_verbs = typer.Typer(name="certs", add_completion=False, rich_markup_mode=None, no_args_is_help=True)
_PUBLIC = "A file with the public CAs for the bundle; default: this machine's own, else certifi's."
Days = Annotated[int, typer.Option("--days", min=1, max=3650, help="How long the CA is valid.")]
PublicCas = Annotated[Path | None, typer.Option("--public-cas", metavar="FILE", help=_PUBLIC)]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace a CA that is there; no runner trusts the new one before it is recreated."),
]
Finish = Annotated[
    bool,
    typer.Option("--finish", help="The second step, once all runners were recreated: it signs, and the old one goes."),
]


@dataclass(frozen=True)
class _Job:
    """What a verb is about. ``file`` is how the operator names the pod."""

    file: Path
    pod: str
    hosts: tuple[str, ...]
    is_needed: bool

    @property
    def directory(self) -> Path:
        return self.file.parent / CA_ROOT

    @property
    def names(self) -> Names:
        return names_of(self.hosts)

    def wanted(self, days: int) -> Wanted:
        return Wanted(self.pod, self.names.permitted, datetime.now(UTC), days)

    def standing(self) -> Standing:
        return standing(self.directory, self.hosts, datetime.now(UTC), str(self.file))


@certs_verbs.callback()
def certs() -> None:
    """The pod's CA: made, rotated, looked at.

    Exit 0; 1 for errors, 2 for wrong usage.
    """


@certs_verbs.command("init")
def init_verb(
    pod: Pod = None, file: File = None, days: Days = 365, force: Force = False, public: PublicCas = None
) -> None:
    """Make the pod's CA, good for its governed hosts only.

    A CA that is there is kept, and what runners trust is written anew.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    job = _job(pod, file)
    _change(job, public, lambda system: init(job.directory, job.wanted(days), system, _owner(), force=force))
    if not job.is_needed:
        sys.stderr.write("note: no agent of this pod needs a CA: all of them are at the base-URL entrance\n")


@certs_verbs.command("rotate")
def rotate_verb(
    pod: Pod = None, file: File = None, days: Days = 365, done: Finish = False, public: PublicCas = None
) -> None:
    """Put another CA in the old one's place, in two steps.

    First it is trusted beside the old one; with --finish it signs, and the old one goes.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    job = _job(pod, file)
    if done:
        _change(job, public, lambda system: finish(job.directory, datetime.now(UTC), system, _owner()))
        sys.stdout.write(
            "next: restart the proxy and the runners (claw up -- --force-recreate); runners drop the old CA\n"
        )
        return
    _change(job, public, lambda system: rotate(job.directory, job.wanted(days), system, _owner()))
    sys.stdout.write(
        "next: recreate the runners (claw up -- --force-recreate), so that all trust both;"
        f" then claw certs rotate {job.file} --finish\n"
    )


@certs_verbs.command("status")
def status_verb(pod: Pod = None, file: File = None, as_json: AsJson = False) -> None:
    """Tell which CA signs, for which hosts, and until when.

    Exit 0; 1 where the proxy would not start on it, or on the one to come, or runners not trust it; 2 for wrong usage.
    """
    job = _job(pod, file)
    found = job.standing()
    if as_json:
        sys.stdout.write(json.dumps(_document(job, found), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(found)))
        sys.stderr.write("".join(f"{problem}\n" for problem in found.problems))
    raise typer.Exit(0 if found.is_sound or not job.is_needed else 1)


def _job(pod: Path | None, option: Path | None) -> _Job:
    file = pod_file(pod, option)
    checked = check_pod(file, os.environ)
    if checked.value is None:
        sys.stderr.write(as_text(checked.diagnostics))
        raise typer.Exit(1)
    plan = checked.value
    name = plan.loaded.pod.name
    needed = any(each.agent.has_proxy and each.agent.mode != "base-url" for each in plan.agents)
    return _Job(file, name.text if name is not None else "pod", tuple(opened_hosts(plan.resolved)), needed)


def _change(job: _Job, public: Path | None, change: Callable[[bytes], Kept]) -> None:
    with _errors(job):
        place, system = public_cas(public)
        change(system)
    found = job.standing()
    sys.stdout.write("".join(f"{line}\n" for line in _lines(found)))
    sys.stdout.write(f"what runners trust: {job.directory}/public, behind the public CAs of {place}\n")
    sys.stderr.write("".join(f"{problem}\n" for problem in found.problems))
    if not found.is_sound:
        raise typer.Exit(1)


def _lines(found: Standing) -> Iterator[str]:
    if found.kept is not None:
        for what, each in (("signs", found.kept.signing), ("next", found.kept.next)):
            if each is not None:
                yield f"{what}: {each.name}, until {each.ends:%Y-%m-%d}"
    for host, covered in found.hosts.items():
        yield f"  {host}{'' if covered else ' (not covered)'}"
    for host, why in found.left_out.items():
        yield f"  {_plain(host)} (left out: {why})"


def _document(job: _Job, found: Standing) -> dict[str, Any]:
    of = found.kept or Kept(None)
    return {
        "directory": str(job.directory),
        "needed": job.is_needed,
        "signing": _authority(of.signing),
        "next": _authority(of.next),
        "trusted": of.is_trusted and of.signing is not None,
        "hosts": [{"host": host, "covered": covered} for host, covered in found.hosts.items()],
        "left_out": [{"host": host, "why": why} for host, why in found.left_out.items()],
        "problems": [asdict(problem) for problem in found.problems],
    }


def _authority(of: Authority | None) -> dict[str, Any] | None:
    if of is None:
        return None
    times = {"begins": f"{of.begins:%Y-%m-%dT%H:%M:%SZ}", "ends": f"{of.ends:%Y-%m-%dT%H:%M:%SZ}"}
    return {"name": of.name, **times, "permitted": None if of.permitted is None else list(of.permitted)}


def _owner() -> int | None:
    """Who runs the proxy, where that is somebody else: root may give the key away, and nobody else can."""
    named = os.environ.get("CLAW_UID", "")
    if not named:
        return None
    if not named.isdecimal():
        _fail(f"CLAW_UID is a number, not {_plain(named)}")
    if int(named) == os.geteuid():
        return None
    if os.geteuid() != 0:
        _fail(f"the proxy runs as CLAW_UID={named}, who could not read the key: run this as that user, or as root")
    return int(named)


@contextmanager
def _errors(job: _Job) -> Iterator[None]:
    try:
        yield
    except StagedError as error:
        _fail(f"{error}: run `claw certs rotate {job.file}`, and recreate the runners before --finish")
    except UnfitError as error:
        remedy = "init" if str(error) == "there is no CA yet" else "init --force"
        _fail(f"{job.directory}: {error}: run `claw certs {remedy} {job.file}`")
    except ValueError as error:
        _fail(str(error))


def _fail(why: str) -> NoReturn:
    sys.stderr.write(f"error: {why}\n")
    raise typer.Exit(1)


def _plain(text: str) -> str:
    """A host may be any text of the pod file, and a terminal obeys it."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)
