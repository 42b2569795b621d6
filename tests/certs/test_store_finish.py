"""The second step of a rotation: a staged CA that can't sign does not replace a sound one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from mitmproxy.certs import CertStore

from claw_certs.ca import create_ca
from claw_certs.key_file import CA_FILE
from claw_certs.status import CaProblem, ca_status
from claw_certs.store import StagedCaError, finish, read_store, rotate
from tests.certs.example_cas import (
    INSIDE,
    LONG_AGO,
    NOW,
    OUTSIDE,
    PUBLIC,
    YET_TO_COME,
    ca_request,
    pods_ca,
)

STAGED = "private/next-ca.pem"


def another_key(pem: bytes) -> bytes:
    begin = b"-----BEGIN CERTIFICATE"
    return create_ca(ca_request()).partition(begin)[0] + begin + pem.partition(begin)[2]


def for_any_name(_: bytes) -> bytes:
    """Return mitmproxy's own CA, which may sign for any name."""
    with TemporaryDirectory() as elsewhere:
        CertStore.create_store(Path(elsewhere), "mitmproxy", 2048)
        return (Path(elsewhere) / CA_FILE).read_bytes()


FLAWS: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "expired": (lambda _: create_ca(ca_request(now=LONG_AGO)), 0o600, "it expired on"),
    "to come": (lambda _: create_ca(ca_request(now=YET_TO_COME)), 0o600, "it is not valid before"),
    "everybody's": (bytes, 0o644, "is open to everybody"),
    "its group's": (bytes, 0o640, "is open to its group"),
    "damaged": (lambda pem: pem[:400], 0o600, "it holds no certificate"),
    "the key of another": (another_key, 0o600, "its key is not the certificate's"),
    "for any name": (for_any_name, 0o600, "may sign for any name"),
}


def problems(place: Path) -> tuple[CaProblem, ...]:
    return ca_status(place, [INSIDE], NOW, "claw-pod.yml").problems


@pytest.mark.requirement("certs:finish")
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_staged_ca_that_can_not_sign_is_refused_and_rotate_replaces_it(
    tmp_path: Path, flaw: str
) -> None:
    alter, mode, says = FLAWS[flaw]
    pods_ca(tmp_path)
    old = rotate(tmp_path, ca_request(), PUBLIC, None).signing
    (tmp_path / STAGED).write_bytes(alter((tmp_path / STAGED).read_bytes()))
    (tmp_path / STAGED).chmod(mode)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StagedCaError, match=says) as refused:
        finish(tmp_path, NOW, PUBLIC, None)
    assert str(tmp_path / STAGED) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in before} == before
    listed = problems(tmp_path)
    (problem,) = [each for each in listed if says in each.text]
    assert (problem.severity, STAGED in problem.text) == ("error", True)
    assert "claw certs rotate claw-pod.yml" in problem.remedy
    assert not any("--finish" in each.remedy for each in listed)
    mended = rotate(tmp_path, ca_request(OUTSIDE), PUBLIC, None)
    assert mended.signing == old
    assert finish(tmp_path, NOW, PUBLIC, None).signing == mended.next


@pytest.mark.requirement("certs:finish")
@pytest.mark.parametrize(
    "names", [["ca-cert.pem"], ["ca-bundle.pem"], ["ca-cert.pem", "ca-bundle.pem"]]
)
def test_a_staged_ca_signs_only_if_runners_trust_it(tmp_path: Path, names: list[str]) -> None:
    """A ``rotate`` that is killed before it writes these files leaves the CA in this state."""
    old = pods_ca(tmp_path).signing
    before = {
        tmp_path / "public" / name: (tmp_path / "public" / name).read_bytes() for name in names
    }
    staged = rotate(tmp_path, ca_request(), PUBLIC, None).next
    for path, content in before.items():
        path.write_bytes(content)
    with pytest.raises(StagedCaError, match="no runner trusts it") as refused:
        finish(tmp_path, NOW, PUBLIC, None)
    assert f"public/{names[0]} does not hold" in str(refused.value)
    listed = problems(tmp_path)
    assert [each.severity for each in listed] == ["error"] * len(names)
    assert not any("--finish" in each.remedy for each in listed)
    assert read_store(tmp_path).signing == old
    assert rotate(tmp_path, ca_request(), PUBLIC, None).next == staged
    assert finish(tmp_path, NOW, PUBLIC, None).signing == staged


@pytest.mark.requirement("certs:finish")
def test_a_staged_ca_replaces_a_damaged_one(tmp_path: Path) -> None:
    pods_ca(tmp_path)
    staged = rotate(tmp_path, ca_request(), PUBLIC, None).next
    (tmp_path / "private" / "mitmproxy-ca.pem").write_bytes(b"?")
    assert finish(tmp_path, NOW, PUBLIC, None).signing == staged
