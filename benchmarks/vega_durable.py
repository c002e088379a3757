"""What it costs an agent call to be durable: the same program with and without a store; the model answers at once.

CPU time, because the waiting of real calls hides it. Fifty processes that ask at the same time share their commits:
that is what the goal is for, as many processes share a commit. One process that asks one thing after the
other has a commit for each; where no call needs the one before, all of them are under way at once. `vega resume` is the
time until a run of many calls is back where it was.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, at_most
from lyra import vega
from lyra.store.space import Space
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.runs import DurableRun
from lyra.vega.runtime.run import run_async
from lyra.vega.runtime.world import RunOptions

LIMIT_US = 100.0
RESUME_S = 2.0

_ALONE = """
agent A { model "sim/echo" }
fn main(args) {
    let a = spawn A;
    for let i = 0; i < COUNT; i = i + 1 { a <- "x"; }
    END
}
"""
_CHAINED = """
agent A { model "sim/echo" }
fn main(args) {
    let a = spawn A;
    let x = "x";
    for let i = 0; i < COUNT; i = i + 1 { x = a <- x; }
}
"""
_TOGETHER = """
agent A { model "sim/echo" }
fn worker(main) {
    let a = spawn A;
    let x = "x";
    for let i = 0; i < COUNT; i = i + 1 { x = a <- x; }
    main <- "done";
}
fn main(args) {
    for let i = 0; i < 50; i = i + 1 { spawn fn worker(process::self()); }
    for let i = 0; i < 50; i = i + 1 { receive { "done" => {} } }
}
"""


def _options() -> RunOptions:
    return RunOptions(write=lambda _: None, warn=print)


async def _plain(source: str) -> float:
    program, options = vega.compile(source, "bench.vega"), _options()
    began = time.process_time()
    await run_async(program, options)
    return time.process_time() - began


async def _durable(source: str, folder: str) -> float:
    space = Space(Path(folder) / "run.db", "bench")
    life = RunExecution(space, vega.compile(source, "bench.vega"), _options())
    began = time.process_time()
    await life.run({"file": "bench.vega"})
    spent = time.process_time() - began
    space.close()
    return spent


def _over_us(source: str, calls: int, rounds: int) -> float:
    """CPU microseconds that a durable call costs over a plain one: the best of each, taken in turns, since a machine
    that slows down in the middle of one of them says nothing of the difference."""
    plain, durable = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            gc.collect()  # this run does not pay for collecting the garbage of the run before
            plain.append(asyncio.run(_plain(source)))
            gc.collect()
            durable.append(asyncio.run(_durable(source, folder)))
    return 1e6 * max(0.0, min(durable) - min(plain)) / calls  # of a tiny run the noise may be more than the difference


def _resumed_s(calls: int, *, sequential: bool) -> float:
    """A run of many calls is stopped in its last one; how long the next life takes to come there."""
    wait = 'print("there"); receive { "never" => {} after 60s => {} }'
    source = _ALONE.replace("COUNT", str(calls)).replace("END", wait)
    program = vega.compile(source, "bench.vega")

    async def live(path: Path, *, is_first: bool) -> float:
        space = Space(path, "bench")
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = None if is_first else DurableRun(space)

        def ignore_output(_: Any) -> None:
            if not came.done():
                came.set_result(None)

        began = time.perf_counter()
        life = RunExecution(
            space, program, RunOptions(write=ignore_output, warn=print, sequential=sequential), before=before
        )
        work = asyncio.ensure_future(life.run({"file": "bench.vega"} if is_first else None))
        if is_first:
            await came
        else:
            while life.world.main is None or life.world.main.ctx.replaying:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)
        took = time.perf_counter() - began
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        space.close()
        return took

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        asyncio.run(live(path, is_first=True))
        return asyncio.run(live(path, is_first=False))


def run(size: Size) -> list[Row]:
    calls, rounds = size.of(2_000, 100), size.of(24, 1)
    together = _over_us(_TOGETHER.replace("COUNT", str(calls // 50)), calls, rounds)
    at_once = _over_us(_TOGETHER.replace("x = a <- x", "a <- x").replace("COUNT", str(calls // 50)), calls, rounds)
    alone = _over_us(_CHAINED.replace("COUNT", str(calls)), calls, rounds)
    back, wide = (_resumed_s(size.of(5_000, 100), sequential=sequential) for sequential in (True, False))
    return [
        Row("a durable agent call over a plain one, 50 at once", Figure(together), goals=(at_most(LIMIT_US, "µs"),)),
        Row("the same, one at once", Figure(alone), note="a commit for each"),
        Row(f"the same, {calls} at once", Figure(at_once), note="no call needs the one before"),
        Row("resume of 10 000 effects", Figure(back, "s"), goals=(at_most(RESUME_S, "s"),), note="wall time"),
        Row("the same, all of them calls beside each other", Figure(wide, "s"), note="nothing is saved on the way"),
    ]
