"""The file with the CA's key: every flaw is one line with its remedy, and nobody else may read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from mitmproxy.certs import dummy_cert

from claw_certs.ca import UnfitError, create_ca
from claw_certs.key_file import exposed_to, load_ca
from tests.certs.example_cas import NOW, ca_request, pods_ca


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
