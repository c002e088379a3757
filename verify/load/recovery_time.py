"""How long a kernel takes to come back: one figure, measured on a real store.

`recovery(...)` lets a child process run many processes until its journal has so many rows, kills it without a
snapshot, and measures opening the store again: until `start()` returns, and until every process has replayed to
where it was. The goal is 100 000 events and 1 000 live processes in at most three seconds.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context

__all__ = ["RECOVERY_S_MAX", "Recovery", "recovery"]

RECOVERY_S_MAX: Final = 3.0


class Recovery(NamedTuple):
    events: int
    processes: int
    opened_s: float
    replayed_s: float

    @property
    def ok(self) -> bool:
        return self.opened_s <= RECOVERY_S_MAX


async def _step(number: int) -> int:
    return number


async def _long(ctx: Context, steps: int) -> None:
    for number in range(steps):
        await ctx.do(_step, number)
    await ctx.receive()


async def _fill(store: Path, *, processes: int, steps: int) -> None:
    async with Kernel(str(store), programs=[_long], snapshot_every_events=1 << 40) as kernel:
        handles = [kernel.spawn(_long, steps) for _ in range(processes)]
        while any(handle._process.receive_key is None for handle in handles):  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        await kernel.spawn(_long, 0, pid="last")
        os._exit(0)  # no close, so no snapshot: the whole journal has to be folded


def recovery(*, events: int = 100_000, processes: int = 1_000) -> Recovery:
    steps = max(1, events // (2 * processes))
    with tempfile.TemporaryDirectory(prefix="lyra-recovery-") as name:
        store = Path(name) / "run.db"
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(_fill(store, processes=processes, steps=steps))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if status != 0:
            raise RuntimeError("the journal to recover from could not be made")
        return asyncio.run(_open(store))


def _replaying(kernel: Kernel) -> bool:
    return any(process.replay is not None for process in kernel.processes.values())


async def _open(store: Path) -> Recovery:
    clock = SystemClock()
    began = clock.monotonic()
    kernel = Kernel(str(store), programs=[_long], snapshot_every_events=1 << 40)
    async with kernel:
        opened_s = clock.monotonic() - began
        while kernel.scheduler.ready or _replaying(kernel):  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0)
        replayed_s = clock.monotonic() - began
        assert kernel.journal is not None
        return Recovery(kernel.journal.seq, kernel.live, opened_s, replayed_s)
