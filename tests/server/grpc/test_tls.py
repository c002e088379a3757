"""TLS and mutual TLS, with certificates made for the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from lyra.core.address import Address
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.server.grpc.face import GrpcFace
from lyra.server.settings import TlsFiles
from tests.server.certificates import Pair, issue
from tests.server.grpc.client import Client, on_loop, settings


@pytest.fixture(scope="module")
def authority() -> Pair:
    return issue("authority")


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any, authority: Pair) -> Path:
    folder: Path = tmp_path_factory.mktemp("tls")
    server = issue("server", authority)
    (folder / "cert.pem").write_bytes(server.cert)
    (folder / "key.pem").write_bytes(server.key)
    (folder / "ca.pem").write_bytes(authority.cert)
    return folder


async def _status(tls: TlsFiles, credentials: Any) -> str:
    """The status of a call to a server with these files, over a channel with these credentials (None: plain)."""
    async with Kernel() as kernel:
        face = GrpcFace(kernel, settings(tls=tls))
        address = str(await face.start())
        channel = (
            grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
        )
        try:
            async with channel:
                return await Client(channel).status("KernelService/GetProcessCounts", timeout=60.0)
        finally:
            await face.stop(1.0)


def test_tls_takes_clients_that_know_the_authority_and_no_plain_ones(files: Path, authority: Pair):
    tls = TlsFiles(str(files / "cert.pem"), str(files / "key.pem"))
    assert asyncio.run(_status(tls, grpc.ssl_channel_credentials(authority.cert))) == "OK"
    assert asyncio.run(_status(tls, grpc.ssl_channel_credentials(issue("other").cert))) == "UNAVAILABLE"
    assert asyncio.run(_status(tls, None)) == "UNAVAILABLE"


def test_mutual_tls_takes_clients_with_a_certificate_of_the_authority(files: Path, authority: Pair):
    """Without a certificate, and with one that another authority signed, there is no connection."""
    tls = TlsFiles(str(files / "cert.pem"), str(files / "key.pem"), str(files / "ca.pem"))
    known, stranger = issue("client", authority), issue("client", issue("other"))

    def status(pair: Pair | None) -> str:
        own = (pair.key, pair.cert) if pair is not None else (None, None)
        return asyncio.run(_status(tls, grpc.ssl_channel_credentials(authority.cert, *own)))

    assert (status(known), status(stranger), status(None)) == ("OK", "UNAVAILABLE", "UNAVAILABLE")


@pytest.mark.parametrize("text", ["not a certificate", ""])
@pytest.mark.parametrize("broken", ["cert", "key", "client_ca"])
def test_files_that_are_no_pem_are_a_mistake_of_the_configuration(files: Path, tmp_path: Path, broken: str, text: str):
    """The server does not start with a certificate or a key that cannot be read; it never falls back to plain text."""
    (tmp_path / "bad.pem").write_text(text)
    paths = {"cert": str(files / "cert.pem"), "key": str(files / "key.pem"), "client_ca": str(files / "ca.pem")}
    tls = TlsFiles(**{**paths, broken: str(tmp_path / "bad.pem")})

    @on_loop
    async def body():
        async with Kernel() as kernel:
            face = GrpcFace(kernel, settings(tls=tls, grpc=Address("127.0.0.1", 0)))
            with pytest.raises(ConfigError):
                await face.start()
            await face.stop(1.0)

    body()
