"""The CA that runners see: checked before mitmproxy signs with it, and limited in what it signs.

mitmproxy makes a CA if it finds none, and that one is good for every name. It copies names from the
provider's certificate into its own and, at a transparent listener, the address that was dialled. A
pod's CA may sign neither, so runners would refuse the certificate. So each certificate is for one
name: the one that the runner asked for.

    CLLAMA_CA names no CA, or one for more than hosts       no start
    can't be read, open to others, broken, out of time      no start
    does not cover a governed host that a runner asks for   an event, once
    ends within 30 days, or has ended                       an event a day

With ``--set confdir`` mitmproxy has read or made its CA before a script is loaded. The directory
that CLLAMA_CA names becomes its ``confdir`` after the check. The addon outlives the script
(decision 0023).
"""

import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from mitmproxy import ctx, exceptions
from mitmproxy.certs import CertStore, CertStoreEntry
from mitmproxy.proxy.context import Context

from claw_certs.ca import Authority, UnfitError
from claw_certs.key_file import CA_FILE, load_ca
from claw_certs.names import ascii_name, is_address
from claw_certs.status import expires_soon
from claw_certs.store import DH_PARAMETERS
from claw_mediate.mitm.addon_state import AddonState, canonical
from claw_mediate.settings import Settings

_RENEWED_BEFORE = timedelta(days=7)
"""Time before its end at which a certificate is made anew.

mitmproxy caches each certificate while it runs, and they last 197 days.
"""
_NO_NAME = "no-name.invalid"
"""In a certificate for a runner that asked for a name that no certificate can hold."""


class TlsCaAddon:
    name = "claw-tls-ca"

    def __init__(
        self, addon_state: AddonState, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._addon_state = addon_state
        self._now = now
        self._authority: Authority | None = None  # None: mitmproxy makes its own, for every name
        self._checked: tuple[Path | None] | None = None
        """The CA of the settings that was checked, which may be None; None before the check."""
        self._uncovered: set[str] = set()
        self._reported_on: date | None = None

    def load(self, _: object) -> None:
        """Replace mitmproxy's ``get_cert`` by ``leaf``.

        Raise ``RuntimeError`` if mitmproxy's has other parameters.
        """
        config = self._addon_state.builtin.tlsconfig
        own = list(inspect.signature(config.get_cert).parameters)
        store = list(inspect.signature(CertStore.get_cert).parameters)
        if own != ["conn_context"] or store[1:3] != ["commonname", "sans"]:
            raise RuntimeError(
                "this version of mitmproxy is built differently: it makes its "
                "certificates in another way"
            )
        config.get_cert = self.leaf

    def configure(self, updated: set[str]) -> None:
        """Check a ``confdir`` that is set while the proxy runs.

        Raise ``OptionsError``, and mitmproxy takes the change back.
        """
        if "confdir" in updated and self._checked is not None:
            self._check(Path(ctx.options.confdir).expanduser())

    def check(self, settings: Settings) -> None:
        """Check the CA once before mitmproxy starts, and not when a script is reloaded.

        Raise ``OptionsError``.
        """
        if self._checked == (settings.ca,):
            return

        if settings.ca is None:
            self._check(Path(ctx.options.confdir).expanduser())
        else:
            self._check(settings.ca, is_pods=True)
            ctx.options.update(confdir=str(settings.ca))
        self._checked = (settings.ca,)

    def running(self) -> None:
        self._report_expiry()

    def leaf(self, conn_context: Context) -> CertStoreEntry:
        """Return the certificate of one connection, for one name."""
        name = _requested_name(conn_context)
        self._report_expiry()
        self._report_uncovered(name)

        store: CertStore = self._addon_state.builtin.tlsconfig.certstore
        names = self._spellings(name)
        common_name = str(names[0].value)
        entry = store.get_cert(common_name, names)
        if entry.cert.notafter - self._now() < _RENEWED_BEFORE:
            store.certs = {key: each for key, each in store.certs.items() if each is not entry}
            entry = store.get_cert(common_name, names)
        return entry

    def _spellings(self, name: str) -> list[x509.GeneralName]:
        """Return the name in the spellings that the certificate holds.

        A runner may compare a name with the dot at its end, and so that spelling is added; a CA
        that is limited to names may not sign for it.
        """
        general = _general_name(name)
        is_constrained = self._authority is not None and self._authority.permitted is not None
        has_dot = name.endswith(".") and isinstance(general, x509.DNSName)
        if not has_dot or is_constrained:
            return [general]
        return [general, x509.DNSName(f"{general.value}.")]

    def _check(self, directory: Path, *, is_pods: bool = False) -> None:
        passphrase = (ctx.options.cert_passphrase or "").encode() or None
        try:
            authority = load_ca(directory, self._now(), passphrase)
        except UnfitError as error:
            raise exceptions.OptionsError(str(error)) from error

        problem = pod_ca_problem(directory, authority) if is_pods else None
        if problem is not None:
            raise exceptions.OptionsError(problem)
        self._authority = authority

    def _report_expiry(self) -> None:
        """Report a CA that has ended or ends soon, once a day."""
        now = self._now()
        authority = self._authority
        if authority is None or self._reported_on == now.date():
            return

        problem = authority.problem_at(now)
        if problem is None and not expires_soon(authority, now):
            return

        self._reported_on = now.date()
        error = "ca_expired" if problem else "ca_expires"
        expiry = f"it expires on {authority.ends:%Y-%m-%d}: run `claw certs rotate`"
        self._addon_state.events.event(
            "error", error=error, ca=authority.name, reason=problem or expiry
        )

    def _report_uncovered(self, name: str) -> None:
        """Report once that the CA can't sign for a governed host."""
        authority = self._authority
        if authority is None or authority.covers(name) or name in self._uncovered:
            return
        if not self._governs(name):
            return

        self._uncovered.add(name)
        reason = "runners refuse what this CA signs for the host: run `claw certs rotate`"
        if is_address(name):
            reason = (
                "a pod's CA signs for no address: runners reach this provider at the base-URL "
                "entrance"
            )
        self._addon_state.events.event(
            "error", error="ca_does_not_cover", ca=authority.name, host=name, reason=reason
        )

    def _governs(self, name: str) -> bool:
        return canonical(name) in self._addon_state.refresh_hosts()


def pod_ca_problem(directory: Path, authority: Authority | None) -> str | None:
    """Return why this CA can't be a pod's, with the remedy; None if it can."""
    if authority is None:
        return (
            f"there is no CA {directory / CA_FILE}: run `claw certs init`, and give the proxy "
            ".claw-ca/private as CLLAMA_CA"
        )
    if (wide := authority.excessive_scope) is not None:
        return (
            f"the CA {directory / CA_FILE} may sign for {wide}: run `claw certs init "
            "--force`, or unset CLLAMA_CA"
        )
    if not (directory / DH_PARAMETERS).exists():
        return f"there is no {directory / DH_PARAMETERS}: run `claw certs init`, which creates it"
    return None


def _requested_name(context: Context) -> str:
    """Return the name that the runner asked for.

    Without one, return the host that it wanted, or else the address that it came to.
    """
    if context.client.sni:
        return context.client.sni
    address = context.server.address
    if address and address[0]:
        return address[0]
    return str(context.client.sockname[0])


def _general_name(name: str) -> x509.GeneralName:
    if is_address(name):
        return x509.IPAddress(ip_address(name.partition("%")[0]))

    try:
        return x509.DNSName(ascii_name(name))
    except ValueError:
        return x509.DNSName(_NO_NAME)
