"""Real SIGKILL: dozens at random, and one at the first, middle and last visit of every named point."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from lyra.core.faultpoint import POINTS
from lyra.kernel import Kernel
from lyra.store.sqlite import SqliteStore
from tests.cases import cases
from verify.crash import crash
from verify.crash import workload as errand
from verify.planted import Change, changed
from verify.simulation.scenes import POINTS_OF_PARTS, POINTS_OF_SHARDS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.mark.parametrize("count", [6, pytest.param(cases(60), marks=pytest.mark.long)])
def test_random_kills_lose_nothing_and_repeat_nothing(count):
    """Nothing acknowledged is lost, no finished effect happens again, no budget is exceeded over all lives; sums and
    results are exact, the store sound."""
    result = crash.random_kills(count, seed=1)
    assert result.failures == []
    assert result.kills >= count


def test_a_kill_at_every_named_point_first_middle_and_last():
    """There is no place in the kernel where dying does harm."""
    result = crash.point_kills()
    assert result.failures == []
    assert result.kills >= 2 * (len(POINTS) - len(POINTS_OF_PARTS) - len(POINTS_OF_SHARDS))
    assert result.open_s_max < crash.OPEN_S_MAX


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (  # Recovery forgets what was held for calls in flight.
            Change("lyra.kernel.recovery", "Recovery._charge_cut_off", "list(state.held)", "[]"),
            ("its budget allows", "micro-dollars for"),
        ),
        pytest.param(  # What was cut off is charged one life too late.
            Change(
                "lyra.kernel.journal.history",
                "end_cut_off",
                "_apply_finished(state, row, 0, 0.0)",
                "state.held.pop(key)",
            ),
            ("its budget allows",),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_kills_find_a_kernel_that_forgets_calls_in_flight(change, words):
    """Budgets are an invariant of the kill suite: a planted mistake in the books is found at the outside."""
    with changed([change]):
        failures = "\n".join(crash.random_kills(12, seed=3).failures)
    for word in words:
        assert word in failures


async def _hold(path, ready):
    async with Kernel(path):
        os.write(ready, b"1")
        await asyncio.sleep(60)


def test_the_store_of_a_killed_owner_opens_within_five_seconds(tmp_path):
    """The owner is killed with its lease still running; the next kernel does not wait for it to run out."""
    path = str(tmp_path / "run.db")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_hold(path, writer))
        finally:
            os._exit(0)
    os.read(reader, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    async def reopen():
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Kernel(path):
            return loop.time() - began

    assert asyncio.run(reopen()) < crash.OPEN_S_MAX
    os.close(reader)
    os.close(writer)


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """A workload that ran in peace: its store, its world's file, its results."""
    folder = tmp_path_factory.mktemp("errand")
    store, world = folder / "run.db", folder / "world.txt"
    results = asyncio.run(errand.live(store, world, durability="process", life=0, opened=lambda: None))
    return store, world, results


def _verdict(left_behind, lines=None, results=None):
    store, world, real = left_behind
    if lines is not None:
        changed = world.with_name("changed.txt")
        changed.write_text("\n".join(lines) + "\n")
        world = changed
    peace = crash.Calm(real, 0.0, {})
    return crash.verify(store, world, results if results is not None else real, peace)[0]


def test_the_verdict_on_an_undisturbed_run_is_clean(left_behind):
    assert _verdict(left_behind) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("act chief:1/0 pay 1", "performed 2 times"),
        ("act chief:0/0 read 0", "after its answer had been seen"),
        ("ack send 77", "is lost"),
        ("ack spawn absent", "is lost"),
        ("open 9.5", "an opening took"),
        ("act p999:0 buy money.0.99", "has bought 16 times, its budget allows 15"),
    ],
)
def test_the_verdict_sees_each_kind_of_harm(left_behind, line, word):
    """One line more in the world's file than there should be, and the harness says so."""
    _, world, _ = left_behind
    assert word in "\n".join(_verdict(left_behind, lines=[*world.read_text().splitlines(), line]))


def test_the_verdict_sees_other_results_and_wrong_sums(left_behind, tmp_path):
    store, world, results = left_behind
    assert "results differ" in "\n".join(_verdict(left_behind, results={**results, "chief": None}))
    copy = tmp_path / "copy.db"
    copy.write_bytes(store.read_bytes())
    damaged = SqliteStore(copy)
    lease = damaged.acquire("test", now=1e12, ttl_s=1.0)
    from lyra.kernel.journal import rows

    extra = rows.encode(rows.Finished("9/9", usage={"usd": 1}))
    damaged.append([(damaged.last_seq() + 1, 0.0, "chief", "effect.finished", extra)], lease.epoch)
    damaged.close()
    assert "micro-dollars" in "\n".join(_verdict((copy, world, results)))
