"""The CA that runners are shown: looked at before mitmproxy signs with it, and what it signs (issue 6 item 2).

mitmproxy makes a CA where it finds none, and that one is good for every name; it copies names of the provider's certificate
into its own, and with a transparent proxy the address that was dialled, and a pod's CA is good for neither: runners would
refuse all of it. So each certificate is for one name, the one that the runner asked for.

    CLLAMA_CA names no CA, or one for more than hosts       no start
    can't be read, open to others, broken, out of time      no start
    does not cover a governed host that a runner asks for   an event, once
    ends within 30 days, or has ended                       an event a day

With ``--set confdir`` mitmproxy has read or made its CA before a script is loaded; the directory that CLLAMA_CA names becomes
its ``confdir`` behind the look. Added to the master itself: what was found holds when the script is gone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from mitmproxy import ctx, exceptions
from mitmproxy.certs import CertStore, CertStoreEntry
from mitmproxy.proxy.context import Context

from claw_certs.ca import Authority, UnfitError
from claw_certs.key_file import CA_FILE, load_ca
from claw_certs.names import ascii_name, is_address
from claw_certs.status import expires_soon
from claw_certs.store import DH_PARAMETERS
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog

_AHEAD = timedelta(days=7)
"""How long before its end a certificate is made anew: mitmproxy keeps each for as long as it runs, and they last 197 days."""
_NO_NAME = "no-name.invalid"
"""What a certificate is for whose runner asked for what no certificate can be for."""


class Authorities:
    """The addon. ``covers`` of the CA that was found; None: mitmproxy makes its own, for every name."""

    name = "claw-authority"

    def __init__(self, events: EventLog, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._events = events
        self._now = now
        self._found: Authority | None = None
        self._checked: tuple[Path | None] | None = None
        self._uncovered: set[str] = set()
        self._told: date | None = None
        self.governs: Callable[[str], bool] = lambda _: False

    def load(self, _: object) -> None:
        """Put ``leaf`` in the place of mitmproxy's own. Raises ``RuntimeError`` where that has changed."""
        config: Any = ctx.master.addons.get("tlsconfig")
        own, store = inspect.signature(config.get_cert), inspect.signature(CertStore.get_cert)
        if list(own.parameters) != ["conn_context"] or list(store.parameters)[1:3] != ["commonname", "sans"]:
            raise RuntimeError("mitmproxy makes its certificates in another way now")
        config.get_cert = self.leaf

    def configure(self, updated: set[str]) -> None:
        """Another directory while it runs: taken back where it is not fit."""
        if "confdir" in updated and self._checked is not None:
            self._check(Path(ctx.options.confdir).expanduser())

    def check(self, settings: Settings) -> None:
        """Once before mitmproxy starts; a script that is reloaded is not stopped. Raises ``OptionsError``."""
        if self._checked == (settings.ca,):
            return
        if settings.ca is None:
            self._check(Path(ctx.options.confdir).expanduser())
        else:
            self._check(settings.ca, is_pods=True)
            ctx.options.update(confdir=str(settings.ca))
        self._checked = (settings.ca,)

    def running(self) -> None:
        """It starts: is it time to rotate?"""
        self._tell_time()

    def leaf(self, conn_context: Context) -> CertStoreEntry:
        """The certificate of one connection, for one name."""
        name = _asked(conn_context)
        self._tell_time()
        self._tell_name(name)
        store: CertStore = ctx.master.addons.get("tlsconfig").certstore
        named = self._spellings(name)
        entry = store.get_cert(str(named[0].value), named)
        if entry.cert.notafter - self._now() < _AHEAD:
            store.certs = {key: each for key, each in store.certs.items() if each is not entry}
            entry = store.get_cert(str(named[0].value), named)
        return entry

    def _spellings(self, name: str) -> list[x509.GeneralName]:
        """The name; with the dot at its end, too, where the runner compares it so, and the CA may sign for that."""
        named = _general(name)
        is_bound = self._found is not None and self._found.permitted is not None
        dotted = name.endswith(".") and isinstance(named, x509.DNSName) and not is_bound
        return [named, x509.DNSName(f"{named.value}.")] if dotted else [named]

    def _check(self, directory: Path, *, is_pods: bool = False) -> None:
        passphrase = (ctx.options.cert_passphrase or "").encode() or None
        try:
            found = load_ca(directory, self._now(), passphrase)
        except UnfitError as error:
            raise exceptions.OptionsError(str(error)) from error
        if is_pods and (problem := _not_the_pods(directory, found)) is not None:
            raise exceptions.OptionsError(problem)
        self._found = found

    def _tell_time(self) -> None:
        now = self._now()
        if self._found is None or self._told == now.date():
            return
        if (problem := self._found.problem_at(now)) is None and not expires_soon(self._found, now):
            return
        self._told = now.date()
        reason = problem or f"it expires on {self._found.ends:%Y-%m-%d}: run `claw certs rotate`"
        error = "ca_expired" if problem else "ca_expires"
        self._events.event("error", error=error, ca=self._found.name, reason=reason)

    def _tell_name(self, name: str) -> None:
        if self._found is None or self._found.covers(name) or name in self._uncovered or not self.governs(name):
            return
        self._uncovered.add(name)
        reason = "runners refuse what this CA signs for the host: run `claw certs rotate`"
        if is_address(name):
            reason = "a pod's CA signs for no address: runners reach this provider at the base-URL entrance"
        self._events.event("error", error="ca_does_not_cover", ca=self._found.name, host=name, reason=reason)


def _not_the_pods(directory: Path, found: Authority | None) -> str | None:
    """What is wrong with it where it is to be the pod's."""
    if found is None:
        return f"there is no CA {directory / CA_FILE}: run `claw certs init`, and give the proxy .claw-ca/private as CLLAMA_CA"
    if (wide := found.excessive_scope) is not None:
        return f"the CA {directory / CA_FILE} may sign for {wide}: run `claw certs init --force`, or unset CLLAMA_CA"
    if not (directory / DH_PARAMETERS).exists():
        return f"there is no {directory / DH_PARAMETERS}: run `claw certs init`, which mends it"
    return None


def _asked(context: Context) -> str:
    """The name that the runner asked for; without one, where it wanted to go; without that, where it came to."""
    address = context.server.address
    return context.client.sni or (address[0] if address else None) or str(context.client.sockname[0])


def _general(name: str) -> x509.GeneralName:
    if is_address(name):
        return x509.IPAddress(ip_address(name.partition("%")[0]))
    try:
        return x509.DNSName(ascii_name(name))
    except ValueError:
        return x509.DNSName(_NO_NAME)
