"""A certificate authority made on the spot, and a server's certificate from it."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_HOURS = datetime.timedelta(hours=12)


def inspected(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context for localhost, and the file of the authority to trust.

    As companies' TLS inspection makes them: without the key identifiers that Python 3.13 began to
    ask for by default (VERIFY_X509_STRICT), and botocore does not.
    """
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Inspection")])
    own = _begun(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=False
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    addresses = [
        x509.DNSName("localhost"),
        x509.DNSName("*.localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    leaf = _begun(name, issuer, key.public_key()).add_extension(
        x509.SubjectAlternativeName(addresses), critical=False
    )
    pem = serialization.Encoding.PEM
    bundle, both = folder / "authority.pem", folder / "server.pem"
    bundle.write_bytes(own.sign(authority, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, str(bundle)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _HOURS)
        .not_valid_after(now + _HOURS)
    )
