"""Several workers: what a program says and gives does not depend on how many there are."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.errors import ConfigError
from lyra.models.sim import SCRIPT_VARIABLE
from lyra.testing import SimClock
from lyra.vega import VegaError
from tests.language.conftest import Outcome, expected, load

LANGUAGE = Path(__file__).parents[2] / "language"


async def keep_time(kernel: Kernel, clock: SimClock) -> None:
    """Let time pass for processes in other threads: it jumps to the next timer when every process waits."""
    quiet = busy = 0
    while True:
        await asyncio.sleep(0.001)
        tables = [world.light_processes for world in kernel.parts.get("vega", {}).values()]
        is_quiet = kernel.scheduler.ready == 0 and all(table.all_wait() for table in tables)
        quiet, busy = (quiet + 1, 0) if is_quiet else (0, busy + 1)
        due = clock.next_due()
        if due is not None and (quiet > 2 or busy > 300):  # one that never waits must not stop the clock
            quiet = busy = 0
            clock.advance(max(0.0, due - clock.monotonic()))


def programs() -> list[Path]:
    """Those that start processes of their own and say what they print."""
    paths = []
    for path in sorted(LANGUAGE.rglob("*.vega")):
        text = path.read_text()
        if "spawn fn" in text and expected(text) is not None and not re.search(r"Deadlock|time::|// only: local", text):
            paths.append(path)
    return paths


def ran(path: Path, workers: int, folder: str) -> Outcome:
    lines: list[str] = []
    program = vega.compile(path.read_text(), str(path.resolve()), load=load)
    script = path.with_suffix(".yaml")
    if script.exists():
        os.environ[SCRIPT_VARIABLE] = str(script)

    async def main() -> None:
        clock = SimClock()
        async with Kernel(clock=clock) as kernel, asyncio.timeout(20):
            time = asyncio.create_task(keep_time(kernel, clock))
            try:
                await vega.run(
                    program,
                    stdout=lines.append,
                    stderr=lambda _: None,
                    kernel=kernel,
                    folder=folder,
                    workers=workers,
                )
            finally:
                time.cancel()

    try:
        asyncio.run(main())
    except VegaError as error:
        return Outcome(lines, error.name, error.text, error.line, error.column, 1)
    finally:
        os.environ.pop(SCRIPT_VARIABLE, None)
    return Outcome(lines, "", "", 0, 0, 0)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("path", programs(), ids=lambda path: path.stem)
def test_a_program_does_the_same(path: Path, workers: int, tmp_path: Path):
    wanted = expected(path.read_text())
    assert wanted is not None
    got = ran(path, workers, str(tmp_path))
    assert "\n".join(got.lines) == "\n".join(wanted.lines)
    assert bool(got.error) == (wanted.error is not None)
    if wanted.error is not None:
        assert wanted.error[0] in (None, got.error)


RINGS = """
fn node(next, home) {
    while true { receive { "stop" => { next <- "stop"; return null; }, n => { next <- n + 1; } } }
}
fn last(home) { while true { receive { "stop" => { home <- "stopped"; return null; }, n => { home <- n; } } } }
fn main() {
    let home = process::self();
    let rings = [];
    for r in list::range(0, 8) {
        let next = spawn fn last(home);
        for i in list::range(0, 30) { next = spawn fn node(next, home); }
        rings.push(next);
    }
    let total = 0;
    for turn in list::range(0, 40) {
        for ring in rings { ring <- turn; }
    }
    for turn in list::range(0, 320) { receive { n => { total = total + n; } } }
    for ring in rings { ring <- "stop"; }
    let stopped = 0;
    for ring in rings { receive { "stopped" => { stopped = stopped + 1; } } }
    return [total, stopped];
}
"""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_many_processes_lose_no_message(workers: int):
    assert vega.run(RINGS, workers=workers) == [8 * (sum(range(40)) + 40 * 30), 8]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_they_may_be_looked_up_while_they_run(workers: int):
    source = """
    fn busy(to) { let n = 0; while true { n = n + 1; receive { p => { to <- "here"; } after 0s => {} } } }
    fn spinning() { while true {} }
    fn main() {
        let me = process::self();
        let all = [];
        for i in list::range(0, 10) { spawn fn spinning(); all.push(spawn fn busy(me)); }
        process::sleep(20ms);
        let seen = look();
        for p in all { p <- 1; }
        for p in all { receive { "here" => {} } }
        return seen;
    }
    """

    async def main() -> Any:
        async with Kernel() as kernel:
            return await vega.run(
                source, kernel=kernel, workers=workers, host={"look": lambda: len(list(kernel.processes.values()))}
            )

    assert asyncio.run(main()) == 21


def test_light_processes_start_others_and_tell_the_main_one():
    source = """
    fn tree(depth, to) {
        if depth == 0 { to <- 1; return null; }
        spawn fn tree(depth - 1, to);
        spawn fn tree(depth - 1, to);
    }
    fn main() {
        spawn fn tree(8, process::self());
        let n = 0;
        while n < 256 { receive { x => { n = n + x; } } }
        print(n);
    }
    """
    lines: list[str] = []
    vega.run(source, workers=3, stdout=lines.append)
    assert lines == ["256"]


def test_there_is_at_least_one():
    with pytest.raises(ConfigError, match="workers"):
        vega.run("print(1);", workers=0)


@pytest.mark.parametrize(("workers", "threads"), [(1, 0), (3, 3)])
def test_each_worker_is_a_thread_that_ends_with_the_run(workers: int, threads: int):
    def count() -> int:
        return sum(thread.name.startswith("vega-worker") for thread in threading.enumerate())

    source = "fn idle() { receive { x => {} } } fn main() { spawn fn idle(); return count(); }"
    assert vega.run(source, workers=workers, host={"count": count}) == threads
    assert count() == 0
