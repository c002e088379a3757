"""What the kernel's tests share: a place for a store, and a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lyra.core.naming import OLD_NAMES, find_thing
from lyra.kernel import Kernel
from lyra.testing.clock import SimClock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


@pytest.fixture
def clock() -> SimClock:
    return SimClock(1_000.0)


@pytest.fixture(params=["memory", "journal"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same promise with and without a journal."""
    return "memory" if request.param == "memory" else str(tmp_path / "run.db")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


async def settle(kernel: Kernel) -> None:
    """Let everything that can run, run."""
    for _ in range(20):
        await asyncio.sleep(0)
        if not kernel.scheduler.ready and not (kernel.journal is not None and kernel.journal.pending):
            await asyncio.sleep(0)


async def pass_time(kernel: Kernel, clock: SimClock, seconds: float, *, step_s: float = 0.5) -> None:
    """Move the clock in steps, letting the kernel work in between."""
    left_s = seconds
    while left_s > 0:
        await settle(kernel)
        clock.advance(min(step_s, left_s))
        left_s -= step_s
    await settle(kernel)


@contextmanager
def an_earlier_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lyra's own functions and classes have the names that earlier versions wrote."""
    with monkeypatch.context() as patch:
        for name, (old, *_) in ((name, olds) for name, olds in OLD_NAMES.items() if olds):
            thing = find_thing(name)
            if thing is not None:
                patch.setattr(thing, "__lyra_name__", old)
        yield


class Crash:
    """A kernel that dies without a word: nothing is flushed, released or closed."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    async def __aenter__(self) -> Kernel:
        await self.kernel.start()
        return self.kernel

    async def __aexit__(self, *_: object) -> None:
        crash(self.kernel)


def crash(kernel: Kernel) -> None:
    """As after kill -9: what was not committed is gone, the lease is left behind (its owner is found dead)."""
    kernel.core.stopping = True
    kernel.scheduler.stopped = True
    journal = kernel.journal
    assert journal is not None
    journal.frozen = True
    for process in kernel.processes.values():
        if process.coroutine is not None:
            process.coroutine.close()
    journal.store.release(kernel._opening.ownership.lease)  # type: ignore[arg-type]
    journal.store.close()
