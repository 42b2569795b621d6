"""The CA as a value: creation, parsing, and checks. No disk access, and the time is an argument.

    root       trusted by runners; its key signs one certificate and is never kept
    signing    the proxy has its key; it signs for the governed hosts and nothing else

Both certificates have the name constraints. They are critical, so that a client that does not
understand them refuses the chain, and they exclude every address. The signing certificate needs
them because Java ignores the constraints of a root that it was told to trust (RFC 5280 leaves that
open). It can make no other CA, and signs for TLS servers only. mitmproxy gives every leaf the CA's
own key; on P-256 a leaf costs a tenth of a millisecond, and every runtime of the last ten years
accepts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from claw_certs.names import ascii_name, covers, name_problem

_CLOCK_SKEW = timedelta(days=2)  # time before now at which a CA begins, as mitmproxy's leaves do
_MAX_POD_BYTES = 31  # room for the pod's name in a common name, which has 64 bytes
_ALL_ADDRESSES = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_NO_USAGE = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
)
_KEY_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
    **dict.fromkeys(_NO_USAGE, False),
)
type _Key = ec.EllipticCurvePrivateKey


class UnfitError(ValueError):
    """A CA that can't be used. The message is one clause."""


@dataclass(frozen=True)
class CaRequest:
    """Data of a new CA."""

    pod: str
    permitted: Sequence[str]
    """The names that ``ca_names`` permits."""
    now: datetime
    days: int


@dataclass(frozen=True)
class Authority:
    """A parsed CA."""

    certificate: x509.Certificate = field(repr=False)
    """The certificate that the proxy signs with."""
    root: x509.Certificate = field(repr=False)
    """The certificate that runners trust; the same one if there is no other."""
    permitted: tuple[str, ...] | None
    """The names that it may sign for, with all below them; None for any name."""

    @property
    def name(self) -> str:
        names = self.root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names:
            return "(no name)"
        return "".join(sign if sign.isprintable() else "�" for sign in str(names[0].value))

    @property
    def begins(self) -> datetime:
        return max(self.certificate.not_valid_before_utc, self.root.not_valid_before_utc)

    @property
    def ends(self) -> datetime:
        return min(self.certificate.not_valid_after_utc, self.root.not_valid_after_utc)

    @property
    def root_pem(self) -> bytes:
        """The certificate that runners get."""
        return self.root.public_bytes(Encoding.PEM)

    @property
    def excessive_scope(self) -> str | None:
        """The names or addresses that the CA may sign for, and that no CA of ``create_ca`` may.

        None if there are none.
        """
        # A constraint to the empty name permits every name: all are below it (RFC 5280, 4.2.1.10).
        if self.permitted is None or "" in self.permitted:
            return "any name"
        for name in self.permitted:
            if name_problem(name) is not None:
                return f"all names below {name!r}"

        constraints = self.certificate.extensions.get_extension_for_class(x509.NameConstraints)
        if not constraints.critical:
            return "any name where constraints are not understood, as they are not critical"

        subtrees = constraints.value.excluded_subtrees or ()
        excluded = {subtree.value for subtree in subtrees if isinstance(subtree, x509.IPAddress)}
        return None if excluded.issuperset(_ALL_ADDRESSES) else "addresses"

    def covers(self, host: str) -> bool:
        """Return True if runners accept its certificate for this host."""
        return self.permitted is None or covers(self.permitted, ascii_name(host))

    def problem_at(self, now: datetime) -> str | None:
        """Return why runners do not trust it at that time; None if they do."""
        if now > self.ends:
            return f"it expired on {self.ends:%Y-%m-%d}"
        if now < self.begins:
            return f"it is not valid before {self.begins:%Y-%m-%d %H:%M} UTC: is the clock right?"
        return None


def create_ca(request: CaRequest) -> bytes:
    """Return a new CA in PEM as mitmproxy reads it.

    Key and certificates are in one file, so that neither can exist alone. Raise ``UnfitError`` if
    there is no permitted name.
    """
    if not request.permitted:
        raise UnfitError("there is no host that it could sign for")

    root_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    mark = _identifier(root_key).digest[:4].hex()
    root_name = _name(request, mark)
    signing_name = _name(request, f"{mark} signing")

    root = (
        _certificate(request, root_name, root_key, path_length=1)
        .issuer_name(root_name)
        .sign(root_key, hashes.SHA256())
    )
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        _identifier(root_key)
    )
    signing = (
        _certificate(request, signing_name, key, path_length=0)
        .issuer_name(root_name)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(root_key, hashes.SHA256())
    )

    key_pem = key.private_bytes(
        Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem + signing.public_bytes(Encoding.PEM) + root.public_bytes(Encoding.PEM)


def parse_ca(pem: bytes, passphrase: bytes | None = None) -> Authority:
    """Return the CA of a file that holds its key and its chain, the signing certificate first.

    Raise ``UnfitError``.
    """
    try:
        certificate, *issuers = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise UnfitError("it holds no certificate that can be read") from None

    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:  # a passphrase is missing, or there is one and the key is not encrypted
        if passphrase is None:
            raise UnfitError(
                "its key is encrypted, and there is no passphrase (cert_passphrase)"
            ) from None
        return parse_ca(pem)
    except ValueError:
        raise UnfitError("it holds no private key that can be read") from None
    if key.public_key() != certificate.public_key():
        raise UnfitError("its key is not the certificate's")

    root = certificate
    for issuer in issuers:
        try:
            root.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            raise UnfitError("its certificates are no chain") from None
        root = issuer
    return Authority(certificate, root, _permitted(certificate))


def parse_valid_ca(pem: bytes, now: datetime, passphrase: bytes | None = None) -> Authority:
    """Return the CA of a file. Raise ``UnfitError``, also if it is out of time."""
    ca = parse_ca(pem, passphrase)
    if (problem := ca.problem_at(now)) is not None:
        raise UnfitError(problem)
    return ca


def _permitted(certificate: x509.Certificate) -> tuple[str, ...] | None:
    """Return the permitted names, None for any.

    Raise ``UnfitError`` for a certificate that is not of a CA.
    """
    try:
        extensions = certificate.extensions
    except ValueError:
        raise UnfitError("its certificate holds extensions that can't be read") from None

    values = {extension.oid: extension.value for extension in extensions}
    basic = values.get(x509.BasicConstraints.oid)
    if not isinstance(basic, x509.BasicConstraints) or not basic.ca:
        raise UnfitError("its certificate is none of a CA")

    constraints = values.get(x509.NameConstraints.oid)
    if not isinstance(constraints, x509.NameConstraints):
        return None
    subtrees = constraints.permitted_subtrees or ()
    names = [subtree.value for subtree in subtrees if isinstance(subtree, x509.DNSName)]
    if not names:
        # Constraints to other kinds of name, such as addresses, leave host names free.
        return None
    return tuple(name.lower().lstrip(".") for name in names)


def _certificate(
    request: CaRequest, name: x509.Name, key: _Key, path_length: int
) -> x509.CertificateBuilder:
    """Return what both certificates have in common."""
    now = request.now.astimezone(UTC).replace(microsecond=0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=request.days))
    )

    ca = x509.BasicConstraints(ca=True, path_length=path_length)
    names = x509.NameConstraints(
        permitted_subtrees=[x509.DNSName(name) for name in request.permitted],
        excluded_subtrees=[x509.IPAddress(network) for network in _ALL_ADDRESSES],
    )

    return (
        builder.add_extension(ca, critical=True)
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(names, critical=True)
        .add_extension(_identifier(key), critical=False)
    )


def _identifier(key: _Key) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(request: CaRequest, mark: str) -> x509.Name:
    """Return a name with the date and a mark of the root's key: no two CAs of a pod share it."""
    printable = "".join(sign if sign.isprintable() else "-" for sign in request.pod)
    pod = printable.encode()[:_MAX_POD_BYTES].decode(errors="ignore")
    date = f"{request.now.astimezone(UTC):%Y-%m-%d}"
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "clawdapus"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"claw {pod} {date} {mark}"),
        ]
    )
