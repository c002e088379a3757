"""Coming back: a store of 100 000 events and 1 000 live processes, from opening it until every process is where it was.

The store is made by real programs in a process that dies without closing it, so that the whole journal has to be
folded; then the same again after a clean close, which leaves a snapshot. The baseline only reads the rows back.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most
from benchmarks.spawn import environment
from lyra.kernel import Kernel
from lyra.kernel.process.process import Process

# Not `-m`: a program is known by its module, which must not be called __main__.
_BUILD = "import sys; from benchmarks.recovery import main; main(*sys.argv[1:])"
_PATIENCE_S = 120.0


async def act(number: int) -> dict[str, Any]:
    return {"number": number, "text": "an answer of ordinary length"}


async def worker(ctx: Any, steps: int) -> None:
    for number in range(steps):
        await ctx.do(act, number)
    await ctx.receive()


async def build(path: str, processes: int, steps: int) -> None:
    """Make the store and die: no close, no snapshot."""
    import os

    kernel = Kernel(path, programs=[worker], snapshot_every_events=10**9)
    await kernel.start()
    for _ in range(processes):
        kernel.spawn(worker, steps)
    await _settled(kernel, processes)
    journal = kernel.journal
    assert journal is not None
    await journal.wait_until_durable(journal.seq)
    os._exit(0)


def main(path: str, processes: str, steps: str) -> None:
    asyncio.run(build(path, int(processes), int(steps)))


async def _settled(kernel: Kernel, processes: int) -> None:
    """Until all wait for a message, with nothing left to replay."""
    until = time.monotonic() + _PATIENCE_S
    while kernel.scheduler.ready or not all(_at_rest(process) for process in kernel.processes.values()):
        if time.monotonic() > until:
            raise TimeoutError("the processes did not come back")
        await asyncio.sleep(0)
    assert len(kernel.processes) == processes


def _at_rest(process: Process) -> bool:
    return process.state == "waiting" and process.receiver is not None and process.replay is None


async def _open(path: Path, processes: int) -> Timing:
    kernel = Kernel(str(path), programs=[worker], snapshot_every_events=10**9)
    with Stopwatch(1) as watch:
        await kernel.start()
        await _settled(kernel, processes)
    await kernel.close()
    return watch.timing


def _read(path: Path) -> Timing:
    connection = sqlite3.connect(path)
    with Stopwatch(1) as watch:
        for (data,) in connection.execute("SELECT data FROM journal ORDER BY seq"):
            msgspec.msgpack.decode(data)
    connection.close()
    return watch.timing


def run(size: Size) -> list[Row]:
    processes, events = size.of(1_000, 10), size.of(100, 10)
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as name:
        folder = Path(name)
        crashed, closed, work = folder / "crashed.db", folder / "closed.db", folder / "work.db"
        command = [
            sys.executable,
            "-c",
            _BUILD,
            str(crashed),
            str(processes),
            str((events - 1) // 2 + 1),
        ]
        subprocess.run(command, cwd=Path(__file__).parent.parent, env=environment(), check=True, timeout=300)
        _copy(crashed, closed)
        asyncio.run(_open(closed, processes))
        timings: dict[str, list[Timing]] = {"crash": [], "close": [], "read": []}
        contenders: dict[str, tuple[Path, Callable[[], Timing]]] = {
            "crash": (crashed, lambda: asyncio.run(_open(work, processes))),
            "close": (closed, lambda: asyncio.run(_open(work, processes))),
            "read": (crashed, lambda: _read(work)),
        }
        for _ in range(size.of(5, 1)):
            for key, (source, contender) in contenders.items():
                _copy(source, work)
                timings[key].append(contender())
        connection = sqlite3.connect(crashed)
        ((rows,),) = connection.execute("SELECT sum(rows) FROM journal").fetchall()
        connection.close()
    best = {key: Figure(min(t.cpu_s for t in runs), "s", min(t.wall_s for t in runs)) for key, runs in timings.items()}
    note = f"{rows} events, {processes} live processes"
    plain = "reading the rows with sqlite3"
    return [
        Row("after a crash, no snapshot", best["crash"], plain, best["read"], (at_most(3, "s"),), note),
        Row("after a clean close", best["close"], plain, best["read"], (at_most(3, "s"),), note),
    ]


def _copy(source: Path, target: Path) -> None:
    for suffix in ("", "-wal"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
        if Path(f"{source}{suffix}").exists():
            shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    Path(f"{target}-shm").unlink(missing_ok=True)
