"""A real Redis server for tests, thrown away afterwards.

`RedisServer` runs on a free port of this machine's own address, in a temporary folder, and saves nothing. It never
touches a server that is already running. `redis_missing()` says in one sentence why it cannot run here, for a test's
skip.
"""

from __future__ import annotations

import shutil
import socket
import subprocess  # noqa: TID251 - starting a real server is what this module is for
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote

from lyra.core.clock import SystemClock
from lyra.errors import StoreError

__all__ = ["RedisServer", "redis_missing"]

_START_TIMEOUT_S: Final = 20
_PORT_TRIES: Final = 5  # another program may take a free port before the server does


def redis_missing() -> str | None:
    """Why no Redis server can be started here; None when one can."""
    return None if shutil.which("redis-server") else "Redis is not installed: apt-get install redis-server"


class RedisServer:
    """`with RedisServer(password="x") as server: Runtime(results=server.url)`."""

    def __init__(self, *, password: str = "") -> None:
        self.password = password
        self.port = 0
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.port}"

    def start(self) -> None:
        missing = redis_missing()
        if missing:
            raise StoreError(missing)
        self._folder = Path(tempfile.mkdtemp(prefix="lyra-redis-"))
        for _ in range(_PORT_TRIES):
            self.port = _free_port()
            self.resume()
            if self._answers():
                return
            self.halt()
        self.stop()
        raise StoreError("redis-server does not start")

    def halt(self) -> None:
        """End the server at once, as a crash would; `resume` starts another one at its port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def resume(self) -> None:
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        login = ["--requirepass", self.password] if self.password else []
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own words, no shell
                ["redis-server", *settings, *login, "--dir", str(self._folder)],  # noqa: S607 - the one on the path
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait(self) -> None:
        """Until a resumed server answers."""
        if not self._answers():
            raise StoreError("redis-server does not start")

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, *words: str) -> str:
        """What Redis's own client prints for a command."""
        login = ["--no-auth-warning", "-a", self.password] if self.password else []
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            ["redis-cli", "-p", str(self.port), *login, *words],  # noqa: S607 - the one on the path
            capture_output=True,
            text=True,
            check=True,
            timeout=_START_TIMEOUT_S,
        )
        return done.stdout.strip()

    def _answers(self) -> bool:
        end = SystemClock.monotonic() + _START_TIMEOUT_S
        while SystemClock.monotonic() < end and self._process is not None and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(1) in (b"+", b"-"):
                    return True
        return False

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
