"""The CAs with which the proxy starts, and its message for each CA with which it does not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mitmproxy.certs import CertStore, dummy_cert
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context

from claw_certs.ca import UnfitError, create_ca, parse_ca
from claw_certs.key_file import CA_FILE, exposed_to, load_ca
from claw_certs.store import DH_PARAMETERS
from claw_mediate.mitm.addon_state import AddonState, BuiltinAddons
from claw_mediate.mitm.gate.tls_ca import TlsCaAddon, pod_ca_problem
from claw_mediate.telemetry.event_log import EventLog
from tests.certs.example_cas import INSIDE, LONG_AGO, NOW, YET_TO_COME, ca_request, pods_ca
from tests.proxy.looking import taddons, tlsconfig
from tests.proxy.pod import Pod
from tests.proxy.test_start import fails_to_start


def encrypted(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    locked = serialization.BestAvailableEncryption(b"word")
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
    ) + certificates(pem)


def certificates(pem: bytes) -> bytes:
    return pem[pem.index(b"-----BEGIN CERTIFICATE") :]


def leaf(pem: bytes) -> bytes:
    """Return a CA's file whose certificate is not that of a CA."""
    key = serialization.load_pem_private_key(pem, None)
    signer = x509.load_pem_x509_certificates(pem)[0]
    return (
        pem[: pem.index(b"-----BEGIN CERTIFICATE")]
        + dummy_cert(key, signer, "a.example", [x509.DNSName("a.example")]).to_pem()
    )


FLAWS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "the key of another": (
        lambda pem: create_ca(ca_request()).split(b"-----BEGIN CERT")[0] + certificates(pem),
        "not the certificate's",
    ),
    "a certificate of no CA": (leaf, "none of a CA"),
    "no key": (certificates, "no private key"),
    "no certificate": (lambda pem: pem.split(b"-----BEGIN CERT")[0], "no certificate"),
    "another's root": (
        lambda pem: (
            pem[: pem.rindex(b"-----BEGIN CERT")]
            + create_ca(ca_request())
            .rpartition(b"-----BEGIN CERT")[2]
            .join([b"-----BEGIN CERT", b""])
        ),
        "no chain",
    ),
    "an encrypted key": (encrypted, "cert_passphrase"),
    "nothing": (lambda _: b"", "no certificate"),
    "garbage": (lambda pem: pem[:400] + b"\x00" + pem[500:], "no "),
}


@pytest.mark.requirement("certs:refused")
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_file_without_a_sound_ca_is_refused_in_one_line_with_the_remedy(
    tmp_path: Path, flaw: str
) -> None:
    pods_ca(tmp_path)
    file = tmp_path / "private" / "mitmproxy-ca.pem"
    alter, says = FLAWS[flaw]
    file.write_bytes(alter(file.read_bytes()))
    with pytest.raises(UnfitError) as refused:
        load_ca(file.parent, NOW)
    assert says in str(refused.value)
    assert "claw certs init --force" in str(refused.value)
    assert "PRIVATE" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.requirement("certs:refused")
def test_an_encrypted_key_is_read_with_its_passphrase(tmp_path: Path) -> None:
    pods_ca(tmp_path)
    file = tmp_path / "private" / "mitmproxy-ca.pem"
    plain = load_ca(file.parent, NOW, b"unneeded")
    file.write_bytes(encrypted(file.read_bytes()))
    assert load_ca(file.parent, NOW, b"word") == plain


@pytest.mark.requirement("certs:refused")
@pytest.mark.parametrize(
    ("mode", "own", "readers"),
    [
        (0o600, True, None),
        (0o400, True, None),
        (0o604, True, "everybody"),
        (0o602, False, "everybody"),
        (0o640, True, "its group"),
        # A Secret of Kubernetes belongs to root, and the proxy reads it by its group.
        (0o440, False, None),
        (0o460, False, "its group"),
    ],
)
def test_nobody_else_may_read_the_key(mode: int, own: bool, readers: str | None) -> None:
    owner = os.geteuid() if own else os.geteuid() + 1
    about = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert exposed_to(about) == readers


@pytest.mark.requirement("certs:refused")
def test_the_readers_of_a_key_depend_on_the_user_of_the_proxy() -> None:
    """Root may create the CA of a proxy that runs as another user."""
    owner = os.geteuid() + 1
    about = os.stat_result((stat.S_IFREG | 0o640, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert (exposed_to(about), exposed_to(about, owner)) == (None, "its group")


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
    addon = TlsCaAddon(AddonState(EventLog(log.append)), lambda: NOW + timedelta(days=next(days)))
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
        addon = TlsCaAddon(AddonState(EventLog([].append), BuiltinAddons.find()), lambda: now[0])
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
        addon = TlsCaAddon(AddonState(EventLog([].append), BuiltinAddons.find()))
        assert len(addon.leaf(connection(odd)).cert.altnames) == 1


def connection(sni: str) -> Context:
    client = Client(
        peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0, sni=sni
    )
    return Context(client, Options())
