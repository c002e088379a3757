"""Vega processes in one, two and four threads, and agent calls with and without uvloop.

Under Python's global lock more workers gain nothing: the rows show what they cost. Every measurement is a fresh
interpreter. The row for uvloop is there where it is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size
from benchmarks.spawn import environment

PAIRS = """
fn echo() { while true { receive { p => { p <- 1; } } } }
fn asks(count, home) {
    let other = spawn fn echo();
    let me = process::self();
    let i = 0;
    while i < count { other <- me; receive { x => {} } i = i + 1; }
    home <- "done";
}
fn main() {
    let home = process::self();
    mark();
    let i = 0;
    while i < 20 { spawn fn asks(EACH, home); i = i + 1; }
    while i > 0 { receive { x => {} } i = i - 1; }
    mark();
}
"""
CALLS = """
agent Echo { model "sim/echo" }
fn asks(count, home) {
    let echo = spawn Echo;
    let i = 0;
    while i < count { echo <- "hello"; i = i + 1; }
    home <- "done";
}
fn main() {
    let home = process::self();
    mark();
    let i = 0;
    while i < 20 { spawn fn asks(EACH, home); i = i + 1; }
    while i > 0 { receive { x => {} } i = i - 1; }
    mark();
}
"""


def child(source: str, messages: int, *, workers: int = 1, loop: str = "asyncio") -> None:
    """Run one program and say what passed between its marks: seconds of CPU and by the wall clock."""
    from lyra import vega

    marks: list[tuple[float, float]] = []

    def mark() -> None:
        marks.append((time.process_time(), time.perf_counter()))

    async def main() -> None:
        await vega.run(source.replace("EACH", str(messages)), host={"mark": mark}, workers=workers)

    if loop == "uvloop":
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
    began, ended = marks
    os.write(1, json.dumps([ended[0] - began[0], ended[1] - began[1]]).encode())


CHILDREN: dict[str, Any] = {
    "1 worker": lambda messages: child(PAIRS, messages),
    "2 workers": lambda messages: child(PAIRS, messages, workers=2),
    "4 workers": lambda messages: child(PAIRS, messages, workers=4),
    "asyncio": lambda messages: child(CALLS, messages),
    "uvloop": lambda messages: child(CALLS, messages, loop="uvloop"),
}
_CHILD = "import sys; from benchmarks.vega_workers import CHILDREN; CHILDREN[sys.argv[1]](int(sys.argv[2]))"


def _measured(name: str, messages: int) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name, str(messages)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=300,
    )
    cpu_s, wall_s = json.loads(done.stdout)
    return cpu_s / (20 * messages) * 1e6, wall_s / (20 * messages) * 1e6


def run(size: Size) -> list[Row]:
    names = [name for name in CHILDREN if name != "uvloop" or importlib.util.find_spec("uvloop") is not None]
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(size.of(3, 1)):
        for name, samples in runs.items():
            samples.append(_measured(name, size.of(1_000, 5) if "worker" in name else size.of(50, 2)))
    best = {
        name: Figure(min(cpu for cpu, _ in samples), "µs", min(wall for _, wall in samples))
        for name, samples in runs.items()
    }
    talk = "a round trip, 20 pairs at once"
    rows = [
        Row(f"{talk}, 1 worker", best["1 worker"]),
        Row(f"{talk}, 2 workers", best["2 workers"], "1 worker", best["1 worker"]),
        Row(f"{talk}, 4 workers", best["4 workers"], "1 worker", best["1 worker"]),
    ]
    if "uvloop" in best:
        rows.append(Row("an agent call, 20 at once, uvloop", best["uvloop"], "asyncio", best["asyncio"]))
    return rows
