"""A CA as a value: how one is made, and what one that was found is good for. No disk, and the time is an argument.

    root       what runners trust; its key signs one certificate, and is never kept
    signing    what the proxy has the key of: for the governed hosts and nothing else

Rules. The constraints are critical, so that who does not understand them refuses the chain; every address is excluded. Both
certificates hold them, and it takes the second: Java looks at no constraint of what it was told to trust (RFC 5280 leaves
that open). The one that signs makes no other CA, and TLS servers only. mitmproxy gives every leaf the CA's own key: on
P-256 a leaf costs a tenth of a millisecond, and every runtime of the last ten years takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from claw_certs.names import ascii_name, covers, unfit

SLOW_CLOCKS = timedelta(days=2)
"""How long before now a CA begins, as mitmproxy's leaves do."""
_LONGEST_POD = 31
"""Bytes of the pod's name: a common name has room for 64, and the rest of it is as long as it is."""
_EVERY_ADDRESS = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class UnfitError(ValueError):
    """Why a CA can't be used, in one clause."""


@dataclass(frozen=True)
class Wanted:
    """What a new CA is to be: ``permitted`` are names as ``names_of`` has them."""

    pod: str
    permitted: Sequence[str]
    now: datetime
    days: int


@dataclass(frozen=True)
class Authority:
    """A CA as it was found. ``root`` is what runners trust, and the same certificate where there is only one.

    ``permitted`` is None where it may sign for any name.
    """

    certificate: x509.Certificate = field(repr=False)
    root: x509.Certificate = field(repr=False)
    permitted: tuple[str, ...] | None

    @property
    def name(self) -> str:
        names = self.root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return "".join(sign if sign.isprintable() else "�" for sign in str(names[0].value)) if names else "(no name)"

    @property
    def begins(self) -> datetime:
        return max(self.certificate.not_valid_before_utc, self.root.not_valid_before_utc)

    @property
    def ends(self) -> datetime:
        return min(self.certificate.not_valid_after_utc, self.root.not_valid_after_utc)

    @property
    def trusted(self) -> bytes:
        """The certificate that runners get."""
        return self.root.public_bytes(serialization.Encoding.PEM)

    @property
    def too_wide(self) -> str | None:
        """What it may sign for that no pod's CA may: as ``make`` holds one, whoever made it."""
        if self.permitted is None or "" in self.permitted:
            return "any name"
        if (wide := next((name for name in self.permitted if unfit(name) is not None), None)) is not None:
            return f"all names below {wide!r}"
        found = self.certificate.extensions.get_extension_for_class(x509.NameConstraints)
        if not found.critical:
            return "any name where constraints are not understood, as they are not critical"
        excluded = {each.value for each in found.value.excluded_subtrees or () if isinstance(each, x509.IPAddress)}
        return None if excluded.issuperset(_EVERY_ADDRESS) else "addresses"

    def covers(self, host: str) -> bool:
        """Whether runners take its leaf for this host."""
        return self.permitted is None or covers(self.permitted, ascii_name(host))

    def unfit_at(self, now: datetime) -> str | None:
        """What keeps runners from trusting it at that time."""
        if now > self.ends:
            return f"it expired on {self.ends:%Y-%m-%d}"
        if now < self.begins:
            return f"it is not valid before {self.begins:%Y-%m-%d %H:%M} UTC: is the clock right?"
        return None


def make(wanted: Wanted) -> bytes:
    """A new CA as mitmproxy reads it: key and certificates in one file, so that neither is ever there without the other."""
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    mark = _identifier(root_key).digest[:4].hex()
    name, own = _name(wanted, mark), _name(wanted, f"{mark} signing")
    root = _certificate(wanted, name, root_key, path_length=1).issuer_name(name).sign(root_key, hashes.SHA256())
    signing = (
        _certificate(wanted, own, key, path_length=0)
        .issuer_name(name)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(_identifier(root_key)), critical=False
        )
    ).sign(root_key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (signing, root))


def read(pem: bytes, passphrase: bytes | None = None) -> Authority:
    """The CA of a file with its key, certificate first as mitmproxy takes it. Raises ``UnfitError``."""
    try:
        certificate, *above = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise UnfitError("it holds no certificate that can be read") from None
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        if passphrase is None:
            raise UnfitError("its key is encrypted, and there is no passphrase (cert_passphrase)") from None
        return read(pem)
    except ValueError:
        raise UnfitError("it holds no private key that can be read") from None
    if key.public_key() != certificate.public_key():
        raise UnfitError("its key is not the certificate's")
    below = certificate
    for each in above:
        try:
            below.verify_directly_issued_by(each)
        except (ValueError, TypeError, InvalidSignature):
            raise UnfitError("its certificates are no chain") from None
        below = each
    return Authority(certificate, below, _permitted(certificate))


def sound(pem: bytes, now: datetime, passphrase: bytes | None = None) -> Authority:
    """The CA of a file, where runners would trust it now. Raises ``UnfitError``."""
    found = read(pem, passphrase)
    if (problem := found.unfit_at(now)) is not None:
        raise UnfitError(problem)
    return found


def _permitted(certificate: x509.Certificate) -> tuple[str, ...] | None:
    """What its constraints permit. Raises ``UnfitError`` where it is no certificate of a CA."""
    try:
        extensions = certificate.extensions
    except ValueError:
        raise UnfitError("its certificate holds extensions that can't be read") from None
    found = {extension.oid: extension.value for extension in extensions}
    basic = found.get(x509.BasicConstraints.oid)
    if not (isinstance(basic, x509.BasicConstraints) and basic.ca):
        raise UnfitError("its certificate is none of a CA")
    constraints = found.get(x509.NameConstraints.oid)
    permitted = constraints.permitted_subtrees if isinstance(constraints, x509.NameConstraints) else None
    names = tuple(each.value.lower().lstrip(".") for each in permitted or () if isinstance(each, x509.DNSName))
    return names or None


def _certificate(
    wanted: Wanted, name: x509.Name, key: ec.EllipticCurvePrivateKey, path_length: int
) -> x509.CertificateBuilder:
    now = wanted.now.astimezone(UTC).replace(microsecond=0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLOW_CLOCKS)
        .not_valid_after(now + timedelta(days=wanted.days))
    )
    for extension in (
        x509.BasicConstraints(ca=True, path_length=path_length),
        _usage(),
        _constraints(wanted.permitted),
    ):
        builder = builder.add_extension(extension, critical=True)
    return builder.add_extension(_identifier(key), critical=False)


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(wanted: Wanted, mark: str) -> x509.Name:
    """Dated, and with a mark of the root's key: two CAs of one pod are never of one name."""
    printable = "".join(sign if sign.isprintable() else "-" for sign in wanted.pod)
    pod = printable.encode()[:_LONGEST_POD].decode(errors="ignore")
    common = f"claw {pod} {wanted.now.astimezone(UTC):%Y-%m-%d} {mark}"
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "clawdapus"), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )


def _constraints(permitted: Sequence[str]) -> x509.NameConstraints:
    if not permitted:
        raise UnfitError("there is no host that it could be for")
    return x509.NameConstraints(
        permitted_subtrees=[x509.DNSName(name) for name in permitted],
        excluded_subtrees=[x509.IPAddress(network) for network in _EVERY_ADDRESS],
    )


def _usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
