"""Sage: CPU from the start of a process to its version, its first request and its prompt; memory; what a session adds.

The model is the server of `first_token`. The peers are the command line agents of npm, where a folder with them is
named by LYRA_BENCH_PEERS (`npm install @anthropic-ai/claude-code @openai/codex opencode-ai` there): they are asked for
their version, in the same run. All processes have their bytecode compiled, as after an installation.
"""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.first_token import DELAY_S, MODEL, Used, children, server
from benchmarks.measure import Figure, Row, Size, at_most

__all__ = ["Arrival", "run", "to_prompt", "to_request"]

SAGE = [sys.executable, "-c", "import sys; from lyra.cli.main import sage; sys.exit(sage(sys.argv[1:]))"]
PEERS = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "opencode": "opencode-ai"}
_TICKS = os.sysconf("SC_CLK_TCK")
_TALK = """
import asyncio, sys
from lyra.agents.headless.options import HeadlessOptions
from lyra.sage.agent.live import LiveSession, SessionStart
async def main():
    options = HeadlessOptions(model=%r, folder=sys.argv[1])
    async with LiveSession(options, start=SessionStart(root=sys.argv[2])) as session:
        for number in range(int(sys.argv[3])):
            async for line in session.send(f"What about number {number}? " + "word " * 20):
                pass
        with open("/proc/self/status") as file:
            print(next(line for line in file if line.startswith("VmHWM:")).split()[1], flush=True)
asyncio.run(main())
"""


def _cpu_ms(pid: int) -> float:
    """CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / _TICKS


def _whole(command: list[str], env: dict[str, str]) -> Used:
    """CPU and peak memory of a process that ends by itself."""
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, env, file_actions=silence)
    _, _, usage = os.wait4(pid, 0)
    return Used((usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_maxrss / 1024)


class Arrival:
    """The CPU that a process had used when its first request arrived."""

    def __init__(self) -> None:
        self.pid = 0
        self.cpu_ms = 0.0

    def __call__(self) -> None:
        if self.pid and not self.cpu_ms:
            with suppress(OSError):
                self.cpu_ms = _cpu_ms(self.pid)


def to_request(arrival: Arrival, env: dict[str, str], folder: str) -> float:
    """CPU until the request of a printed task has come."""
    arrival.pid, arrival.cpu_ms = 0, 0.0
    command = [*SAGE, "-p", "hello", "--model", MODEL]
    with subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        arrival.pid = running.pid
    return arrival.cpu_ms


def to_prompt(env: dict[str, str], folder: str) -> float:
    """CPU until the prompt's mark is on the screen of a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(SAGE[0], [*SAGE, "--model", MODEL], {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    seen, deadline = b"", time.monotonic() + 30
    try:
        while "›".encode() not in seen and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
                if b"\x1b[6n" in seen:  # it asks where the cursor is
                    os.write(terminal, b"\x1b[1;1R")
                    seen = seen.replace(b"\x1b[6n", b"")
        assert "›".encode() in seen, seen[-500:]
        return _cpu_ms(pid)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


async def _added_delays(calls: int, folder: str, root: str) -> list[float]:
    """Milliseconds from a message to a session to the first token, less the server's own, sorted."""
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.sage.agent.live import LiveSession, SessionStart

    delays_ms: list[float] = []
    options = HeadlessOptions(model=MODEL, folder=folder)
    async with LiveSession(options, start=SessionStart(root=root)) as session:
        for _ in range(calls + 5):
            began, first = time.perf_counter(), 0.0
            async for line in session.send("hello"):
                if line["type"] == "text_delta":
                    first = first or time.perf_counter()
            delays_ms.append((first - began - DELAY_S) * 1e3)
            if len(session.messages) > 8:
                await session.clear()
    return sorted(delays_ms[5:])


def _talk(env: dict[str, str], folder: str, root: str, turns: int) -> float:
    command = [sys.executable, "-c", _TALK % MODEL, folder, root, str(turns)]
    return int(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout) / 1024


@contextmanager
def _variables(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({name: env[name] for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _median(measure: Callable[[], float], size: Size) -> float:
    measure()
    samples = sorted(measure() for _ in range(size.of(5, 1)))
    return samples[len(samples) // 2]


def _peers(size: Size) -> dict[str, Used]:
    folder = os.environ.get("LYRA_BENCH_PEERS", "")
    programs = {name: Path(folder) / "node_modules" / ".bin" / name for name in PEERS} if folder else {}
    figures = {}
    for name, path in programs.items():
        if path.exists():
            with suppress(OSError):  # an installation that is not whole has no program to start
                runs = [_whole([str(path), "--version"], dict(os.environ)) for _ in range(size.of(3, 1))]
                figures[name] = Used(*map(min, zip(*runs, strict=True)))
    return figures


def run(size: Size) -> list[Row]:
    arrival = Arrival()
    with server(arrived=arrival) as url, children(url) as env, tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder, "sessions"))
        work = str(Path(folder, "work"))
        Path(work).mkdir()
        env["XDG_DATA_HOME"] = folder
        version = _median(lambda: _whole([*SAGE, "--version"], env).cpu_ms, size)
        peak = _whole([*SAGE, "--version"], env).peak_mb
        request = _median(lambda: to_request(arrival, env, work), size)
        prompt = _median(lambda: to_prompt(env, work), size)
        with _variables(env):
            delays = asyncio.run(_added_delays(size.of(200, 3), work, root))
        turns = size.of(1_000, 3)
        talked = _talk(env, work, root, turns)
    rows: list[Any] = [
        _row("sage --version, CPU", version, "ms", 60),
        Row("the same, resident at most", Figure(peak, "MB")),
        _row("sage -p, start of the process to the request, CPU", request, "ms", 400),
        _row("sage, start of the process to the prompt, CPU", prompt, "ms", 500),
        _row(
            "a session's message to the first token, what Sage adds, p95, wall",
            delays[len(delays) * 95 // 100],
            "ms",
            20,
        ),
        _row(f"a session of {turns} turns, resident at most", talked, "MB", 150),
    ]
    for name, used in _peers(size).items():
        rows.append(Row(f"{name} --version, CPU", Figure(used.cpu_ms, "ms")))
        rows.append(Row("the same, resident at most", Figure(used.peak_mb, "MB")))
    return rows


def _row(what: str, value: float, unit: str, most: float) -> Row:
    return Row(what, Figure(max(value, 0.0), unit), goals=(at_most(most, unit),))
