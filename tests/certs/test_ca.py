"""The constraints of the pod's CA: host names in X.509, and its certificates as
OpenSSL judges them.
"""

from __future__ import annotations

import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from mitmproxy.certs import CertStore

from claw_certs.ca import UnfitError, create_ca, parse_ca
from tests.certs.example_cas import INSIDE, NOW, ca_request, pods_ca
from tests.not_tested import need


@pytest.mark.requirement("certs:constrained")
@pytest.mark.parametrize(
    ("sans", "problem"),
    [
        ([INSIDE], None),
        ([f"eu.{INSIDE}"], None),
        (["bank.example"], "permitted subtree violation"),
        (["openai.com"], "permitted subtree violation"),
        ([f"evil{INSIDE}"], "permitted subtree violation"),
        (["127.0.0.1"], "excluded subtree violation"),
        (["::1"], "excluded subtree violation"),
        ([INSIDE, "bank.example"], "permitted subtree violation"),
        ([INSIDE, "10.0.0.5"], "excluded subtree violation"),
    ],
)
def test_openssl_accepts_certificates_for_governed_hosts_only(
    tmp_path: Path, sans: list[str], problem: str | None
) -> None:
    """mitmproxy's own code signs the certificates.

    OpenSSL reads them strictly, as Python does since 3.13.
    """
    pods_ca(tmp_path)
    private, leaf, chain = tmp_path / "private", tmp_path / "leaf.pem", tmp_path / "chain.pem"
    store = CertStore.from_files(private / "mitmproxy-ca.pem", private / "mitmproxy-dhparam.pem")
    entry = store.get_cert(sans[0], [_general(each) for each in sans])
    leaf.write_bytes(entry.cert.to_pem())
    chain.write_bytes(b"".join(each.to_pem() for each in entry.chain_certs))
    command = [
        need("openssl"),
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        "-untrusted",
        str(chain),
    ]
    trusted = ["-CAfile", str(tmp_path / "public" / "ca-cert.pem")]
    result = subprocess.run(
        [*command, *trusted, str(leaf)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode == 0) == (problem is None), result.stderr
    assert problem is None or problem in result.stderr


@pytest.mark.requirement("certs:constrained")
def test_constraints_are_critical_and_names_of_cas_are_dated_and_unique() -> None:
    one, other = parse_ca(create_ca(ca_request())), parse_ca(create_ca(ca_request()))
    for certificate, length in ((one.root, 1), (one.certificate, 0)):
        for kind in (x509.BasicConstraints, x509.KeyUsage, x509.NameConstraints):
            assert certificate.extensions.get_extension_for_class(kind).critical
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        assert (basic.ca, basic.path_length) == (True, length)
        assert certificate.not_valid_after_utc == one.ends
    assert one.name.startswith(f"claw desk {NOW:%Y-%m-%d} ")
    assert len({one.name, other.name, one.certificate.subject, one.root.subject}) == 4


@pytest.mark.requirement("certs:constrained")
@settings(max_examples=25)
@given(st.text(max_size=200))
def test_the_ca_of_any_pod_has_a_printable_name(pod: str) -> None:
    ca = parse_ca(create_ca(ca_request(pod=pod)))
    (name,) = ca.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert len(str(name.value)) <= 64
    assert str(name.value).isprintable()


@pytest.mark.requirement("certs:hosts")
def test_a_ca_without_a_host_is_refused() -> None:
    with pytest.raises(UnfitError, match="no host"):
        create_ca(ca_request(permitted=()))


def _general(name: str) -> Any:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
