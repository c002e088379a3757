"""Schedules: each due time starts one process, whatever is killed, moved or set to another time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from lyra.core import codec
from lyra.errors import ConfigError
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.kernel.remote.schedules import list_firings, make_entry, make_pid
from tests.kernel.remote.wired import Killer, Shards, run_shards

START = 1_000_000.0  # of the virtual clock: 13:46:40


async def works(ctx: Context, word: str = "") -> str:
    return f"{word} {ctx.pid}"


async def loads_late(ctx: Context) -> str:
    return ctx.pid


PROGRAMS = (works,)


def created(shards: Shards, name: str) -> list[str]:
    """Pids of the processes that a schedule has made, one for each row that says so, in all stores."""
    rows = [row for store in shards.stores.values() for row in store.read(kind="process.created")]
    return sorted(pid for _, _, pid, _, _ in rows if pid.startswith(f"{name}@"))


def due_pids(name: str, first: int, last: int, every: int) -> list[str]:
    start = first - first % -every
    return sorted(make_pid(name, due) for due in range(start, last + 1, every))


@pytest.mark.parametrize("place", [None, "a", "c"])
def test_a_program_starts_at_each_due_time(place):
    """An interval starts the program once each time, on the home shard or the one that is named, with its arguments."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            name = shards.named("a")
            await shards["b"].schedules.add(name, works, "word", every_s=30, shard=place)
            await asyncio.sleep(100)
            await shards.settle()
            expected = due_pids(name, int(START) + 1, int(START) + 100, 30)
            assert created(shards, name) == expected
            assert len(expected) == 3
            kernel = shards[place or "a"]
            assert (await kernel.process(expected[0]).wait()).result == f"word {expected[0]}"
            (row,) = shards["a"].schedules.list_kept()
            assert (row["name"], row["fired"], row["shard"], row["home"]) == (name, 3, place or "a", "a")
            assert row["next_due"] - row["last_due"] == 30
            noted = [codec.decode(row.data)["data"] for row in shards.stores["a"].read(kind="remote.noted")]
            settled = [fact["due"] for fact in noted if "settled" in fact]
            assert sorted(make_pid(name, due) for due in settled) == expected
            await shards["c"].schedules.remove(name)
            await asyncio.sleep(100)
            assert created(shards, name) == expected
            assert shards["a"].schedules.list_kept() == []

    run_shards(main)


def test_once_and_by_cron():
    """`at` starts a program once and is forgotten; fields of cron are read in UTC."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            kernel = shards["a"]
            kernel.schedules.add("once", works, at=datetime.fromtimestamp(START + 20, UTC))
            kernel.schedules.add("late", works, at=START - 500)
            kernel.schedules.add("cron", works, cron="*/5 14 * * *")
            await asyncio.sleep(3600)
            await shards.settle()
            assert created(shards, "once") == ["once@1970-01-12T13:47:00Z"]
            assert created(shards, "late") == ["late@1970-01-12T13:38:20Z"]
            assert created(shards, "cron") == [f"cron@1970-01-12T14:{minute:02}:00Z" for minute in range(0, 46, 5)]
            kept = [row["name"] for shard in shards.kernels.values() for row in shard.schedules.list_kept()]
            assert kept == ["cron"]

    run_shards(main, limit_s=10_000)


def test_the_same_definition_again_changes_nothing():
    """A program that makes its schedules at each start keeps their place; another definition replaces the first."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            for _ in range(3):
                await shards["b"].schedules.add(name, works, every_s=30)
                await asyncio.sleep(29)
            await shards.settle()
            (row,) = shards["a"].schedules.list_kept()
            assert row["fired"] == len(created(shards, name)) == 3
            assert row["since"] < START + 1
            await shards["a"].schedules.add(name, works, every_s=40)
            (row,) = shards["a"].schedules.list_kept()
            assert (row["every_s"], row["fired"]) == (40, 0)

    run_shards(main)


def test_what_is_no_schedule_is_refused():
    """A time that is none, two times, an unknown shard and a kernel in no cluster are told."""

    async def main() -> None:
        async with Shards("a", programs=PROGRAMS) as shards:
            add = shards["a"].schedules.add
            for wrong in (
                {},
                {"every_s": 1, "at": 5.0},
                {"every_s": 0.5},
                {"cron": "61 * * * *"},
                {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - in no zone
                {"often": 1},
                {"every_s": 5, "missed": "never"},
                {"every_s": 5, "shard": "z"},
            ):
                with pytest.raises(ConfigError):
                    add("job", works, **wrong)
            with pytest.raises(ConfigError):
                add("x" * 250, works, every_s=5)
        async with Kernel() as kernel:
            with pytest.raises(ConfigError, match="in none"):
                kernel.schedules  # noqa: B018

    run_shards(main)


@pytest.mark.parametrize(("missed", "made"), [("once", [300]), ("skip", []), ("all", [60, 120, 180, 240, 300])])
def test_missed_firings(missed, made):
    """What was due while the shard was open nowhere is made up for as the schedule says, and then it goes on."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            zero = int(START) - int(START) % 60
            await shards["a"].schedules.add(name, works, every_s=60, missed=missed)
            await asyncio.sleep(zero + 10 - START if zero + 10 > START else 0)
            zero = int(shards.clock.now()) // 60 * 60
            shards.kill("a")
            await asyncio.sleep(zero + 330 - shards.clock.now())
            await shards.reopen("a")
            await asyncio.sleep(1)
            assert created(shards, name) == sorted(make_pid(name, zero + after) for after in made)
            await asyncio.sleep(60)
            assert created(shards, name) == sorted(make_pid(name, zero + after) for after in [*made, 360])

    run_shards(main, limit_s=2000)


@pytest.mark.parametrize("missed", ["once", "skip"])
def test_a_take_over_is_no_miss(missed):
    """A firing that is due while a shard moves is made when it is open again, a few seconds late."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            await shards["a"].schedules.add(name, works, every_s=60, missed=missed)
            zero = int(shards.clock.now()) // 60 * 60 + 60
            await asyncio.sleep(zero - 1 - shards.clock.now())
            shards.kill("a")
            await asyncio.sleep(5)
            await shards.reopen("a")
            await asyncio.sleep(1)
            assert created(shards, name) == [make_pid(name, zero)]

    run_shards(main)


def test_many_missed_firings_are_bounded():
    """A year of seconds costs a thousand starts, and no more work than that."""
    entry = {**make_entry("works", (), {"every_s": 1}, missed="all"), "last": START}
    firings = list_firings(entry, START + 365 * 86_400)
    assert len(firings) == 1_000
    assert firings[-1] == (START + 365 * 86_400, True)
    assert firings == sorted(firings)


def test_clocks_apart_fire_nothing_twice():
    """A shard moves between machines whose clocks are a minute ahead and behind: each due time starts one process at
    most, and with the clock right again the schedule goes on."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            await shards["a"].schedules.add(name, works, every_s=10, shard="b")
            for apart_s in (60.0, -60.0, 0.0, -60.0, 60.0, 0.0):
                await shards.reopen("a", apart_s=apart_s)
                await asyncio.sleep(45)
            await asyncio.sleep(120)
            await shards.settle()
            pids = created(shards, name)
            assert len(pids) == len(set(pids))
            last = int(shards.clock.now()) // 10 * 10
            assert set(due_pids(name, last - 50, last, 10)) <= set(pids)

    run_shards(main, limit_s=5000)


def test_a_clock_that_jumps_changes_nothing():
    """The wall clock of the machine is set back by an hour, then forward: firings go on by the time of rows."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            await shards["a"].schedules.add(name, works, every_s=10)
            for jump_s in (-3600.0, 7200.0, -3600.0):
                shards.clock._offset += jump_s
                await asyncio.sleep(30)
            assert created(shards, name) == due_pids(name, int(START) + 1, int(START) + 90, 10)

    run_shards(main)


def test_a_program_that_is_not_known_yet_is_waited_for():
    """A firing whose program the shard does not know is made once it does; until then the list says why."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            name = shards.named("a")
            word = "tests.kernel.remote.test_schedules:loads_late"
            await shards["b"].schedules.add(name, word, every_s=60)
            await asyncio.sleep(65)
            (row,) = shards["a"].schedules.list_kept()
            assert word in row["problem"]
            assert row["fired"] == 0
            shards["a"].register(loads_late)
            await asyncio.sleep(2)
            (row,) = shards["a"].schedules.list_kept()
            assert (row["problem"], row["fired"], len(created(shards, name))) == ("", 1, 1)

    run_shards(main)


@pytest.mark.parametrize("place", [None, "b"])
def test_rights_and_marks_of_the_maker_bind_what_it_schedules(place):
    """A program that may do little, and has read text from outside, schedules one that may not do more."""

    async def plans(ctx: Context) -> None:
        kernel = ctx.own_process.core.face
        kernel.taint.mark(ctx.pid, "a page")

        async def act() -> None:
            kernel.schedules.add("job", works, every_s=30, shard=place)

        await ctx.do(act)

    async def main() -> None:
        async with Shards("a", "b", programs=(works, plans)) as shards:
            grant = {"allow": ["process.spawn", "fs.read:/tmp"]}
            assert (await shards["a"].spawn(plans, grant=grant).wait()).reason == "normal"
            await asyncio.sleep(61)
            await shards.settle()
            pid = created(shards, "job")[0]
            kernel = shards[place or shards.home_of("job")]
            assert not kernel.processes[pid].grant.is_all
            assert kernel.taint.is_tainted(pid)

    run_shards(main)


@pytest.mark.parametrize(("victim", "place"), [("a", "a"), ("a", "b"), ("b", "b")])
def test_each_firing_starts_one_process_whatever_is_killed(victim, place):
    """The home shard, or the one that runs the program, is killed at any point between two steps: each due time has one
    process all the same."""

    async def fire(at: int) -> int:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            name = shards.named("a")
            killer = Killer(shards, victim, at)
            await shards["a"].schedules.add(name, works, "x", every_s=10, shard=place, missed="all")
            begun = int(shards.clock.now())
            with killer.armed():
                await asyncio.sleep(35)
            await killer.bring_back()
            await asyncio.sleep(40)
            await shards.settle()
            assert created(shards, name) == due_pids(name, begun + 1, int(shards.clock.now()), 10), at
            ends = [row for store in shards.stores.values() for row in store.read(kind="process.terminated")]
            assert len(ends) == len({row[2] for row in ends}) == len(created(shards, name))
            assert all(codec.decode(row[4])["reason"] == "normal" for row in ends)
            return at - killer.left

    async def main() -> None:
        visited: Any = await fire(1_000_000)
        assert visited > 10
        for at in range(1, visited):
            await fire(at)

    run_shards(main, limit_s=1_000_000)
