"""Vega processes on the kernel: how much one holds at rest, how fast they are made, how fast messages go back and forth.

    python -m benchmarks.vega_processes [--count 100000] [--trips 100000]

Each figure is taken in a fresh interpreter; memory is what the resident set grew by, time is CPU time. Bounds of the
design: 2 000 bytes a process, 100 000 made a second, 100 000 round trips a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.spawn import resident_bytes

from lyra.vega import run

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
PROGRAMS = {"spawn": SPAWN, "trips": TRIPS}


def measure(name: str, count: int) -> None:
    """One figure, printed: CPU seconds and bytes between the two marks."""
    marks: list[tuple[float, int]] = []

    def mark() -> None:
        marks.append((time.process_time(), resident_bytes()))

    def done() -> None:
        (began, before), (ended, after) = marks
        os.write(1, f"{ended - began} {after - before}\n".encode())
        os._exit(0)  # ending them all is not what is measured

    host: dict[str, Any] = {"mark": mark, "done": done}
    run(PROGRAMS[name].replace("COUNT", str(count)), host=host)


def fresh(name: str, count: int) -> tuple[float, int]:
    command = [sys.executable, "-m", "benchmarks.vega_processes", "--one", name, "--count", str(count)]
    cpu_s, grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(cpu_s), int(grown)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--trips", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=PROGRAMS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.count)
        return
    spawns = [fresh("spawn", arguments.count) for _ in range(arguments.rounds)]
    trips = [fresh("trips", arguments.trips) for _ in range(arguments.rounds)]
    grown = min(bytes_ for _, bytes_ in spawns)
    made = arguments.count / min(cpu_s for cpu_s, _ in spawns)
    went = arguments.trips / min(cpu_s for cpu_s, _ in trips)
    print(
        f"{arguments.count} idle processes: {grown / 1e6:.0f} MB, {grown / arguments.count:.0f} bytes each (bound 2000)"
    )
    print(f"spawned: {made:,.0f}/s of CPU (bound 100,000)")
    print(f"round trips: {went:,.0f}/s of CPU (bound 100,000)")


if __name__ == "__main__":
    main()
