"""What the tests of MCP share: settings of servers that are there, and a way to call a tool by its name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lyra.mcp.sdk  # noqa: F401 - imported once, here: its second is no server's
from lyra.core.policies.policy import Backoff, Supervision
from lyra.core.secrets.secret import Secret
from lyra.errors import ToolError
from lyra.mcp import Approvals, McpServers, ServerSettings
from lyra.mcp.settings import SettingValue

HERE = Path(__file__).parent
# Where the interpreter of the tests and what it imports lie: a server of theirs has to see them.
PYTHON = os.path.abspath(sys.executable)
SEEN = (sys.prefix, sys.base_prefix, str(HERE))
QUICK = Supervision(max_restarts=3, window_s=60.0, backoff=Backoff(initial_s=0.01, max_s=0.05))


def run(work: Coroutine[Any, Any, Any], timeout_s: float = 60) -> Any:
    return asyncio.run(asyncio.wait_for(work, timeout_s))


def program(file: str, name: str = "own", env: dict[str, str] | None = None, **settings: Any) -> ServerSettings:
    """A server that is a program of these tests."""
    values = {key: SettingValue.from_secret(Secret(value)) for key, value in (env or {}).items()}
    server = ServerSettings(name=name, command=PYTHON, args=(str(HERE / file),), readable=SEEN, env=values)
    return replace(server, **settings)


def tiny(name: str = "tiny", start: str = "", **settings: Any) -> ServerSettings:
    env = {"TINY": start, **settings.pop("env", {})}
    return replace(program("tiny_server.py", name, env, **settings), args=("-IS", str(HERE / "tiny_server.py")))


@contextlib.asynccontextmanager
async def using(*settings: ServerSettings, folder: Path, **options: Any) -> AsyncIterator[Using]:
    options = {"approvals": Approvals(None), "supervision": QUICK, "folder": None, **options}
    async with McpServers(settings, workspace=str(folder), **options) as servers:
        await servers.start()
        yield Using(servers)


class Using:
    """Servers that were started, and their tools as an agent would have them."""

    def __init__(self, servers: McpServers) -> None:
        self.servers = servers
        self.tools = {tool.name: tool for tool in servers.__lyra_tools__()}

    def state(self, name: str) -> Any:
        return self.servers[name].state

    async def call(self, name: str, /, **arguments: Any) -> Any:
        run = self.tools[name].run
        assert run is not None
        return await run(**arguments)

    async def error(self, name: str, /, **arguments: Any) -> ToolError:
        try:
            came = await self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(f"{name} gave {came!r}")

    async def until(self, holds: Any, timeout_s: float = 20) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.01)

    async def given_up(self, name: str) -> None:
        """Until no more tries are made."""
        await self.until(lambda: self.state(name).state != "connecting")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def http_server(port: int, *argv: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program that listens on a port of this machine, from when it does until the end of the block."""
    started = subprocess.Popen(
        argv or (PYTHON, str(HERE / "server.py"), "http", str(port)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    try:
        wait_for_port(port, started)
        yield started
    finally:
        started.kill()
        started.wait()


def wait_for_port(port: int, started: subprocess.Popen[bytes]) -> None:
    import time

    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        assert started.poll() is None, "the server ended before it listened"
        time.sleep(0.05)
    raise AssertionError("the server does not listen")
