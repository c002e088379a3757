"""The server of the crash harness as a process of its own, with a worker in another.

`ServedProcess` starts `lyra serve` on a store, kills it, and starts it again on the same addresses, so that clients and
the worker find it where it was. `life` counts the starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from verify.crash.server import outside

__all__ = ["OPERATOR", "ServedProcess"]

OPERATOR: Final = "operator-token-0123456789"
_START_S: Final = 60.0
_SOURCE: Final = Path(__file__).parents[3]


class ServedProcess:
    """See the module."""

    def __init__(self, folder: Path, db: str, *, load: Path = Path(outside.__file__)) -> None:
        self.folder = folder
        self.log_file = folder / "outside.log"
        self._db = db
        self._load = load
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self.grpc = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.life = 0
        self.drain_s = 30
        (folder / "tokens").write_text(f"{OPERATOR}\n")
        (folder / "tokens").chmod(0o600)

    @property
    def running_pid(self) -> int | None:
        """The process of the server; None while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Start the server; returns when it takes requests."""
        words = ["serve", "--grpc", self.grpc, "--http", self.http, "--db", self._db, "--token-file", "tokens"]
        self._process = self._spawn([*words, "--load", str(self._load)], "server")
        ready = await self._first_line(self._process, "server")
        self.grpc, self.http = ready["grpc"], ready["http"].removeprefix("http://")
        self.life += 1

    async def start_worker(self) -> None:
        words = ["worker", "--server", self.grpc, "--load", outside.__file__, "--json", "--name", "hand"]
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
        code = await asyncio.to_thread(self._process.wait, _START_S)
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

    def complaints(self) -> list[str]:
        """Lines in the logs that tell of a defect."""
        text = "".join(file.read_text(errors="replace") for file in self.folder.glob("*.errors"))
        return [line for line in text.splitlines() if "Traceback" in line or "never retrieved" in line]

    def _spawn(self, words: list[str], name: str) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "LYRA_TOKEN": OPERATOR,
            "PYTHONPATH": os.pathsep.join((str(_SOURCE / "src"), str(_SOURCE))),
            "LYRA_SERVER_DRAIN_S": str(self.drain_s),
            outside.LOG_VARIABLE: str(self.log_file),
        }
        with (self.folder / f"{name}.errors").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "lyra", *words], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=errors
            )

    async def _first_line(self, process: subprocess.Popen[bytes], name: str) -> dict[str, Any]:
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            last = (self.folder / f"{name}.errors").read_text(errors="replace")[-2000:]
            raise AssertionError(f"the {name} did not start: {last}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    @staticmethod
    def _close_output(process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
