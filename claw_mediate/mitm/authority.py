"""The CA that runners are shown: looked at before mitmproxy signs with it, and what it signs (issue 6 item 2).

mitmproxy makes a CA where it finds none, and that one is good for every name; it copies names of the provider's certificate
into its own, and with a transparent proxy the address that was dialled, and a pod's CA is good for neither: runners would
refuse all of it. So each certificate is for one name, the one that the runner asked for.

    no CA, and CLLAMA_CA=pod; or it can't be made there     no start
    can't be read, open to others, broken, out of time      no start
    good for any name, and CLLAMA_CA=pod                    no start
    does not cover a governed host that a runner asks for   an event, once
    ends within 30 days, or has ended                       an event a day

Added to the master itself: what it found holds when the script is gone.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from mitmproxy import ctx, exceptions
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.certs import CertStore, CertStoreEntry
from mitmproxy.proxy.context import Context

from claw_certs.authority import Authority, UnfitError
from claw_certs.key_file import FILE, of_directory
from claw_certs.names import ascii_name, is_address
from claw_certs.standing import ends_soon
from claw_mediate.io.log import EventLog
from claw_mediate.io.settings import Settings

_DH_PARAMETERS = "mitmproxy-dhparam.pem"
_NO_NAME = "no-name.invalid"
"""What a certificate is for whose runner asked for what no certificate can be for."""


class Authorities:
    """The addon. ``covers`` of the CA that was found; None: mitmproxy makes its own, for every name."""

    name = "claw-authority"

    def __init__(self, events: EventLog, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._events = events
        self._now = now
        self._found: Authority | None = None
        self._checked: tuple[str, str] | None = None
        self._uncovered: set[str] = set()
        self._told: date | None = None
        self.governs: Callable[[str], bool] = lambda _: False

    def load(self, _: object) -> None:
        """Put ``leaf`` in the place of mitmproxy's own. Raises ``RuntimeError`` where that has changed."""
        config: TlsConfig = ctx.master.addons.get("tlsconfig")
        own, store = list(inspect.signature(TlsConfig.get_cert).parameters), inspect.signature(CertStore.get_cert)
        if own != ["self", "conn_context"] or list(store.parameters)[1:3] != ["commonname", "sans"]:
            raise RuntimeError("mitmproxy makes its certificates in another way now")
        config.get_cert = self.leaf  # type: ignore[method-assign]

    def configure(self, updated: set[str]) -> None:
        """Another directory while it runs: taken back where it is not fit."""
        if "confdir" in updated and self._checked is not None:
            self._check(self._checked[1])

    def check(self, settings: Settings) -> None:
        """Once before mitmproxy starts; a script that is reloaded is not stopped. Raises ``OptionsError``."""
        if self._checked is None:
            self._check(settings.ca)

    def running(self) -> None:
        """It starts: is it time to rotate?"""
        self._tell_time()

    def leaf(self, conn_context: Context) -> CertStoreEntry:
        """The certificate of one connection, for one name."""
        name = _asked(conn_context)
        self._tell_time()
        self._tell_name(name)
        config: TlsConfig = ctx.master.addons.get("tlsconfig")
        named: x509.GeneralName = _general(name)
        return config.certstore.get_cert(str(named.value), [named])

    def _check(self, ca: str) -> None:
        confdir = Path(ctx.options.confdir).expanduser()
        passphrase = (ctx.options.cert_passphrase or "").encode() or None
        try:
            found = of_directory(confdir, self._now(), passphrase)
        except UnfitError as error:
            raise exceptions.OptionsError(str(error)) from error
        if (problem := _missing(confdir, found, is_pods=ca == "pod")) is not None:
            raise exceptions.OptionsError(problem)
        self._found, self._checked = found, (str(confdir), ca)

    def _tell_time(self) -> None:
        now = self._now()
        if self._found is None or self._told == now.date():
            return
        if (problem := self._found.unfit_at(now)) is None and not ends_soon(self._found, now):
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


def _missing(confdir: Path, found: Authority | None, *, is_pods: bool) -> str | None:
    """What mitmproxy would make by itself, and must or can't."""
    if found is None and is_pods:
        return f"there is no CA {confdir / FILE}: run `claw certs init`, and mount .claw-ca/private there"
    if found is not None and is_pods and found.permitted is None:
        return f"the CA {confdir / FILE} may sign for any name: run `claw certs init --force`, or unset CLLAMA_CA"
    wanted = (FILE, _DH_PARAMETERS)
    lacking = next((name for name in wanted if not (confdir / name).exists()), None)
    if lacking is not None and confdir.is_dir() and not os.access(confdir, os.W_OK):
        return f"there is no {confdir / lacking}, and it can't be made there: run `claw certs init`, or set another confdir"
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
