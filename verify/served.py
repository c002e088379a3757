"""A real `lyra serve` as a process of its own, to be killed, stopped, attacked and measured; with a worker in another.

`ServedProcess` starts the server on a store and, after it has ended, again on the same addresses, so that clients and
the worker find it where it was. Its stderr goes to a file in its folder. The tests put a quicker way to start it at
`ServedProcess.start_lyra`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess  # noqa: TID251 - a server that is killed is a process of its own
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

__all__ = ["OPERATOR", "USER_TOKEN", "ServedProcess"]

OPERATOR: Final = "operator-token-0123456789"
USER_TOKEN: Final = "ada-token-0123456789abcdef"  # noqa: S105 - of a server that lives for a test; bound to `ada`
_START_S: Final = 60.0
_SOURCE: Final = Path(__file__).parents[1]


def _start_lyra(words: list[str], *, cwd: Path, env: dict[str, str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lyra", *words]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=stderr)  # noqa: S603 - our own words


class ServedProcess:
    """See the module. `load` is the file for `--load`, `flags` are more words of the command line."""

    start_lyra: ClassVar[Callable[..., Any]] = staticmethod(_start_lyra)

    def __init__(
        self,
        folder: Path,
        db: str,
        *,
        load: Path,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.env = dict(env or {})
        self._db = db
        self._load = load
        self._flags = flags
        self._process: Any = None  # what `start_lyra` gave
        self._worker: Any = None
        self.grpc = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.life = 0  # starts so far
        self.drain_s = 30
        (folder / "tokens").write_text(f"{OPERATOR}\n{USER_TOKEN} ada\n")
        (folder / "tokens").chmod(0o600)

    @property
    def running_pid(self) -> int | None:
        """The process of the server; None while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def errors(self) -> str:
        """What the server and the worker wrote to stderr."""
        return "".join(file.read_text(errors="replace") for file in sorted(self.folder.glob("*.errors")))

    async def start(self) -> None:
        """Start the server; returns when it takes requests."""
        words = ["serve", "--grpc", self.grpc, "--http", self.http, "--db", self._db, "--token-file", "tokens"]
        self._process = self._spawn([*words, "--load", str(self._load), *self._flags], "server")
        ready = await self._first_line(self._process, "server")
        self.grpc, self.http = ready["grpc"], ready["http"].partition("://")[2]
        self.life += 1

    async def start_worker(self, load: Path | None = None) -> None:
        words = ["worker", "--server", self.grpc, "--load", str(load or self._load), "--json", "--name", "hand"]
        self._worker = self._spawn([*words, "--lease", "2", "--concurrency", "4"], "worker")
        await self._first_line(self._worker, "worker")

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._close_output(self._process)

    def terminate(self) -> None:
        """SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """The exit code, once the server has ended."""
        assert self._process is not None
        code: int = await asyncio.to_thread(self._process.wait, _START_S)
        self._close_output(self._process)
        return code

    async def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.terminate()
        return await self.ended()

    def close(self) -> None:
        for process in (self._process, self._worker):
            if process is not None:
                if process.poll() is None:
                    process.kill()
                process.wait()
                self._close_output(process)

    def memory_mb(self) -> float:
        """The resident memory of the server."""
        status = Path(f"/proc/{self.running_pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def cpu_s(self) -> float:
        """The CPU time of the server."""
        fields = Path(f"/proc/{self.running_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _spawn(self, words: list[str], name: str) -> Any:
        env = {
            **os.environ,
            "LYRA_TOKEN": OPERATOR,
            "PYTHONPATH": os.pathsep.join((str(_SOURCE / "src"), str(_SOURCE))),
            "LYRA_SERVER_DRAIN_S": str(self.drain_s),
            **self.env,
        }
        with (self.folder / f"{name}.errors").open("ab") as errors:
            return self.start_lyra(words, cwd=self.folder, env=env, stderr=errors)

    async def _first_line(self, process: Any, name: str) -> dict[str, Any]:
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            last = (self.folder / f"{name}.errors").read_text(errors="replace")[-2000:]
            raise AssertionError(f"the {name} did not start: {last}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    @staticmethod
    def _close_output(process: Any) -> None:
        if process.stdout is not None:
            process.stdout.close()
