"""Kernels on PostgreSQL: leases by the server's clock, and a server that restarts in the middle of a run."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from lyra import Effect
from lyra.core.clock import SystemClock
from lyra.errors import Conflict
from lyra.kernel import Kernel
from lyra.kernel.journal import lease as lease_module
from lyra.store.postgres import PostgresStore
from tests.kernel.conftest import run
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures
from verify.servers import PostgresServer

LEASE_S = 1.0


class SkewedClock(SystemClock):
    """The machine's clock, set wrong by so many seconds."""

    __slots__ = ("_skew_s",)

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s

    def now(self) -> float:
        return SystemClock.now() + self._skew_s


async def forever(ctx):
    await ctx.receive()


def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are opened from now on run on another machine, as far as the others can tell."""
    monkeypatch.setattr(lease_module, "_machine", lambda: "far/boot/pid")


async def _die(kernel: Kernel) -> None:
    """End a kernel as a power cut would: its lease stays."""
    kernel._opening.ownership.lease = None
    await kernel.close(drain_s=0.0)


@pytest.mark.parametrize("skew_s", [60.0, -60.0])
def test_a_lease_is_neither_stolen_nor_kept_by_a_wrong_clock(postgres_url, monkeypatch, skew_s):  # noqa: F811
    """Owner and contender have clocks two minutes apart, either way: the lease that is held stays held, and that of
    a dead owner is over after its time."""

    async def main():
        with monkeypatch.context() as patch:
            _elsewhere(patch)
            owner = Kernel(postgres_url, SkewedClock(-skew_s), lease_s=LEASE_S)
            await owner.start()
        store = PostgresStore(postgres_url)
        assert abs(store.holder().expires_at - store.clock_s()) < 20.0  # a clock of the kernels would be a minute off
        with pytest.raises(Conflict, match="another kernel owns"):
            await Kernel(postgres_url, SkewedClock(skew_s), lease_s=LEASE_S).start()
        await owner.spawn(forever, pid="main")  # undisturbed
        await _die(owner)
        contender = Kernel(postgres_url, SkewedClock(skew_s), lease_s=LEASE_S, programs=[forever])
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await contender.start()
        assert loop.time() - began_s < LEASE_S + 5.0
        assert "main" in contender.processes
        await contender.close()
        store.close()

    run(main())


def test_a_lease_is_over_when_the_server_says_so(postgres_url):  # noqa: F811
    """The server's clock alone decides between two stores that pass no time of their own."""
    first, second = PostgresStore(postgres_url), PostgresStore(postgres_url)
    held = first.acquire("one", now=None, ttl_s=30.0)
    with pytest.raises(Conflict):
        second.acquire("two", now=None, ttl_s=30.0)
    lease = first.renew(held, now=None, ttl_s=0.0)
    assert second.acquire("two", now=None, ttl_s=30.0).epoch == lease.epoch + 1
    first.close()
    second.close()


# ---------------------------------------------------------------- a server that restarts

PROCESSES, EFFECTS, EFFECT_S = 20, 20, 0.05


class World:
    def __init__(self) -> None:
        self.performed: Counter[str] = Counter()

    async def act(self, number: int, idempotency_key: str) -> list[int]:
        self.performed[idempotency_key] += 1
        await asyncio.sleep(EFFECT_S)
        return [number] * (1 if number % 7 else 20_000)  # every seventh answer goes beside the journal


@pytest.mark.slow
@pytest.mark.parametrize("outage_s", [0.0, 2.5 * LEASE_S], ids=["short", "longer than the lease"])
def test_a_server_that_restarts_is_survived(outage_s, caplog):
    """The server crashes and comes back in the middle of a run: every program ends as if nothing had been, every effect
    is performed once, every row is there, and a message sent meanwhile arrives."""
    caplog.set_level(logging.WARNING, logger="lyra.store")
    world = World()
    act = Effect(world.act, name="act", idempotent=False)

    async def works(ctx):
        return sum([len(await ctx.do(act, number)) for number in range(EFFECTS)])

    async def main(server: PostgresServer):
        url = f"{server.url}&schema=restarts"
        async with Kernel(url, programs=[works, forever], lease_s=LEASE_S) as kernel:
            failures = []
            kernel.on_event(lambda event: failures.append(event.kind) if event.kind.startswith("store.") else None)
            handles = [await kernel.spawn(works, pid=f"w{number}") for number in range(PROCESSES)]
            listener = await kernel.spawn(forever, pid="listener")
            while sum(world.performed.values()) < PROCESSES * EFFECTS / 3:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.halt)
            sending = asyncio.ensure_future(kernel.send(listener, "hello"))
            await asyncio.sleep(outage_s)
            await asyncio.to_thread(server.resume)
            await sending
            results = [(await handle.wait()).result for handle in handles]
            assert results == [EFFECTS - 3 + 3 * 20_000] * PROCESSES
            await listener.wait()
            assert (kernel.failure, failures) == (None, [])
        assert set(world.performed.values()) == {1}
        assert len(world.performed) == PROCESSES * EFFECTS
        store = PostgresStore(url)
        assert store.check() == []
        finished = [record for record in store.read() if record.kind == "effect.finished"]
        assert len(finished) == PROCESSES * EFFECTS
        store.close()

    with PostgresServer(fsync=True) as server:
        asyncio.run(asyncio.wait_for(main(server), 120))
    assert any("connecting again" in record.getMessage() for record in caplog.records)


def test_a_server_that_stays_away_ends_the_wait(monkeypatch):
    """After a while the kernel gives up and says that the server did not come back."""
    monkeypatch.setattr("lyra.store.postgres.STORE_RECONNECT_S", 0.3)

    async def main(server: PostgresServer):
        kernel = Kernel(server.url)
        await kernel.start()
        await asyncio.to_thread(server.halt)
        with pytest.raises(Exception, match=r"did not come back within 0\.3 s"):
            await kernel.spawn(forever)
        await kernel.close()

    with PostgresServer() as server:
        asyncio.run(asyncio.wait_for(main(server), 60))
        server.resume()


def test_an_append_whose_answer_was_lost_is_not_made_twice(postgres_url, monkeypatch):  # noqa: F811
    """The commit arrived and its answer did not: the rows are found. Rows that did not arrive are sent again."""
    from lyra.testing.conformance import records

    store = PostgresStore(postgres_url)
    epoch = store.acquire("me", now=None, ttl_s=30.0).epoch
    change = store._change
    breaks = iter([True, False, False, True, False])

    def lose_the_answer(statement, values):
        if b"INSERT INTO journal" not in statement or not next(breaks):
            return change(statement, values)
        if values[-1] == 0:
            change(statement, values)  # arrives
        store._connection.close()
        return change(b"SELECT 1", ())

    monkeypatch.setattr(store, "_change", lose_the_answer)
    store.append(records(1, 3), epoch)
    store.append(records(4, 2), epoch)
    store.append(records(6, 2), epoch)
    assert list(store.read()) == records(1, 7)
    store.close()
