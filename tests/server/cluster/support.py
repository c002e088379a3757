"""Hosts of `lyra serve --cluster` on a real PostgreSQL, and a model vendor that answers when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any

import httpx

from lyra.cluster.directory import PostgresDirectory
from lyra.kernel.remote.part import home_of
from tests import warm
from tests.source import KEPT, PYTHONPATH

OPERATOR = "operator-token-0123456789"
ADA = "ada-token-0123456789abcdef"
MODEL = "anthropic/claude-opus-4-6"
AGENTS = f"""
import asyncio
from pathlib import Path

from lyra import Agent

async def stage(_context):
    return {{"output": {{"said": "hi"}}}}

async def slow(_context):
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return {{"said": "hi"}}

def setup(kernel):
    kernel.register_agent("stage", stage)
    kernel.register_agent("slow", slow, idempotent=True)
    kernel.register(Agent("clerk", model="{MODEL}", system="You are short."))
"""
_schemas = count(1)


class TellingVendor:
    """Anthropic's messages, streamed: an answer says its first words at once and the rest when `finish` is called."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._go = asyncio.Event()
        self._asked = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self.is_held = False

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> TellingVendor:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.finish()
        self._server.close()

    def hold(self) -> None:
        """Have answers stop in their middle from now on."""
        self.is_held = True
        self._go.clear()

    def finish(self) -> None:
        """Have all answers say the rest."""
        self.is_held = False
        self._go.set()

    async def until_asked(self, times: int) -> None:
        """Return when the vendor was asked so often."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.requests) >= times)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            async with self._asked:
                self.requests.append(body)
                self._asked.notify_all()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            usage = {"input_tokens": 10, "output_tokens": 1}
            message = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "content": []}
            _tell(writer, {"type": "message_start", "message": {**message, "usage": usage}})
            _tell(writer, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
            turn = sum(row["role"] == "user" for row in body["messages"])
            _tell(writer, _text(f"The {turn}. answer "))
            await writer.drain()
            if self.is_held:
                await self._go.wait()
            _tell(writer, _text("is here."))
            _tell(writer, {"type": "content_block_stop", "index": 0})
            end = {"stop_reason": "end_turn", "stop_sequence": None}
            _tell(writer, {"type": "message_delta", "delta": end, "usage": {"output_tokens": 6}})
            _tell(writer, {"type": "message_stop"})
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the host that asked was killed, or the test is over
        finally:
            writer.close()


def _text(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _tell(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    writer.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


class ServingHost:
    """One start of `lyra serve --cluster`."""

    def __init__(self, folder: Path, url: str, name: str, vendor_url: str, *flags: str, **env: str) -> None:
        self.name = name
        self.ready: dict[str, Any] = {}
        home = folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        tokens = folder / "tokens"
        tokens.write_text(f"{OPERATOR}\n{ADA} ada\n")
        tokens.chmod(0o600)
        (folder / "agents.py").write_text(AGENTS)
        kept = {variable: os.environ[variable] for variable in KEPT if variable in os.environ}
        own = {"HOME": str(home), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8", "LYRA_CLUSTER_STORE": url}
        own |= {"ANTHROPIC_BASE_URL": vendor_url, "ANTHROPIC_API_KEY": "a-key-of-the-test"}
        words = ["serve", *(() if "LYRA_SERVER_CLUSTER" in env else ("--cluster",)), "--name", name]
        words += ["--http", "127.0.0.1:0", "--token-file", str(tokens)]
        words += ["--load", str(folder / "agents.py"), *(() if "--grpc" in flags else ("--grpc", "none")), *flags]
        self.process = warm.Started("lyra.cli.main:main", words, cwd=folder, env={**kept, **own, **env})

    async def until_ready(self) -> ServingHost:
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line, self.process.told()
        self.ready = json.loads(line)
        return self

    @property
    def http(self) -> str:
        return str(self.ready["http"])

    async def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.communicate, 30)

    async def stop(self) -> tuple[int, str]:
        """SIGTERM; gives the exit code and what it wrote to stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, told = await asyncio.to_thread(self.process.communicate, 60)
        assert self.process.returncode is not None
        return self.process.returncode, told

    def close(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended by itself, and nobody has waited for it
                self.process.send_signal(signal.SIGKILL)
            self.process.communicate(10)


class Cluster:
    """Hosts, a vendor, and clients that reach the hosts in turn, as behind a load balancer."""

    def __init__(self, folder: Path, url: str, vendor: TellingVendor) -> None:
        self.folder = folder
        self.url = f"{url}&schema=serve_{os.getpid()}_{next(_schemas)}"
        self.vendor = vendor
        self.hosts: dict[str, ServingHost] = {}

    async def start(self, *names: str, shards: int = 4, lease_s: float = 1.5, flags: tuple[str, ...] = ()) -> None:
        """Start hosts; returns when they are ready."""
        made = ("--shards", str(shards), "--lease", str(lease_s))
        for name in names:
            self.hosts[name] = ServingHost(self.folder, self.url, name, self.vendor.url, *made, *flags)
        await asyncio.gather(*(self.hosts[name].until_ready() for name in names))

    def client(self, name: str, token: str = ADA) -> httpx.AsyncClient:
        """Return a client of one host."""
        return httpx.AsyncClient(
            base_url=self.hosts[name].http, headers={"authorization": f"Bearer {token}"}, timeout=60, trust_env=False
        )

    def owners(self) -> dict[str, str]:
        """Return the host of each shard, as the directory says."""
        directory = PostgresDirectory(self.url, make=False)
        try:
            return {name: shard.host for name, shard in directory.view().shards.items()}
        finally:
            directory.close()

    def home_of(self, name: str) -> str:
        """Return the home shard of an id."""
        return home_of(name, self.owners())

    def owner_of(self, name: str) -> str:
        """Return the host that has the home shard of an id."""
        owners = self.owners()
        return owners[home_of(name, owners)]

    def turns(self) -> Iterator[str]:
        """Yield the names of the hosts that run, in turn."""
        return (name for name in cycle(list(self.hosts)) if name in self.hosts)

    async def kill(self, name: str) -> None:
        await self.hosts.pop(name).kill()


@asynccontextmanager
async def serving(folder: Path, url: str, *names: str, **options: Any) -> AsyncIterator[Cluster]:
    async with TellingVendor() as vendor:
        cluster = Cluster(folder, url, vendor)
        started = cluster.hosts
        try:
            await cluster.start(*names, **options)
            started = dict(cluster.hosts)
            yield cluster
        finally:
            for host in {**started, **cluster.hosts}.values():
                host.close()


async def events_of(response: httpx.Response) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Yield the id, the word and the data of the events of a stream."""
    event_id = word = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "event":
            word = value
        elif name == "data":
            yield event_id, word, json.loads(value)
            event_id = word = ""
