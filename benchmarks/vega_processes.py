"""Vega processes on the kernel: how much one holds at rest, how fast they are made, how fast messages go and return.

Beside asyncio tasks with a Queue for a mailbox, and beside Erlang's BEAM where `erl` is installed. Every measurement is
a fresh interpreter; memory is what its resident set grew by, for BEAM what it says its processes take.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, at_most
from benchmarks.spawn import environment, resident_bytes

SPAWN = """
fn idle() { receive { x => {} } }
fn main() {
    let last = spawn fn idle();
    mark();
    let i = 0;
    while i < COUNT { last = spawn fn idle(); i = i + 1; }
    process::sleep(1ms);
    mark();
    done();
}
"""
TRIPS = """
fn echo() { while true { receive { p => { p <- 1; } } } }
fn main() {
    let other = spawn fn echo();
    let me = process::self();
    other <- me;
    receive { x => {} }
    mark();
    let i = 0;
    while i < COUNT { other <- me; receive { x => {} } i = i + 1; }
    mark();
    done();
}
"""

# The same two programs in Erlang; both print what `_tell` does.
BEAM = {
    "spawn": """
        Idle = fun() -> receive _ -> ok end end,
        Before = erlang:memory(processes), {Cpu, _} = statistics(runtime), Wall = erlang:monotonic_time(microsecond),
        Made = [spawn(Idle) || _ <- lists:seq(1, COUNT)],
        {CpuEnd, _} = statistics(runtime), WallEnd = erlang:monotonic_time(microsecond),
        COUNT = length(Made),
        io:format("[~w, ~w, ~w]", [(CpuEnd - Cpu) / 1000, (WallEnd - Wall) / 1.0e6, erlang:memory(processes) - Before]),
        halt().
    """,
    "trips": """
        Echo = fun Loop() -> receive From -> From ! 1, Loop() end end,
        Other = spawn(Echo), Me = self(),
        Turn = fun Turn(0) -> ok; Turn(N) -> Other ! Me, receive _ -> Turn(N - 1) end end,
        {Cpu, _} = statistics(runtime), Wall = erlang:monotonic_time(microsecond),
        Turn(COUNT),
        {CpuEnd, _} = statistics(runtime), WallEnd = erlang:monotonic_time(microsecond),
        io:format("[~w, ~w, 0]", [(CpuEnd - Cpu) / 1000, (WallEnd - Wall) / 1.0e6]),
        halt().
    """,
}


def vega(source: str, count: int) -> None:
    from lyra.vega import run as run_program

    marks: list[tuple[float, float, int]] = []

    def mark() -> None:
        marks.append((time.process_time(), time.perf_counter(), resident_bytes()))

    def done() -> None:
        began, ended = marks
        _tell(*(after - before for before, after in zip(began, ended, strict=True)))

    host: dict[str, Any] = {"mark": mark, "done": done}
    run_program(source.replace("COUNT", str(count)), host=host)


async def tasks_at_rest(count: int) -> None:
    before = resident_bytes()
    with Stopwatch(count) as watch:
        mailboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(count)]
        tasks = [asyncio.create_task(mailbox.get()) for mailbox in mailboxes]
        await asyncio.sleep(0)
    assert len(tasks) == count
    _tell(watch.timing.cpu_s, watch.timing.wall_s, resident_bytes() - before)


async def two_tasks(count: int) -> None:
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def echo() -> None:
        while True:
            back.put_nowait(await there.get())

    task = asyncio.create_task(echo())
    with Stopwatch(count) as watch:
        for _ in range(count):
            there.put_nowait(1)
            await back.get()
    task.cancel()
    _tell(watch.timing.cpu_s, watch.timing.wall_s, 0)


def _tell(cpu_s: float, wall_s: float, grown_bytes: float) -> None:
    os.write(1, json.dumps([cpu_s, wall_s, grown_bytes]).encode())
    os._exit(0)  # ending them all is not what is measured


CHILDREN: dict[str, Any] = {
    "spawn": lambda count: vega(SPAWN, count),
    "trips": lambda count: vega(TRIPS, count),
    "tasks": lambda count: asyncio.run(tasks_at_rest(count)),
    "queues": lambda count: asyncio.run(two_tasks(count)),
}
_CHILD = "import sys; from benchmarks.vega_processes import CHILDREN; CHILDREN[sys.argv[1]](int(sys.argv[2]))"


def _child(name: str, count: int) -> tuple[float, float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name, str(count)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=300,
    )
    cpu_s, wall_s, grown = json.loads(done.stdout)
    return cpu_s / count * 1e6, wall_s / count * 1e6, grown / count


def _beam(name: str, count: int) -> tuple[float, float, float]:
    source = " ".join(BEAM[name].replace("COUNT", str(count)).split())
    command = ["erl", "+S", "1", "+P", "2000000", "-noshell", "-eval", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    cpu_s, wall_s, grown = json.loads(done.stdout)
    return cpu_s / count * 1e6, wall_s / count * 1e6, grown / count


def run(size: Size) -> list[Row]:
    count = size.of(100_000, 500)
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CHILDREN}
    for _ in range(size.of(3, 1)):
        for name, samples in runs.items():
            samples.append(_child(name, count))
    best = {name: [min(column) for column in zip(*samples, strict=True)] for name, samples in runs.items()}
    took = {name: Figure(cpu_us, "µs", wall_us) for name, (cpu_us, wall_us, _) in best.items()}
    holds = {name: Figure(max(bytes_held, 1.0), "B") for name, (_, _, bytes_held) in best.items()}
    task = "a task on an asyncio.Queue"
    rows = [
        Row(f"a Vega process, one of {count} at rest", holds["spawn"], task, holds["tasks"], (at_most(2_000, "B"),)),
        Row(f"spawn one of {count}, till it waits", took["spawn"], task, took["tasks"], (at_most(10, "µs"),)),
        Row("a round trip", took["trips"], "two tasks, two asyncio.Queues", took["queues"], (at_most(10, "µs"),)),
    ]
    if shutil.which("erl") is None:
        return rows
    beam_spawn, beam_trips = _beam("spawn", count), _beam("trips", count)
    return [
        *rows,
        Row(f"a Vega process, one of {count} at rest", holds["spawn"], "BEAM", Figure(max(beam_spawn[2], 1.0), "B")),
        Row(f"spawn one of {count}", took["spawn"], "BEAM", Figure(beam_spawn[0], "µs", beam_spawn[1])),
        Row("a round trip", took["trips"], "BEAM", Figure(beam_trips[0], "µs", beam_trips[1])),
    ]
