"""`lyra serve` and `lyra worker` as real processes, and the agents that the worker runs in them.

Each agent of `AGENTS` writes a line when it begins and when it ends, and waits in between for the file `go`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lyra.core.clock import SystemClock, block
from tests import warm
from tests.source import KEPT, PYTHONPATH

OPERATOR = "operator-token-0123456789"
ALICE = "alice-token-0123456789abc"
WAIT_S = 60.0

AGENTS = """
import asyncio, os
from pathlib import Path
from lyra.kernel import AgentResult
from lyra.server.client import current_work

FOLDER = Path(os.environ["AGENTS_FOLDER"])
NAME = os.environ["AGENTS_NAME"]


def note(word):
    with open(FOLDER / "lines", "a") as file:
        file.write(f"{word} {NAME}\\n")


def agent(name):
    async def run(envelope):
        note(f"begin {name}")
        try:
            while not (FOLDER / "go").exists():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            note(f"cancelled {name}")
            raise
        note(f"end {name}")
        work = current_work()
        return AgentResult(output={"by": NAME, "attempt": work.attempt}, metrics={"llm_calls": 1, "tokens_in": 11})

    return run


def setup(worker):
    worker.register_agent("repeatable", agent("repeatable"), idempotent=True)
    for name in ("once", "second", "third"):
        worker.register_agent(name, agent(name))
    worker.register_service("echo", lambda request: {"echo": request.metadata, "by": NAME})
"""


class Program:
    """One process; `ready` is its line on stdout."""

    def __init__(self, folder: Path, words: list[str], **env: str) -> None:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.errors = folder / f"errors-{len(list(folder.glob('errors-*')))}"
        home = {"HOME": str(folder), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8", "LYRA_TOKEN": OPERATOR}
        with self.errors.open("wb") as errors:
            self.process = warm.start_lyra(words, cwd=folder, env={**kept, **home, **env}, stderr=errors)
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> Program:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.ready = json.loads(line)
        return self

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        warm.close(self.process)


class World:
    """The processes of one test, in one folder."""

    def __init__(self, folder: Path, db: str = "store.db") -> None:
        self.folder = folder
        self.db = db
        self.address = "127.0.0.1:0"
        self.pauses: list[Callable[[float], Any]] = []  # of clients, which go on meanwhile
        self._programs: list[Program] = []
        (folder / "agents.py").write_text(AGENTS)
        tokens = folder / "tokens"
        tokens.write_text(f"{OPERATOR}\n{ALICE} alice\n")
        tokens.chmod(0o600)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_exc: object) -> None:
        for program in self._programs:
            program.close()

    def server(self, *more: str) -> Program:
        """Start the server; a second one has the address of the first."""
        words = ["serve", "--grpc", self.address, "--http", "none", "--db", self.db, "--token-file", "tokens"]
        program = self._start([*words, *more]).wait_ready()
        self.address = program.ready["grpc"]
        return program

    def worker(self, name: str = "a", *words: str, **env: str) -> Program:
        return self.start_worker(name, *words, **env).wait_ready()

    def start_worker(self, name: str = "a", *words: str, **env: str) -> Program:
        command = ["worker", "--server", self.address, "--load", "agents.py", "--json", "--name", name, "--lease", "1"]
        return self._start([*command, *words], AGENTS_FOLDER=str(self.folder), AGENTS_NAME=name, **env)

    def _start(self, words: list[str], **env: str) -> Program:
        program = Program(self.folder, words, **env)
        self._programs.append(program)
        return program

    def go(self) -> None:
        """Let the agents end."""
        (self.folder / "go").touch()

    def lines(self) -> list[str]:
        file = self.folder / "lines"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """The value of a condition, as soon as it is true."""
        clock = SystemClock()
        deadline = clock.monotonic() + WAIT_S
        while not (value := condition()):
            assert clock.monotonic() < deadline, "it did not happen"
            for pause in self.pauses or [block]:
                pause(0.02)
        return value

    def wait_for_line(self, line: str) -> None:
        self.wait_for(lambda: line in self.lines())
