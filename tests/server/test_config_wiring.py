"""Every setting of `[server]` changes what a server does, as a key and as a variable: none is inert."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import lyra
from lyra.config import KEYS, Config
from lyra.core.address import Address
from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings
from tests.server.certificates import issue

TOKEN = "operator-token-0123456789"
LOOPBACK = "127.0.0.1:0"
ONE_FACE = ("server.grpc=none", f"server.http={LOOPBACK}")


def settings_with(folder: Path, *flags: str) -> ServeSettings:
    config = Config.load(cwd=folder, env={}, flags=flags)
    return ServeSettings.from_config(config, env={"LYRA_TOKEN": TOKEN, "HOME": str(folder)})


@asynccontextmanager
async def served(folder: Path, *flags: str, setup: Any = None) -> AsyncIterator[Server]:
    async with Server(Kernel(), settings_with(folder, *(flags or ONE_FACE)), setup=setup) as server:
        yield server


async def status_of(server: Server, path: str = "/healthz", *, token: str = TOKEN, **options: Any) -> int:
    headers = {"authorization": f"Bearer {token}", **options.pop("headers", {})}
    async with httpx.AsyncClient(base_url=f"http://{server.http}", headers=headers) as client:
        return (await client.request(options.pop("method", "GET"), path, **options)).status_code


async def _grpc(folder: Path) -> None:
    async with served(folder, f"server.grpc={LOOPBACK}", "server.http=none") as server:
        async with lyra.connect(str(server.grpc), token=TOKEN) as remote:
            assert (await remote.get_system_status()).total_processes == 0
        assert server.http is None


async def _http(folder: Path) -> None:
    async with served(folder, f"server.http={LOOPBACK}", "server.grpc=none") as server:
        assert await status_of(server) == 200
        assert server.grpc is None


async def _cluster(folder: Path) -> None:
    """A server of one kernel is none; `lyra serve` is a host then (`tests/server/cluster`)."""
    assert not settings_with(folder, *ONE_FACE).cluster
    with pytest.raises(ConfigError) as refused:
        async with served(folder, "server.cluster=true", *ONE_FACE):
            pass
    assert refused.value.fields["key"] == "server.cluster"


async def _hosts(folder: Path) -> None:
    named: dict[str, Any] = {"headers": {"host": "lyra.example"}}
    async with served(folder) as server:
        assert await status_of(server, **named) == 421
    async with served(folder, *ONE_FACE, "server.hosts=lyra.example") as server:
        assert await status_of(server, **named) == 200


async def _gateway(folder: Path) -> None:
    async with served(folder) as server:
        assert await status_of(server, "/api/keys") == 404
    async with served(folder, *ONE_FACE, "server.gateway=true") as server:
        assert await status_of(server, "/api/keys") == 200


async def _message_bytes(folder: Path) -> None:
    async with served(folder, *ONE_FACE, "server.message_bytes_max=2048") as server:
        sent: dict[str, Any] = {"method": "POST", "headers": {"content-type": "application/json"}}
        assert await status_of(server, "/api/agents/echo/chat", content=b"x" * 5000, **sent) == 413


async def _requests(folder: Path) -> None:
    async with served(folder, *ONE_FACE, "server.requests_per_minute=2") as server:
        statuses = [await status_of(server, "/api/processes") for _ in range(3)]
        assert statuses == [200, 200, 429]


async def _connections(folder: Path) -> None:
    async with served(folder, *ONE_FACE, "server.connections_max=1") as server:
        assert server.http is not None
        first_reader, first = await asyncio.open_connection(server.http.host, server.http.port)
        first.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert b" 200 " in await first_reader.readline()
        second_reader, second = await asyncio.open_connection(server.http.host, server.http.port)
        assert b" 503 " in await second_reader.readline()
        first.close()
        second.close()


async def _plaintext(folder: Path) -> None:
    everywhere = ("server.grpc=none", "server.http=0.0.0.0:0")
    with pytest.raises(ConfigError, match="plain text"):
        settings_with(folder, *everywhere)
    assert settings_with(folder, *everywhere, "server.plaintext=true").http == Address("0.0.0.0", 0)


async def _drain(folder: Path) -> None:
    begun = asyncio.Event()

    async def endless(_envelope: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    clock = SystemClock()
    flags = (f"server.grpc={LOOPBACK}", "server.http=none", "server.drain_s=0.2")
    async with served(folder, *flags, setup=lambda kernel: kernel.register_agent("endless", endless)) as server:
        events = server.kernel.execute_pipeline({"name": "p", "agents": [{"name": "endless"}]}, pid="run")
        reading = asyncio.ensure_future(anext(events))
        await begun.wait()
        stopping = clock.monotonic()
    assert clock.monotonic() - stopping < KEYS["server.drain_s"].default
    await asyncio.gather(reading, return_exceptions=True)
    await events.aclose()


async def _token_file(folder: Path) -> None:
    (folder / "tokens").write_text("ada-token-0123456789abcdef ada\n")
    (folder / "tokens").chmod(0o600)
    async with served(folder, *ONE_FACE, f"server.token_file={folder}/tokens") as server:
        assert await status_of(server, "/api/processes", token="ada-token-0123456789abcdef") == 200
        assert await status_of(server, "/api/processes") == 401


def tls_flags(folder: Path) -> dict[str, str]:
    """The flags of mutual TLS, with files that are made for the test."""
    authority = issue("authority")
    (folder / "ca.pem").write_bytes(authority.cert)
    for name in ("server", "client"):
        pair = issue(name, authority)
        (folder / f"{name}.pem").write_bytes(pair.cert)
        (folder / f"{name}.key").write_bytes(pair.key)
    return {"tls_cert": f"{folder}/server.pem", "tls_key": f"{folder}/server.key", "tls_client_ca": f"{folder}/ca.pem"}


async def _tls(folder: Path) -> None:
    flags = [f"server.{name}={path}" for name, path in tls_flags(folder).items()]
    trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    async with served(folder, *ONE_FACE, *flags) as server:
        url = server.ready_line()["http"]
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient(verify=trust) as stranger:
                await stranger.get(f"{url}/healthz")
        trust.load_cert_chain(folder / "client.pem", folder / "client.key")
        async with httpx.AsyncClient(verify=trust) as client:
            assert (await client.get(f"{url}/healthz")).status_code == 200


CHECKS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "server.grpc": _grpc,
    "server.http": _http,
    "server.cluster": _cluster,
    "server.gateway": _gateway,
    "server.hosts": _hosts,
    "server.message_bytes_max": _message_bytes,
    "server.requests_per_minute": _requests,
    "server.connections_max": _connections,
    "server.plaintext": _plaintext,
    "server.drain_s": _drain,
    "server.token_file": _token_file,
    "server.tls_cert": _tls,
    "server.tls_key": _tls,
    "server.tls_client_ca": _tls,
}
VARIABLES = {
    "LYRA_SERVER_GRPC": "server.grpc",
    "LYRA_SERVER_HTTP": "server.http",
    "LYRA_SERVER_CLUSTER": "server.cluster",
    "LYRA_SERVER_GATEWAY": "server.gateway",
    "LYRA_SERVER_HOSTS": "server.hosts",
    "LYRA_SERVER_MESSAGE_BYTES_MAX": "server.message_bytes_max",
    "LYRA_SERVER_REQUESTS_PER_MINUTE": "server.requests_per_minute",
    "LYRA_SERVER_CONNECTIONS_MAX": "server.connections_max",
    "LYRA_SERVER_PLAINTEXT": "server.plaintext",
    "LYRA_SERVER_DRAIN_S": "server.drain_s",
    "LYRA_SERVER_TOKEN_FILE": "server.token_file",
    "LYRA_SERVER_TLS_CERT": "server.tls_cert",
    "LYRA_SERVER_TLS_KEY": "server.tls_key",
    "LYRA_SERVER_TLS_CLIENT_CA": "server.tls_client_ca",
}


def test_the_table_is_total() -> None:
    """A key without a check here would be an option that may do nothing."""
    assert set(CHECKS) == {name for name in KEYS if name.startswith("server.")} == set(VARIABLES.values())


@pytest.mark.parametrize("key", CHECKS)
def test_each_key_changes_the_server(key: str, tmp_path: Path) -> None:
    """The setting is seen in what the server does."""
    asyncio.run(asyncio.wait_for(CHECKS[key](tmp_path), 120.0))


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_variable_changes_the_server(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same settings as variables of the environment, and none as a flag."""
    names = {key: name for name, key in VARIABLES.items()}

    def settings_of_variables(folder: Path, *flags: str) -> ServeSettings:
        env = {names[key]: text for key, text in (flag.split("=", 1) for flag in flags)}
        config = Config.load(cwd=folder, env=env)
        return ServeSettings.from_config(config, env={"LYRA_TOKEN": TOKEN, "HOME": str(folder)})

    monkeypatch.setitem(globals(), "settings_with", settings_of_variables)
    asyncio.run(asyncio.wait_for(CHECKS[VARIABLES[variable]](tmp_path), 120.0))
