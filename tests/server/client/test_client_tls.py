"""TLS of the client and the worker, with certificates made for the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra.core.address import Address
from lyra.errors import ConfigError, Overloaded
from lyra.kernel.kernel import Kernel
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings, TlsFiles
from tests.server.certificates import issue
from tests.server.client.test_remote import OPERATOR, TOKENS, on_loop
from tests.server.work.programs import World


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """An authority, and certificates of a server and a client that it signed."""
    authority = issue("authority")
    (tmp_path / "ca.pem").write_bytes(authority.cert)
    (tmp_path / "other.pem").write_bytes(issue("other").cert)
    for name in ("server", "client"):
        pair = issue(name, authority)
        (tmp_path / f"{name}.pem").write_bytes(pair.cert)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    return tmp_path


@on_loop
async def test_tls_with_an_authority_and_a_certificate_of_ones_own(files: Path) -> None:
    """`tls` is the file of an authority, or a mapping with a certificate too; any other is not connected."""

    def path(name: str) -> str:
        return str(files / name)

    own = {"ca": path("ca.pem"), "cert": path("client.pem"), "key": path("client.key")}
    cases: list[tuple[str | None, Any, list[Any]]] = [
        (None, path("ca.pem"), [path("other.pem"), True, None]),
        (path("ca.pem"), own, [path("ca.pem")]),
    ]
    for client_ca, works, fails in cases:
        tls = TlsFiles(path("server.pem"), path("server.key"), client_ca)
        settings = ServeSettings(tokens=TOKENS, grpc=Address("127.0.0.1", 0), tls=tls, drain_s=1.0)
        async with Server(Kernel(), settings) as server:

            async def ask(choice: Any, address: str = str(server.grpc)) -> Any:
                async with lyra.connect(address, token=OPERATOR, tls=choice, reconnect_s=0.0) as remote:
                    return await remote.within(20.0).get_system_status()

            assert (await ask(works)).total_processes == 0
            for choice in fails:
                with pytest.raises(Overloaded):
                    await ask(choice)


@on_loop
async def test_wrong_tls_files_are_told(files: Path) -> None:
    """A file that is not there and an unknown key are mistakes of the caller."""
    for choice in ({"authority": "x"}, str(files / "nothing.pem")):
        with pytest.raises(ConfigError):
            await lyra.connect("127.0.0.1:1", token=OPERATOR, tls=choice).get_system_status()


@pytest.mark.slow
def test_a_worker_uses_tls_and_the_token_of_a_file(files: Path) -> None:
    """`--tls-ca`, `--tls-cert`, `--tls-key` and `--token-file` reach a server that needs them; `--tls` alone does not
    know the authority."""
    tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem"]
    own = ["--tls-ca", "ca.pem", "--tls-cert", "client.pem", "--tls-key", "client.key", "--token-file", "tokens"]
    with World(files) as world:
        world.server(*tls)
        worker = world.worker("a", *own, LYRA_TOKEN="")
        assert worker.ready["agents"] == ["once", "repeatable", "second", "third"]
        assert worker.stop() == 0


@on_loop
async def test_plaintext_and_tls_of_the_worker_command_are_passed_on(files: Path) -> None:
    """`--plaintext` takes another machine without TLS, `--tls` and `--tls-ca` with it; without them it is refused."""
    from lyra.cli.app import Invocation
    from lyra.cli.commands.serve import _worker_of

    base = dict.fromkeys(("name", "user", "token_file", "tls_ca", "tls_cert", "tls_key", "lease"))
    given: dict[str, Any] = {**base, "server": "192.0.2.1:1", "concurrency": 1, "tls": False, "plaintext": False}
    tokens = files / "tokens.txt"
    tokens.write_text(f"# comment\n\n{OPERATOR} ada\n")
    given["token_file"] = str(tokens)
    with pytest.raises(ConfigError, match="plain text"):
        _worker_of(Invocation(), given)
    for changes in ({"plaintext": True}, {"tls": True}, {"tls_ca": str(files / "ca.pem")}):
        settings = _worker_of(Invocation(), {**given, **changes})._connection.settings
        assert settings.token == OPERATOR
        assert bool(settings.tls) == ("plaintext" not in changes)
    await asyncio.sleep(0)
