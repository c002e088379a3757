"""Two kernels, one store: the second is refused, or takes over and fences the first."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from lyra.errors import Conflict, StoreError
from lyra.kernel import Kernel
from lyra.kernel.journal.lease import lives_here, owner_is_dead, owner_name
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from tests.kernel.conftest import pass_time, run, settle


async def forever(ctx):
    await ctx.receive()


async def act():
    return 1


async def acts(ctx):
    while True:
        await ctx.receive()
        await ctx.do(act)


def test_the_second_kernel_is_refused(path):
    """A live store belongs to one kernel; the second gets a StoreError that names the first, and nothing changes."""

    async def main():
        async with Kernel(path) as first:
            handle = await first.spawn(forever)
            with pytest.raises(StoreError, match="another kernel owns") as refused:
                await Kernel(path).start()
            assert isinstance(refused.value, Conflict)
            assert refused.value.hint
            await first.send(handle, "still mine")
        async with Kernel(path) as second:
            assert second.processes

    run(main())


def test_a_lease_that_ran_out_is_taken_over_and_the_first_is_fenced():
    """After the lease ends the store changes hands; whatever the first still tries to write is refused."""
    store = MemoryStore()

    async def main():
        clock = SimClock(1000.0)
        asleep = SimClock(1000.0)  # the first kernel's own clock: it sleeps and does not renew
        first = Kernel(store, asleep)
        await first.start()
        handle = await first.spawn(acts, pid="main")
        clock.advance(3.5)
        second = Kernel(store, clock, programs=[acts])
        await second.start()
        rows = store.last_seq()
        seen = []
        first.on_event(lambda event: seen.append(event.kind))
        with pytest.raises(Conflict):
            await first.send(handle, "too late")
        assert store.last_seq() == rows
        assert "store.fenced" in seen
        with pytest.raises(Conflict):
            first.spawn(forever)
        with pytest.raises(Conflict):
            await handle.wait()
        await second.send("main", "go")
        await settle(second)
        assert store.last_seq() > rows
        await first.close()
        await second.close()

    run(main())


def test_a_fenced_owner_notices_when_it_renews():
    """A kernel that lost its store while idle finds out at its next renewal."""
    store = MemoryStore()

    async def main():
        asleep, clock = SimClock(1000.0), SimClock(1010.0)
        first = Kernel(store, asleep)
        await first.start()
        handle = first.spawn(forever)
        waiting = asyncio.ensure_future(handle.wait())
        await settle(first)
        async with Kernel(store, clock):
            await pass_time(first, asleep, 2)
            with pytest.raises(Conflict):
                await waiting
        await first.close()

    run(main())


def test_an_idle_kernel_keeps_its_lease():
    """Renewal goes on without any work: a second kernel is refused long after the first lease would have ended."""
    store = MemoryStore()

    async def main():
        clock = SimClock(1000.0)
        async with Kernel(store, clock) as kernel:
            await pass_time(kernel, clock, 20)
            with pytest.raises(Conflict):
                await Kernel(store, clock).start()

    run(main())


def test_owners_are_recognised():
    """This process lives here; one that ended does not; one on another machine is neither."""
    me = owner_name("x")
    assert lives_here(me)
    assert not owner_is_dead(me)
    machine, pid, started, nonce = me.split("|")
    assert owner_is_dead("|".join((machine, pid, "1", nonce)))
    assert owner_is_dead("|".join((machine, "4194304", started, nonce)))
    elsewhere = "|".join(("elsewhere/x/y", pid, started, nonce))
    assert not lives_here(elsewhere)
    assert not owner_is_dead(elsewhere)
    for nonsense in ("", "a", "a|b|c|d", "a|-1|x"):
        assert not lives_here(nonsense)


def test_another_machines_lease_is_waited_for():
    """This machine cannot tell whether a far owner lives: its lease is waited for; if it is renewed, we are refused."""
    store = MemoryStore()

    async def main():
        clock = SimClock(1000.0)
        store.acquire("far|1|2|x", now=1000.0, ttl_s=3.0)
        opening = asyncio.ensure_future(Kernel(store, clock).start())
        for _ in range(40):
            await asyncio.sleep(0)
            clock.advance(0.1)
        await opening
        lease = store.acquire("far|1|2|x", now=2000.0, ttl_s=3.0)
        opening = asyncio.ensure_future(Kernel(store, SimClock(2000.0)).start())
        late = SimClock(2000.0)
        opening.cancel()
        opening = asyncio.ensure_future(Kernel(store, late).start())
        await asyncio.sleep(0)
        store.renew(lease, now=2001.0, ttl_s=3.0)
        for _ in range(5):
            await asyncio.sleep(0)
            late.advance(0.2)
        with pytest.raises(Conflict):
            await opening

    run(main())


def _waits(kernel: Kernel, clock: SimClock, seconds: float):
    """Open a kernel while its clock runs for so long."""

    async def opens():
        opening = asyncio.ensure_future(kernel.start())
        for _ in range(round(seconds * 20)):
            for _ in range(3):
                await asyncio.sleep(0)
            if opening.done():
                break
            clock.advance(0.05)
        else:
            opening.cancel()
        await opening

    return opens()


def test_who_waits_for_a_lease_says_so_and_gives_up(caplog):
    """A kernel that waits publishes whom it waits for and until when, logs it, and ends with a Conflict in time;
    how long it waits can be set."""
    store = MemoryStore()
    far = "far-host/boot/ns|4711|2|x"  # does not say how long it may go without renewing, as in earlier versions
    store.acquire(far, now=1000.0, ttl_s=1e6)
    for options, least_s in (({}, 10.0), ({"lease_s": 20.0}, 21.0), ({"lease_wait_s": 2.0}, 2.0)):
        caplog.clear()
        events = []

        async def main(options, least_s, events):
            clock = SimClock(1000.0)
            kernel = Kernel(store, clock, **options)
            kernel.on_event(lambda event: events.append((event.kind, dict(event.data))))
            with pytest.raises(Conflict, match="process 4711 on far-host") as refused:
                await _waits(kernel, clock, least_s + 1.0)
            assert least_s <= clock.monotonic() <= least_s + 0.5
            assert refused.value.fields["owner"] == far
            assert "lease_wait_s" in (refused.value.hint or "")
            facts = {"owner": far, "expires_at": 1001000.0, "wait_s": least_s, "location": "memory"}
            assert events == [("store.waiting", facts)]

        run(main(options, least_s, events))
        (line,) = [record.getMessage() for record in caplog.records if record.name == "lyra.kernel"]
        assert line == (
            "waiting for the lease of process 4711 on far-host on memory, which ends at 1970-01-12T14:03:20+00:00; "
            f"giving up after {least_s:g} s"
        )


def test_a_lease_that_ends_in_the_far_future_is_over_when_its_owner_does_not_renew():
    """Its clock was years ahead and it is gone with its machine: its name says how long it may go without
    renewing, and that is waited for, no longer."""
    store = MemoryStore()
    store.acquire("far-host/boot/ns|4711|2|x|5", now=1e9, ttl_s=5.0)

    async def main():
        clock = SimClock(1000.0)
        kernel = Kernel(store, clock)
        await _waits(kernel, clock, 9.0)
        assert 5.0 <= clock.monotonic() <= 5.5
        await kernel.close()

    run(main())


CHILD = """
import asyncio, sys
from lyra.kernel import Kernel
async def ticks(ctx):
    while True:
        await ctx.sleep(0.01)
async def main():
    async with Kernel(sys.argv[1]) as kernel:
        await kernel.spawn(ticks, pid="main")
        print("up", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def _child(path: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def _end(child: subprocess.Popen[str]) -> str:
    child.kill()
    _, stderr = child.communicate()
    return stderr


def test_after_kill_9_the_store_opens_at_once(path):
    """The owner was killed: the next kernel opens within 5 s (here the system tells at once)."""
    child = _child(path)
    try:

        async def main():
            with pytest.raises(StoreError, match="another kernel owns"):
                await Kernel(path).start()
            os.kill(child.pid, signal.SIGKILL)
            begun = time.monotonic()
            while True:
                try:
                    async with Kernel(path) as kernel:
                        assert "main" in kernel.processes
                        break
                except StoreError:
                    assert time.monotonic() - begun < 5
                    await asyncio.sleep(0.01)
            assert time.monotonic() - begun < 5

        run(main())
    finally:
        _end(child)


@pytest.mark.slow
def test_a_paused_owner_is_fenced_when_it_wakes(path):
    """SIGSTOP the owner past its lease, take over, SIGCONT: it may not write another row."""
    child = _child(path)
    try:

        async def main():
            os.kill(child.pid, signal.SIGSTOP)
            begun = time.monotonic()
            while True:
                try:
                    kernel = Kernel(path)
                    await kernel.start()
                    break
                except StoreError:
                    assert time.monotonic() - begun < 6
                    await asyncio.sleep(0.05)
            rows = kernel.journal.store.last_seq()
            os.kill(child.pid, signal.SIGCONT)
            await asyncio.sleep(0.5)
            assert kernel.journal.store.last_seq() == rows
            assert kernel.failure is None
            await kernel.close()

        run(main())
    finally:
        _end(child)
