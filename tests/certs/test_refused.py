"""The CAs with which the proxy starts, and its message for each CA with which it does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mitmproxy.certs import CertStore
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context

from claw_certs.ca import create_ca, parse_ca
from claw_certs.key_file import CA_FILE, load_ca
from claw_certs.store import DH_PARAMETERS
from claw_mediate.mitm.gate.tls_ca import TlsCaAddon, pod_ca_problem
from claw_mediate.mitm.governance import BuiltinAddons, Governance
from claw_mediate.telemetry.event_log import EventLog
from tests.certs.example_cas import INSIDE, LONG_AGO, NOW, YET_TO_COME, ca_request, pods_ca
from tests.proxy.looking import taddons, tlsconfig
from tests.proxy.pod import Pod
from tests.proxy.test_start import fails_to_start


@pytest.mark.requirement("certs:refused")
@pytest.mark.parametrize(
    ("make_it", "says"),
    [
        (lambda place: place.mkdir(), "there is no CA"),
        (lambda place: pods_ca(place.parent, now=LONG_AGO), "it expired on"),
        (
            lambda place: pods_ca(place.parent) and (place / CA_FILE).chmod(0o644),
            "is open to everybody",
        ),
        (lambda place: pods_ca(place.parent) and (place / DH_PARAMETERS).unlink(), DH_PARAMETERS),
        (lambda place: CertStore.create_store(place, "mitmproxy", 2048), "may sign for any name"),
    ],
    ids=["missing", "expired", "open", "no parameters", "mitmproxy's own"],
)
def test_the_proxy_refuses_an_unfit_ca_in_one_line_and_creates_none(
    pod: Pod, make_it: Callable[[Path], Any], says: str
) -> None:
    place = pod.home / "private"
    make_it(place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    pod.agent("analyst", pod.tool("balance"))
    pod.environment |= {"CLLAMA_CA": str(place)}
    (line,) = fails_to_start(pod)
    assert says in line
    assert "claw certs init" in line or "chmod 600" in line
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


GOVERNED = [x509.DNSName(INSIDE)]
NO_ADDRESS = [x509.IPAddress(ip_network(network)) for network in ("0.0.0.0/0", "::/0")]


@pytest.mark.requirement("certs:refused")
@pytest.mark.parametrize(
    ("permitted", "excluded", "critical", "says"),
    [
        (GOVERNED, NO_ADDRESS, True, None),
        (
            [x509.DNSName(f".{INSIDE}".upper())],
            [*NO_ADDRESS, x509.DNSName("eu.openai.com")],
            True,
            None,
        ),
        ([*GOVERNED, x509.DNSName("")], NO_ADDRESS, True, "any name"),
        ([*GOVERNED, x509.DNSName("com")], NO_ADDRESS, True, "all names below 'com'"),
        ([x509.DNSName(".")], NO_ADDRESS, True, "any name"),
        ([x509.DNSName("10.0.0.5")], NO_ADDRESS, True, "all names below"),
        (GOVERNED, None, True, "addresses"),
        (GOVERNED, NO_ADDRESS[:1], True, "addresses"),
        (GOVERNED, NO_ADDRESS[1:], True, "addresses"),
        (GOVERNED, [x509.IPAddress(ip_network("10.0.0.0/8")), NO_ADDRESS[1]], True, "addresses"),
        (GOVERNED, NO_ADDRESS, False, "not critical"),
        (NO_ADDRESS, None, True, "any name"),
        (None, GOVERNED, True, "any name"),
    ],
)
def test_a_foreign_ca_is_accepted_if_it_is_constrained_like_a_pods_ca(
    tmp_path: Path, permitted: Any, excluded: Any, critical: bool, says: str | None
) -> None:
    (tmp_path / CA_FILE).write_bytes(
        by_hand(x509.NameConstraints(permitted, excluded), critical=critical)
    )
    (tmp_path / CA_FILE).chmod(0o600)
    (tmp_path / DH_PARAMETERS).touch()
    problem = pod_ca_problem(tmp_path, load_ca(tmp_path, NOW))
    assert (problem is None) == (says is None), problem
    assert says is None or f"{CA_FILE} may sign for " in str(problem)
    assert says is None or says in str(problem)


def by_hand(constraints: x509.NameConstraints, *, critical: bool) -> bytes:
    """Return a CA of one certificate, as an operator makes it by hand."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    builder = (
        builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.add_extension(constraints, critical=critical).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return secret + certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.requirement("certs:refused")
def test_a_confdir_is_checked_too_and_may_hold_any_sound_ca(pod: Pod) -> None:
    pods_ca(pod.home, now=YET_TO_COME)
    pod.agent("analyst", pod.tool("balance"))
    (line,) = fails_to_start(pod, "--set", f"confdir={pod.home / 'private'}")
    assert "is the clock right?" in line
    pod.start("--set", f"confdir={pod.home / 'another'}")
    assert (pod.home / "another" / CA_FILE).is_file()


@pytest.mark.requirement("certs:told")
def test_the_end_of_a_ca_is_logged_once_a_day_from_thirty_days_before() -> None:
    log: list[bytes] = []
    days = iter([0, 300, 340, 340, 341, 366])
    addon = TlsCaAddon(Governance(EventLog(log.append)), lambda: NOW + timedelta(days=next(days)))
    addon._authority = parse_ca(create_ca(ca_request()))
    said = []
    for _ in range(6):
        log.clear()
        addon.running()
        said.append([b"claw certs rotate" in line or b"ca_expired" in line for line in log])
    assert said == [[], [], [True], [], [True], [True]]


@pytest.mark.requirement("certs:one-name")
def test_a_proxy_that_runs_for_half_a_year_shows_no_expired_certificate(tmp_path: Path) -> None:
    """Until then it shows the same certificate, whatever names were requested meanwhile."""
    pods_ca(tmp_path)
    now = [NOW]
    with taddons.context(tlsconfig.TlsConfig()) as context:
        context.configure(context.master.addons.get("tlsconfig"), confdir=str(tmp_path / "private"))
        addon = TlsCaAddon(Governance(EventLog([].append), BuiltinAddons.find()), lambda: now[0])
        first, other = (
            addon.leaf(connection(name)).cert for name in ("api.openai.com", "EU.api.openai.com")
        )
        assert addon.leaf(connection("api.openai.com")).cert is first
        assert [name.value for name in other.altnames] == ["eu.api.openai.com"]
        now[0] += timedelta(days=191)
        again = addon.leaf(connection("api.openai.com")).cert
        assert again is not first


@pytest.mark.requirement("certs:one-name")
@pytest.mark.parametrize(
    "odd", ["a..b", "x" * 300, "\x00", "é\udcff", "*", "::1", "fe80::1%eth0", "10.0.0.5"]
)
def test_every_runner_gets_a_certificate_for_one_name(tmp_path: Path, odd: str) -> None:
    pods_ca(tmp_path)
    with taddons.context(tlsconfig.TlsConfig()) as context:
        context.configure(context.master.addons.get("tlsconfig"), confdir=str(tmp_path / "private"))
        addon = TlsCaAddon(Governance(EventLog([].append), BuiltinAddons.find()))
        assert len(addon.leaf(connection(odd)).cert.altnames) == 1


def connection(sni: str) -> Context:
    client = Client(
        peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0, sni=sni
    )
    return Context(client, Options())
