"""``claw certs init|rotate|status [POD]``: the CA that a pod's runners trust (certs/README.md)."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from claw_certs.ca import Authority, CaRequest, UnfitError
from claw_certs.names import ca_names
from claw_certs.status import CaStatus, ca_status
from claw_certs.store import (
    NoCaError,
    StagedCaError,
    StoredCas,
    finish,
    init,
    load_public_cas,
    rotate,
)
from claw_cli.arguments import AsJson, File, Pod, pod_file
from claw_cli.screen import fail, plain, print_json, print_lines
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_text
from claw_compile.output.deployment import CA_ROOT
from claw_compile.output.proxy_env import opened_hosts
from claw_contract.whole_numbers import MAX_INT32, whole_number

certs_verbs = typer.Typer(
    name="certs", add_completion=False, rich_markup_mode=None, no_args_is_help=True
)
_PUBLIC = "File with the public CAs for the bundle; default: this machine's own, else certifi's."
Days = Annotated[
    int, typer.Option("--days", min=1, max=3650, help="Days for which the CA is valid.")
]
PublicCas = Annotated[Path | None, typer.Option("--public-cas", metavar="FILE", help=_PUBLIC)]
_FORCE = "Replace an existing CA. No runner trusts the new one before it is recreated."
Force = Annotated[bool, typer.Option("--force", help=_FORCE)]
_FINISH = "Second step, once all runners were recreated: the new CA signs, and the old one goes."
Finish = Annotated[bool, typer.Option("--finish", help=_FINISH)]


@dataclass(frozen=True)
class _PodCa:
    """A pod, as far as its CA is concerned."""

    file: Path
    """The pod file, as the operator named it."""
    pod: str
    hosts: tuple[str, ...]
    """The hosts whose TLS the proxy opens."""
    is_needed: bool
    """False if all agents use the base URL, so that no runner meets the CA."""

    @property
    def directory(self) -> Path:
        return self.file.parent / CA_ROOT

    def request(self, days: int) -> CaRequest:
        return CaRequest(self.pod, ca_names(self.hosts).permitted, datetime.now(UTC), days)

    def status(self) -> CaStatus:
        return ca_status(self.directory, self.hosts, datetime.now(UTC), str(self.file))


@certs_verbs.callback()
def certs() -> None:
    """Create, rotate and show the pod's CA.

    Exit 0; 1 for errors, 2 for wrong usage.
    """


@certs_verbs.command("init")
def init_verb(
    pod: Pod = None,
    file: File = None,
    days: Days = 365,
    force: Force = False,
    public: PublicCas = None,
) -> None:
    """Create the pod's CA, good for its governed hosts only.

    An existing CA is kept, and the files that runners trust are written anew.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    ca = _pod_ca(pod, file)

    def create(public_cas: bytes) -> StoredCas:
        return init(ca.directory, ca.request(days), public_cas, _owner(), force=force)

    _update(ca, public, create)
    if not ca.is_needed:
        sys.stderr.write(
            "note: no agent of this pod needs a CA: all of them are at the base-URL entrance\n"
        )


@certs_verbs.command("rotate")
def rotate_verb(
    pod: Pod = None,
    file: File = None,
    days: Days = 365,
    done: Finish = False,
    public: PublicCas = None,
) -> None:
    """Replace the CA in two steps.

    First the new CA is trusted beside the old one. With --finish it signs, and the old one goes.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    ca = _pod_ca(pod, file)

    def stage(public_cas: bytes) -> StoredCas:
        return rotate(ca.directory, ca.request(days), public_cas, _owner())

    def replace(public_cas: bytes) -> StoredCas:
        return finish(ca.directory, datetime.now(UTC), public_cas, _owner())

    if done:
        _update(ca, public, replace)
        next_step = (
            "restart the proxy and the runners (claw up -- --force-recreate); "
            "runners drop the old CA"
        )
    else:
        _update(ca, public, stage)
        next_step = (
            "recreate the runners (claw up -- --force-recreate), so that all trust both; "
            f"then claw certs rotate {ca.file} --finish"
        )
    print_lines([f"next: {next_step}"])


@certs_verbs.command("status")
def status_verb(pod: Pod = None, file: File = None, as_json: AsJson = False) -> None:
    """Show which CA signs, for which hosts, and until when.

    Exit 0; 1 if the proxy would not start with it or with the next one, or runners would not trust
    it; 2 for wrong usage.
    """
    ca = _pod_ca(pod, file)
    status = ca.status()
    if as_json:
        print_json(_document(ca, status))
    else:
        print_lines(_lines(status))
        _print_problems(status)

    raise typer.Exit(0 if status.is_sound or not ca.is_needed else 1)


def _pod_ca(pod: Path | None, option: Path | None) -> _PodCa:
    file = pod_file(pod, option)
    checked = check_pod(file, os.environ)
    if checked.value is None:
        sys.stderr.write(as_text(checked.diagnostics))
        raise typer.Exit(1)

    plan = checked.value
    name = plan.loaded.pod.name
    return _PodCa(
        file=file,
        pod=name.text if name is not None else "pod",
        hosts=tuple(opened_hosts(plan.resolved)),
        is_needed=any(
            each.agent.has_proxy and each.agent.mode != "base-url" for each in plan.agents
        ),
    )


def _update(ca: _PodCa, public: Path | None, change: Callable[[bytes], StoredCas]) -> None:
    """Change the CA, then print its state; exit 1 if it can't be changed or would not work.

    ``change`` takes the public CAs in PEM.
    """
    try:
        source, public_cas = load_public_cas(public)
        change(public_cas)
    except StagedCaError as error:
        fail(
            f"{error}: run `claw certs rotate {ca.file}`, and recreate the runners before --finish"
        )
    except NoCaError as error:
        fail(f"{ca.directory}: {error}: run `claw certs init {ca.file}`")
    except UnfitError as error:
        fail(f"{ca.directory}: {error}: run `claw certs init --force {ca.file}`")
    except ValueError as error:
        fail(str(error))

    status = ca.status()
    print_lines(_lines(status))
    print_lines([f"runners trust: {ca.directory}/public, behind the public CAs of {source}"])
    _print_problems(status)
    if not status.is_sound:
        raise typer.Exit(1)


def _print_problems(status: CaStatus) -> None:
    sys.stderr.write("".join(f"{problem}\n" for problem in status.problems))


def _lines(status: CaStatus) -> Iterator[str]:
    if status.stored is not None:
        for role, ca in (("signs", status.stored.signing), ("next", status.stored.next)):
            if ca is not None:
                yield f"{role}: {ca.name}, until {ca.ends:%Y-%m-%d}"

    for host, is_covered in status.hosts.items():
        yield f"  {host}" if is_covered else f"  {host} (not covered)"
    for host, why in status.left_out.items():
        yield f"  {plain(host)} (left out: {why})"


def _document(ca: _PodCa, status: CaStatus) -> dict[str, Any]:
    stored = status.stored or StoredCas(None)
    return {
        "directory": str(ca.directory),
        "needed": ca.is_needed,
        "signing": _authority(stored.signing),
        "next": _authority(stored.next),
        "trusted": stored.is_trusted and stored.signing is not None,
        "hosts": [
            {"host": host, "covered": is_covered} for host, is_covered in status.hosts.items()
        ],
        "left_out": [{"host": host, "why": why} for host, why in status.left_out.items()],
        "problems": [asdict(problem) for problem in status.problems],
    }


def _authority(ca: Authority | None) -> dict[str, Any] | None:
    if ca is None:
        return None

    return {
        "name": ca.name,
        "begins": f"{ca.begins:%Y-%m-%dT%H:%M:%SZ}",
        "ends": f"{ca.ends:%Y-%m-%dT%H:%M:%SZ}",
        "permitted": ca.permitted,
    }


def _owner() -> int | None:
    """Return the user id of the proxy, who must own the key; None if it is ours.

    It is that of ``CLAW_UID``, as in Compose. Exit 1 if we may not give the key away.
    """
    text = os.environ.get("CLAW_UID", "")
    if not text:
        return None

    uid = whole_number(text, MAX_INT32)
    if uid is None:
        fail(f"CLAW_UID is a number from 0 to {MAX_INT32}, not {text}")
    if uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        fail(
            f"the proxy runs as CLAW_UID={uid}, who could not read the key: run this as "
            "that user, or as root"
        )

    return uid
