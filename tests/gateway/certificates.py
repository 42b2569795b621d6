"""The provider's own CA, which only its proxy trusts, and certificates that it signs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)
_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
)
_SIGNS = x509.KeyUsage(
    **dict.fromkeys(_USES, False),
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A CA; ``certificate`` is the file with its own certificate."""

    def __init__(self, home: Path, name: str) -> None:
        self._home, self._name = home, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = (
            self._built(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
            .add_extension(_SIGNS, True)
        )
        self.certificate = home / f"{name}.pem"
        self.certificate.write_bytes(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def signs(self, *names: str) -> Path:
        """Sign a server's certificate for these names; return the file with it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        made = (
            self._built(subject, key)
            .add_extension(alternatives, False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._home / f"{names[0]}.pem"
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, *form)
            + made.public_bytes(serialization.Encoding.PEM)
        )
        return file

    def _built(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(
                self._name, subject, key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(issuer, False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )
