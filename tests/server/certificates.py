"""Certificates that a test makes: authorities, and servers and clients that they sign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes
    parsed: x509.Certificate
    signer: ec.EllipticCurvePrivateKey

    def write(self, folder: Path, name: str) -> Pair:
        """Write NAME.pem and NAME.key."""
        (folder / f"{name}.pem").write_bytes(self.cert)
        (folder / f"{name}.key").write_bytes(self.key)
        return self


def issue(name: str, issuer: Pair | None = None) -> Pair:
    """Make a certificate for 127.0.0.1 and localhost, signed by the issuer, or by itself as an authority.

    From Python 3.13 on clients ask for the uses of a key and for the identifiers of both keys.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer = key if issuer is None else issuer.signer
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    is_authority = issuer is None
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.parsed.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(cert.public_bytes(pem), key_pem, cert, key)
