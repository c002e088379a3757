"""An owner that was paused for longer than its lease performs nothing once it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from lyra.errors import Conflict
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from tests.kernel.conftest import run, settle
from tests.kernel.journal import busy_owner
from tests.kernel.journal.busy_owner import EFFECTS, LEASE_S, PROCESSES, notes, works
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures

_CHILD = "from tests.kernel.journal.busy_owner import main; main()"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    return str(tmp_path / "run.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def _start(place: str, file: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, place, file, "first"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


async def _take_over(place: str) -> Kernel:
    """The second owner, once the lease of the first is over."""
    begun_s = time.monotonic()
    while True:
        kernel = Kernel(place, programs=[works], lease_s=LEASE_S)
        try:
            await kernel.start()
            return kernel
        except Conflict:
            assert time.monotonic() - begun_s < 20
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_a_paused_owner_performs_nothing_when_it_wakes(place, tmp_path):
    """SIGSTOP with effects in flight, a take-over that finishes everything, SIGCONT: not one effect begins, and not one
    row is written."""
    file = tmp_path / "world"
    child = _start(place, str(file))
    try:

        async def main():
            while len(notes(file, "begun", "first")) < 2 * PROCESSES:
                await asyncio.sleep(0.01)
            os.kill(child.pid, signal.SIGSTOP)
            await asyncio.sleep(0.05)
            begun, ended = notes(file, "begun", "first"), notes(file, "ended", "first")
            in_flight = set(begun) - set(ended)
            assert in_flight
            assert len(begun) < PROCESSES * EFFECTS
            busy_owner.use(str(file), "second")
            kernel = await _take_over(place)
            for number in range(PROCESSES):
                assert (await kernel.process(f"w{number}").wait()).result == sum(range(EFFECTS))
            rows = kernel.journal.durable_seq
            os.kill(child.pid, signal.SIGCONT)
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "fenced conflict\n"
            await asyncio.sleep(0.3)
            assert notes(file, "begun", "first") == begun
            assert (kernel.journal.durable_seq, kernel.failure) == (rows, None)
            again = notes(file, "begun", "second")
            assert len(set(again)) == len(again)
            twice = [key.rpartition(":")[0] for key in again if key in begun]
            assert len(set(twice)) == len(twice)  # of each process the one that was in flight, at most
            await kernel.close()

        asyncio.run(asyncio.wait_for(main(), 90))
    finally:
        child.kill()
        child.communicate()


async def _acts(ctx):
    while True:
        await ctx.receive()
        await ctx.do(_note_act, idempotent=True)


performed: list[str] = []


async def _note_act():
    performed.append("act")


def test_the_door_asks_the_lease_before_anything_runs():
    """A kernel whose lease ran out while it slept renews first: what another kernel owns by then, it does not touch;
    what is still its own goes on."""
    store = MemoryStore()

    async def main():
        performed.clear()
        clock, asleep = SimClock(1000.0), SimClock(1000.0)
        first = Kernel(store, asleep)
        await first.start()
        await first.spawn(_acts, pid="main")
        await first.send("main", "go")
        await settle(first)
        assert len(performed) == 1
        asleep.stall(10.0)  # late, and no other kernel came
        await first.send("main", "go")
        await settle(first)
        assert len(performed) == 2
        clock.advance(30.0)
        second = Kernel(store, clock, programs=[])
        await second.start()
        first.processes["main"].inbox.append((0, "go"))
        asleep.stall(10.0)
        first.processes["main"].wake()
        await settle(first)
        assert len(performed) == 2
        assert isinstance(first.failure, Conflict)
        await second.close()
        await first.close()

    run(main())
