"""TLS to a datacenter: whose certificates are believed, and for which names. Real sockets, real certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control_plane.contracts.clock import SystemClock
from edge_api.upstream.pool import PoolLimits, UpstreamPool
from tests.unit.edge_api.upstream.test_upstream import OK, REQUEST, Server, Taken

LIMITS = PoolLimits(connect_timeout_s=2, idle_s=10, max_idle=4, max_open=4)


class Authority:
    """Whoever signs certificates. `file` is what those who trust it are given."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(self._key, hashes.SHA256())
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def server_context(self, name: x509.GeneralName) -> ssl.SSLContext:
        """What a server with that name serves with."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(_named("server"), self._name, key).add_extension(
            x509.SubjectAlternativeName([name]), critical=False).sign(self._key, hashes.SHA256())
        both = self._directory / "server.pem"
        both.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption(),
        ) + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(both)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        subject_name=subject, issuer_name=issuer, public_key=key.public_key(),
        serial_number=x509.random_serial_number(), not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(hours=1))


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def pool_of(authority: Authority) -> UpstreamPool:
    return UpstreamPool(LIMITS, SystemClock(), ssl.create_default_context(cafile=authority.file))


@pytest.mark.parametrize(("host", "name"), [
    ("localhost", x509.DNSName("localhost")), ("127.0.0.1", x509.IPAddress(ip_address("127.0.0.1")))])
async def test_a_datacenter_of_the_right_name_and_authority_is_asked(
        tmp_path: Path, host: str, name: x509.GeneralName) -> None:
    authority, taken = Authority(tmp_path, "ours"), Taken()
    async with listening(authority.server_context(name)) as server:
        connection = await pool_of(authority).connect((host, server.port, True))
        connection.send(REQUEST, [], 0, taken)
        async with asyncio.timeout(5):
            await taken.over.wait()
        connection.abort()
    assert (taken.status, taken.body) == (200, OK[-2:])


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    async with listening(authority.server_context(x509.DNSName("elsewhere.example"))) as server:
        with pytest.raises(OSError, match="Hostname mismatch"):
            await pool_of(authority).connect(("localhost", server.port, True))


async def test_a_certificate_of_a_stranger_is_refused(tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with listening(stranger.server_context(x509.DNSName("localhost"))) as server:
        with pytest.raises(OSError, match="certificate verify failed"):
            await pool_of(Authority(tmp_path, "ours")).connect(("localhost", server.port, True))


async def test_without_a_file_this_machines_authorities_are_asked(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    async with listening(authority.server_context(x509.DNSName("localhost"))) as server:
        with pytest.raises(OSError, match="certificate verify failed"):
            await UpstreamPool(LIMITS, SystemClock()).connect(("localhost", server.port, True))
