"""100 000 processes, each waiting for its first message: how long each takes to make, and how much memory it holds.

Against raw asyncio tasks: one that awaits a bare future (it can do nothing else), and one with a Queue for a mailbox.
Every measurement is a fresh interpreter; memory is what its resident set grew by.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, ratio_at_most

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


async def idle(ctx: Any) -> None:
    await ctx.receive()


async def lyra(count: int) -> None:
    from lyra.kernel import Kernel

    async with Kernel("memory") as kernel:
        await kernel.spawn(idle)
        await asyncio.sleep(0)
        before = resident_bytes()
        with Stopwatch(count) as watch:
            for _ in range(count):
                kernel.spawn(idle)
            while kernel.scheduler.ready:  # noqa: ASYNC110 - till all have run
                await asyncio.sleep(0)
        grown = resident_bytes() - before
        assert kernel.live == count + 1
        os.write(1, _answer(watch.timing, grown))
        os._exit(0)  # ending them all is not what is measured


async def tasks_on_futures(count: int) -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[None]] = []

    async def wait() -> None:
        future: asyncio.Future[None] = loop.create_future()
        futures.append(future)
        await future

    before = resident_bytes()
    with Stopwatch(count) as watch:
        tasks = [asyncio.create_task(wait()) for _ in range(count)]
        while len(futures) < count:  # noqa: ASYNC110 - till all have run
            await asyncio.sleep(0)
    os.write(1, _answer(watch.timing, resident_bytes() - before))
    assert len(tasks) == count
    os._exit(0)


async def tasks_on_queues(count: int) -> None:
    started = 0

    async def wait(mailbox: asyncio.Queue[Any]) -> None:
        nonlocal started
        started += 1
        await mailbox.get()

    before = resident_bytes()
    with Stopwatch(count) as watch:
        mailboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(count)]
        tasks = [asyncio.create_task(wait(mailbox)) for mailbox in mailboxes]
        while started < count:  # noqa: ASYNC110 - till all have run
            await asyncio.sleep(0)
    os.write(1, _answer(watch.timing, resident_bytes() - before))
    assert len(tasks) == count
    os._exit(0)


def _answer(timing: Timing, grown_bytes: int) -> bytes:
    return json.dumps([*timing, grown_bytes / timing.operations]).encode()


_CHILDREN: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
    "lyra": lyra,
    "future": tasks_on_futures,
    "queue": tasks_on_queues,
}


def main(name: str, count: str) -> None:
    asyncio.run(_CHILDREN[name](int(count)))


# Not `-m`: a program is known by its module, which must not be called __main__.
_CHILD = "import sys; from benchmarks.spawn import main; main(*sys.argv[1:])"


def _child(name: str, count: int) -> tuple[Timing, float]:
    command = [sys.executable, "-c", _CHILD, name, str(count)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=300,
    )
    cpu_s, wall_s, spawned, bytes_per_process = json.loads(done.stdout)
    return Timing(cpu_s, wall_s, spawned), bytes_per_process


def environment() -> dict[str, str]:
    """The environment in which a child finds the same Lyra."""
    import lyra as package

    assert package.__file__ is not None
    return {**os.environ, "PYTHONPATH": str(Path(package.__file__).parent.parent)}


def run(size: Size) -> list[Row]:
    count = size.of(100_000, 500)
    runs: dict[str, list[tuple[Timing, float]]] = {name: [] for name in _CHILDREN}
    for _ in range(size.of(5, 1)):
        for name, samples in runs.items():
            samples.append(_child(name, count))
    time = {
        name: Figure(
            min(timing.cpu_s for timing, _ in samples) / count * 1e6,
            "µs",
            min(timing.wall_s for timing, _ in samples) / count * 1e6,
        )
        for name, samples in runs.items()
    }
    memory = {
        name: Figure(min(bytes_per_process for _, bytes_per_process in samples), "B") for name, samples in runs.items()
    }
    future, queue = "a task on a bare future", "a task on an asyncio.Queue"
    goal = (ratio_at_most(1),)
    return [
        Row(f"spawn one of {count}, till it waits", time["lyra"], future, time["future"], goal),
        Row(f"spawn one of {count}, till it waits", time["lyra"], queue, time["queue"], goal),
        Row("memory of a process at rest", memory["lyra"], future, memory["future"], goal),
        Row("memory of a process at rest", memory["lyra"], queue, memory["queue"], goal),
    ]
