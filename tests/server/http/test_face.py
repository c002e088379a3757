"""Listening: TLS and certificates of clients, addresses that cannot be used, many streams, `lyra serve`."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra import Kernel
from lyra.core.address import Address
from lyra.errors import ConfigError
from lyra.server.http.face import HttpFace
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings, TlsFiles
from tests import warm
from tests.cases import first
from tests.server.certificates import issue
from tests.server.http.support import OPERATOR, TOKENS, Served, events_of, in_loop, served, serving


def test_tls_proves_the_server_and_with_an_authority_the_client(tmp_path: Path) -> None:
    """Plain HTTP is not answered; without a certificate of the authority a client gets nothing."""
    authority = issue("authority").write(tmp_path, "authority")
    issue("server", authority).write(tmp_path, "server")
    issue("client", authority).write(tmp_path, "client")

    async def ask(address: Address, *, scheme: str = "https", with_certificate: bool = False) -> int:
        trust = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        if with_certificate:
            trust.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        async with httpx.AsyncClient(verify=trust) as client:
            return (await client.get(f"{scheme}://{address}/healthz")).status_code

    async def main() -> None:
        for client_ca in (None, str(tmp_path / "authority.pem")):
            tls = TlsFiles(str(tmp_path / "server.pem"), str(tmp_path / "server.key"), client_ca)
            async with serving(tls=tls) as parts:
                assert await ask(parts.address, with_certificate=client_ca is not None) == 200
                with pytest.raises(httpx.HTTPError):
                    await ask(parts.address, scheme="http")
                if client_ca is not None:
                    with pytest.raises(httpx.HTTPError):
                        await ask(parts.address)

    in_loop(main())


def test_what_cannot_be_listened_on_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with Kernel() as kernel, serving() as parts:
            taken = ServeSettings(tokens=TokenTable(TOKENS), http=parts.address)
            with pytest.raises(ConfigError, match="cannot listen on"):
                await HttpFace(kernel, taken).start()
            (tmp_path / "x.pem").write_text("no certificate")
            files = TlsFiles(str(tmp_path / "x.pem"), str(tmp_path / "x.pem"))
            broken = ServeSettings(tokens=TokenTable(TOKENS), http=Address("127.0.0.1", 0), tls=files)
            with pytest.raises(ConfigError, match="TLS files"):
                await HttpFace(kernel, broken).start()

    in_loop(main())


@served()
async def test_stopping_ends_the_feeds_and_takes_nothing_new(parts: Served) -> None:
    """Readers of all events end at once, not after the time for draining; a second stop changes nothing."""
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(parts.operator.get("/api/events"))
        while not parts.face.app.parts.feed.readers:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await parts.face.stop(60)
        assert (await reading).status_code == 200
    with pytest.raises(httpx.ConnectError):
        await parts.stranger.get("/healthz")
    await parts.face.stop(1)


def memory_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of the process from /proc")
@pytest.mark.parametrize("count", first([150, 1_000], 1))
def test_readers_share_one_feed(count: int) -> None:
    """Each gets every event; the server and its readers together need a bounded memory, also for dead readers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))

    async def read(address: Address, wanted: int) -> int:
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=2**16)
        writer.write(f"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: {OPERATOR}\r\n\r\n".encode())
        seen, rest = 0, b""
        while seen < wanted:
            *blocks, rest = (rest + await reader.read(2**16)).split(b"\n\n")
            seen += sum(b"event: process.created" in block for block in blocks)
        writer.close()
        return seen

    async def main() -> None:
        async with serving(connections_max=2 * count) as parts:
            feed = parts.face.app.parts.feed
            before = memory_kib()
            silent = [await asyncio.open_connection(parts.address.host, parts.address.port) for _ in range(20)]
            for _, writer in silent:
                writer.write(f"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: {OPERATOR}\r\n\r\n".encode())
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(read(parts.address, 21)) for _ in range(count)]
                while feed.readers < count + len(silent):
                    await asyncio.sleep(0.05)
                for number in range(21):
                    parts.kernel.submit(f"job{number}")
                    await asyncio.sleep(0)
            assert {task.result() for task in readers} == {21}
            assert memory_kib() - before < count * 300 + 20 * 1024
            for _, writer in silent:
                writer.close()

    in_loop(main(), timeout_s=300)


@pytest.mark.slow
def test_lyra_serve_runs_agents_of_a_file_and_stops_in_order(tmp_path: Path) -> None:
    """One JSON line when it is ready; a chat; SIGTERM; exit code 0; the next start knows the session."""
    (tmp_path / "setup.py").write_text(
        "from lyra import Agent\ndef setup(kernel):\n    kernel.register_agent('bot', Agent('bot', model='sim/echo'))\n"
    )
    (tmp_path / "tokens").write_text(f"{OPERATOR} ada\n")
    (tmp_path / "tokens").chmod(0o600)
    command = [*warm.command("lyra.cli.main:main"), "serve", "--grpc", "none", "--http", "127.0.0.1:0"]
    command += ["--db", str(tmp_path / "lyra.db"), "--token-file", "tokens", "--load", "setup.py"]

    def once(session_id: str, message: str) -> dict[str, Any]:
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["http"]
            headers = {"authorization": f"Bearer {OPERATOR}"}
            body = {"message": message, "session_id": session_id}
            answer = httpx.post(f"{url}/api/agents/bot/chat", json=body, headers=headers, timeout=60)
            shown = httpx.get(f"{url}/api/sessions/{answer.json()['session_id']}", headers=headers, timeout=60)
            stream = httpx.post(f"{url}/api/agents/bot/chat/stream", json=body, headers=headers, timeout=60)
            assert events_of(stream.text)[-1].word == "result"
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
            return dict(shown.json())

    first = once("", "hello")
    second = once(first["session_id"], "again")
    assert [row["text"] for row in second["messages"]][:2] == ["hello", "hello"]
    assert len(second["messages"]) == 4
