"""Budgets that processes on several shards spend from."""

from __future__ import annotations

import asyncio
import gc
import random
from types import SimpleNamespace
from typing import Any

import pytest

from lyra.cluster.calls import answer_call
from lyra.core import codec
from lyra.core.budgets.budget import Usage
from lyra.core.effect import effect
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.core.naming import get_qualified_name
from lyra.errors import BudgetExceeded, NameTaken, Overloaded, ProcessError
from lyra.kernel.journal.history import Fold
from lyra.testing import run_in_virtual_time
from tests.kernel.remote.budget_shards import Provider, Shards

PROVIDER = Provider()


@effect(idempotent=True)
async def charge(who: str, cost: int) -> int:
    return await PROVIDER.charge(who, cost)


async def spend(ctx, who, costs, most):
    """Spend until the budget is over; gives how often that went well."""
    done = 0
    for number in range(most):
        cost = costs[number % len(costs)]
        try:
            await ctx.do(charge, who, cost, cost=Usage(usd=cost, tool_calls=1))
        except BudgetExceeded:
            break
        done += 1
    return done


async def spend_abroad(ctx, shards, costs, most):
    children = [ctx.spawn(spend, shard, costs, most, shard=shard) for shard in shards]
    return [(await child.wait()).result for child in children]


async def spend_in_turn(ctx, shards, costs, most):
    """Spend here, and have the next shard spend beside it, and the next one beside that."""
    child = ctx.spawn(spend_in_turn, shards[1:], costs, most, shard=shards[0]) if shards else None
    done = await spend(ctx, f"before {len(shards)}", costs, most)
    return done + (0 if child is None else (await child.wait()).result)


PROGRAMS: list[Any] = [spend, spend_abroad, spend_in_turn]


def begin(takes_s: float = 0.0) -> Provider:
    global PROVIDER
    PROVIDER = Provider(takes_s)
    return PROVIDER


def test_children_abroad_spend_the_budget_of_their_parent_and_no_more():
    """All of the limit is spent, and the parent's own figures say so when the loans are over."""
    provider = begin()

    async def main():
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            kernel = shards.kernels["a"]
            parent = kernel.spawn(spend_abroad, ["b", "c"], [10], 1_000, budget={"usd": 2_000})
            ended = await parent.wait()
            await shards.until(lambda: not shards.outstanding())
            return ended.result, kernel.processes[parent.pid]

    (one, two), parent = run_in_virtual_time(main())
    assert one + two == 200
    assert provider.spent == 2_000
    assert parent.budget.usage == parent.spent == Usage(usd=2_000, tool_calls=200)
    assert parent.budget.reserved("usd") == 0


def test_what_was_lent_is_known_beside_what_was_spent():
    """Spent without lent, over all processes of all shards, is what was performed: from the rows and a snapshot."""
    provider = begin()

    def count(states):
        return sum(state.spent.get("usd", 0) - (state.lent or {}).get("usd", 0) for state in states)

    async def lead(ctx):
        await (await ctx.spawn(spend_abroad, ["b", "c"], [10], 30)).wait()
        await ctx.do(charge, "lead", 5, cost=Usage(usd=5))
        await ctx.receive()

    async def main():
        async with Shards("a", "b", "c", programs=[*PROGRAMS, lead]) as shards:
            kernel = shards.kernels["a"]
            parent = kernel.spawn(lead, pid="lead", budget={"usd": 2_000})
            await shards.until(lambda: kernel.processes[parent.pid].spent.micro_usd == 605)
            await kernel.durable()
            sums = []
            for store in shards.stores.values():
                fold = Fold()
                fold.add_all(store.read())
                sums.append(count(fold.processes.values()))
                states = {pid: data for pid, data in fold.dump().items() if data is not None}
                assert count(Fold.load(fold.seq, states).processes.values()) == sums[-1]
            return sums

    sums = run_in_virtual_time(main())
    assert provider.spent == 605
    assert sums == [5, 300, 300]


def test_four_shards_spend_one_budget_with_few_trips():
    """20 000 effects at the limit: never above it, at least 99 % of it spent, at most one trip in 20 effects."""
    provider = begin()
    effects = 20_000

    async def main():
        async with Shards("home", "a", "b", "c", "d", programs=PROGRAMS) as shards:
            handle = shards.kernels["home"].spawn(
                spend_abroad, ["a", "b", "c", "d"], [7], effects, budget={"usd": 7 * effects, "tool_calls": 2 * effects}
            )
            ended = await handle.wait()
            await shards.until(lambda: not shards.outstanding())
            return sum(ended.result), shards.told

    done, told = run_in_virtual_time(main())
    trips = told["budget.ask"] + told["budget.call"]
    print(f"{done} effects, {trips} trips: {dict(told)}")
    assert done == sum(provider.performed.values()) <= effects
    assert done >= 0.99 * effects
    assert trips <= effects / 20


def test_each_dimension_is_lent_and_each_holds():
    """Calls run out before money: the limit that is met first holds over all shards."""
    begin()

    async def main():
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            budget = {"usd": 10_000, "tool_calls": 101}
            handle = shards.kernels["a"].spawn(spend_abroad, ["b", "c"], [10, 20], 1_000, budget=budget)
            return sum((await handle.wait()).result)

    assert run_in_virtual_time(main()) == 101


def test_a_borrower_lends_on():
    """A chain of four shards: each spends, and starts the next, inside one budget."""
    provider = begin()

    async def main():
        async with Shards("a", "b", "c", "d", programs=PROGRAMS) as shards:
            handle = shards.kernels["a"].spawn(spend_in_turn, ["b", "c", "d"], [10, 30], 1_000, budget={"usd": 30_000})
            ended = await handle.wait()
            await shards.until(lambda: not shards.outstanding())
            return ended.result, shards.kernels["a"].processes[handle.pid]

    _, parent = run_in_virtual_time(main())
    assert 30_000 - 30 < provider.spent <= 30_000
    assert parent.spent.usd == provider.spent


async def spend_with_limit(ctx, limit):
    child = ctx.spawn(spend, "child", [10], 1_000, shard="b", budget=limit)
    return (await child.wait()).result


async def wait_with_seconds(ctx, seconds):
    child = ctx.spawn(sleep_long, shard="b", **({} if seconds is None else {"budget": {"seconds": seconds}}))
    return (await child.wait()).reason


async def sleep_long(ctx):
    await ctx.sleep(1_000)


PROGRAMS += [spend_with_limit, wait_with_seconds, sleep_long]


@pytest.mark.parametrize(
    ("own", "limit", "expected"),
    [
        ({"usd": 300}, {"usd": 200}, 20),
        ({"usd": 300}, {"usd": 900}, 30),
        ({"tool_calls": 7}, {"usd": 200}, 7),
        (None, {"usd": 200}, 20),
        ({"usd": 300}, {"usd": 200, "on_exceed": "warn"}, 30),
        ({"usd": 300, "on_exceed": "warn"}, {"usd": 200}, 20),
        ({"usd": 0}, None, 0),
    ],
)
def test_a_budget_of_a_child_abroad_lies_inside_that_of_its_parent(own, limit, expected):
    begin()

    async def main():
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            return (await shards.kernels["a"].spawn(spend_with_limit, limit, budget=own).wait()).result

    assert run_in_virtual_time(main()) == expected


@pytest.mark.parametrize(("parents", "own"), [(20, None), (None, 20), (20, 50)])
def test_seconds_travel_too(parents, own):
    """The deadline of the parent's budget, or the child's own, ends the child."""

    async def main():
        loop = asyncio.get_running_loop()
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            budget = None if parents is None else {"seconds": parents}
            shards.kernels["a"].spawn(wait_with_seconds, own, budget=budget)
            kernel = shards.kernels["b"]
            await shards.until(lambda: kernel.live == 1)
            began = loop.time()
            await shards.until(lambda: kernel.live == 0)
            return loop.time() - began

    assert 19 <= run_in_virtual_time(main()) <= 26


def test_seconds_hold_without_the_parents_shard():
    """The deadline is the child's own: it ends in time although the shard of its parent is gone."""

    async def main():
        loop = asyncio.get_running_loop()
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            shards.kernels["a"].spawn(wait_with_seconds, None, budget={"seconds": 20})
            await shards.until(lambda: shards.kernels["b"].live == 1)
            began = loop.time()
            shards.crash("a")
            await shards.until(lambda: shards.kernels["b"].live == 0)
            return loop.time() - began

    assert 19 <= run_in_virtual_time(main()) <= 26


def test_a_parent_that_has_ended_still_lends_after_snapshots_and_a_restart(monkeypatch):
    """A child spends on in the budget of a parent that ended, whose state a snapshot would put away."""
    monkeypatch.setattr("lyra.kernel.journal.snapshots._ENDED_KEPT", 0)
    provider = begin(0.01)

    async def leave_alone(ctx):
        ctx.spawn(spend, "b", [10], 1_000, shard="b")

    async def main():
        programs = [*PROGRAMS, leave_alone]
        async with Shards("a", "b", programs=programs, lease_s=5.0, snapshot_every_events=5) as shards:
            shards.kernels["a"].spawn(leave_alone, budget={"usd": 1_000})
            for performed in (20, 50):
                while sum(provider.performed.values()) <= performed:
                    await asyncio.sleep(0.05)
                await shards.kernels["a"]._snapshots.write()
                shards.crash("a")
                await shards.open("a")
            await shards.until(lambda: not shards.outstanding())

    run_in_virtual_time(main())
    assert provider.spent == 1_000


def test_a_parent_that_finds_no_room_calls_back_what_its_children_do_not_use():
    """The unused portion of a child that waits is the parent's again, and a child's of another child."""
    begin()

    async def hold_and_spend(ctx):
        ctx.spawn(sleep_long, shard="b")
        ctx.spawn(sleep_long, shard="c")
        return await spend(ctx, "parent", [10], 1_000)

    async def main():
        async with Shards("a", "b", "c", programs=[*PROGRAMS, hold_and_spend]) as shards:
            result = (await shards.kernels["a"].spawn(hold_and_spend, budget={"usd": 1_000}).wait()).result
            return result, shards.told["budget.call"]

    assert run_in_virtual_time(main()) == (100, 2)


def test_what_a_child_did_not_use_is_its_parents_again_when_it_ends():
    """Children end with most of their portions unused; the parent spends all that is left."""
    begin()

    async def spend_little_and_the_rest(ctx):
        children = [ctx.spawn(spend, shard, [10], 3, shard=shard) for shard in ("b", "c")]
        for child in children:
            await child.wait()
        return await spend(ctx, "parent", [10], 1_000)

    async def main():
        async with Shards("a", "b", "c", programs=[*PROGRAMS, spend_little_and_the_rest]) as shards:
            handle = shards.kernels["a"].spawn(spend_little_and_the_rest, budget={"usd": 1_000})
            rest = (await handle.wait()).result
            await shards.until(lambda: not shards.outstanding())
            return rest, shards.told["budget.call"]

    assert run_in_virtual_time(main()) == (94, 0)


def test_a_portion_that_comes_when_its_process_has_ended_goes_back():
    """A child is killed while it waits for a portion, which is on its way: the parent gets that back, too."""
    provider = begin()

    async def main():
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            handle = shards.kernels["a"].spawn(spend_abroad, ["b"], [10], 1_000, budget={"usd": 1_000})

            async def slow(_sender: str, _to: str) -> None:
                await asyncio.sleep(1.0)

            shards.before_deliver = slow
            b = shards.kernels["b"]
            await shards.until(lambda: any(loan.asking for loan in b.core.remote.loans.borrowed.values()))
            (child,) = [process for process in b.processes.values() if process.exit is None]
            await b.kill(child.pid)
            await handle.wait()
            await shards.until(lambda: not shards.outstanding())
            parent = shards.kernels["a"].processes[handle.pid]
            return parent.budget.usage.usd, parent.budget.reserved("usd"), shards.told["budget.back"]

    assert run_in_virtual_time(main()) == (provider.spent, 0, 2)


async def pass_on(ctx, shard, most):
    """Start a spender on another shard, and end."""
    ctx.spawn(spend_later, most, shard=shard)


async def spend_later(ctx, most):
    await ctx.sleep(10.0)
    return await spend(ctx, "last", [10], most)


async def spend_beside(ctx, first, most):
    """Spend some, and leave the rest to what a child that has ended by then has started."""
    done = await spend(ctx, "first", [10], first)
    await ctx.spawn(pass_on, "c", most, shard="b").wait()
    return done


PROGRAMS += [pass_on, spend_later, spend_beside]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_loan_that_was_lent_on_before_anything_of_it_was_lent_stays(crashes):
    """A process that ended had passed a budget on of which it had nothing yet: what it started spends the rest of that
    budget and no more, also after its shard has moved."""
    provider = begin()

    async def main():
        async with Shards("a", "b", "c", programs=PROGRAMS, lease_s=5.0) as shards:
            handle = shards.kernels["a"].spawn(spend_beside, 1, 100, budget={"usd": 20})
            await handle.wait()
            if crashes:
                shards.crash("b")
                await shards.open("b")
            await asyncio.sleep(30.0)
            await shards.until(lambda: not shards.outstanding())
            return shards.kernels["a"].processes[handle.pid].budget.usage.usd

    assert run_in_virtual_time(main()) == 20
    assert provider.spent == 20


async def wait_for_late(ctx):
    return (await ctx.spawn(spend_later, 1, shard="b").wait()).reason


PROGRAMS += [wait_for_late]


def test_a_borrower_that_asks_and_ends_at_once_breaks_nothing():
    """A child is killed while its shard cannot be heard: that it asked for room, of which there is none, and that it is
    over comes in one call."""
    begin()

    async def main():
        loop: Any = asyncio.get_running_loop()
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            handle = shards.kernels["a"].spawn(wait_for_late, budget={"usd": 9})
            await shards.until(lambda: shards.kernels["b"].live == 1)
            is_cut = True

            async def cut(sender: str, _to: str) -> None:
                if is_cut and sender == "b":
                    raise ProcessError("it cannot be heard")

            shards.before_deliver = cut
            b = shards.kernels["b"]
            await shards.until(lambda: any(loan.asking for loan in b.core.remote.loans.borrowed.values()))
            (child,) = [process for process in b.processes.values() if process.exit is None]
            await b.kill(child.pid)
            is_cut = False
            await handle.wait()
            await shards.until(lambda: shards.told["budget.back"] == 1 and not shards.outstanding())
            gc.collect()
            return shards.told["budget.ask"], shards.told["budget.back"], loop.complaints

    assert run_in_virtual_time(main()) == (1, 1, [])


async def spawn_twice(ctx, most):
    """Start a spender under a pid that is taken; gives the error, and what is left to spend here."""
    child = ctx.spawn(spend_later, most, shard="b", pid="taken")
    try:
        await child.wait()
    except NameTaken as error:
        return [error.code, await spend(ctx, "second", [10], 1_000)]
    return await ctx.receive()


async def spawn_and_stop(ctx, most):
    child = ctx.spawn(spend_later, most, shard="b", pid="taken")
    await ctx.receive()
    ctx.stop(child.pid)
    await ctx.receive()


PROGRAMS += [spawn_twice, spawn_and_stop]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_spawn_under_a_pid_that_is_taken_leaves_the_money_and_the_parent_of_the_other(is_stopped):
    """Who is refused has its whole budget; the process that is there spends that of its own parent, who alone may stop
    it, also after a restart."""
    provider = begin()

    async def main():
        async with Shards("a", "b", programs=PROGRAMS, lease_s=5.0) as shards:
            first = shards.kernels["a"].spawn(spawn_and_stop, 100, budget={"usd": 50})
            await shards.until(lambda: shards.kernels["b"].live == 1)
            second = shards.kernels["a"].spawn(spawn_twice, 100, budget={"usd": 200})
            told = (await second.wait()).result
            shards.crash("b")
            await shards.open("b")
            if is_stopped:
                await first.send("stop it")
            ended = await shards.kernels["b"].process("taken").wait()
            await first.kill()
            await shards.until(lambda: not shards.outstanding())
            return told, ended.reason, shards.kernels["a"].processes[first.pid].spent.usd

    told, reason, spent = run_in_virtual_time(asyncio.wait_for(main(), 600))
    assert told == ["name_taken", 20]
    assert (reason, spent) == (("shutdown", 0) if is_stopped else ("normal", 50))
    assert provider.spent == 200 + spent


async def stay(ctx):
    await ctx.receive()


PROGRAMS += [stay]


async def spawn_within(shards: Shards, shard: str, budget: str, program: Any, *args: Any) -> Any:
    """Start a program in a budget of the cluster whose home is shard "a", as a client does."""
    host: Any = SimpleNamespace(name="host", kernels=shards.kernels, kernel_of=shards.kernels.__getitem__)
    within = {"home": "a", "shared": budget, "limits": {"usd": 100}}
    word = get_qualified_name(program)
    data = {"shard": shard, "program": word, "args": codec.encode(args), "pid": f"of{budget}", "within": within}
    return shards.kernels[shard].process(await answer_call(host, "spawn", data))


def test_budgets_of_clients_that_were_killed_are_over_after_a_day(monkeypatch):
    """Where there are as many as there may be, a connection's budget from which nothing was spent for a day makes room
    for the next; one that has a name stays, and so does one that a process has a loan on. Also after a restart."""
    monkeypatch.setattr("lyra.kernel.remote.loans.BUDGETS_SHARED_MAX", 4)
    begin()

    async def main():
        async with Shards("a", "b", programs=PROGRAMS, lease_s=5.0) as shards:

            def share(name: str) -> list[str]:
                loans = shards.kernels["a"].core.remote.loans
                loans.share(name, {"usd": 100})
                return sorted(loans.shared)

            for name in ("night", "~runs", "~old", "~used"):
                share(name)
            sleeper = await spawn_within(shards, "b", "~runs", stay)
            await asyncio.sleep(80_000)
            await (await spawn_within(shards, "b", "~used", spend, "x", [10], 3)).wait()
            with pytest.raises(Overloaded):
                share("~new")
            await asyncio.sleep(10_000)
            shards.crash("a")
            await shards.open("a")
            assert share("~new") == ["night", "~new", "~runs", "~used"]
            with pytest.raises(Overloaded):
                share("~newer")
            await sleeper.kill()
            await shards.until(lambda: not shards.outstanding())
            return share("~newer")

    assert run_in_virtual_time(main()) == ["night", "~new", "~newer", "~used"]


# ---------------------------------------------------------------------- crashes

STEPS = ("remote.delivered", "remote.taken", "fact.written", "journal.before_commit", "journal.after_commit")
DOORS = ("door.admitted", "door.started", "door.performed", "door.finished", "process.spawned", "process.exiting")


async def run_with_crashes(shards: Shards, hook: Any, program: Any, *args: Any, limit: int) -> tuple[int, Any]:
    """Run a program to its end while kernels die at named points; gives what its budget says to be used."""
    shards.kernels["a"].spawn(program, *args, pid="main", budget={"usd": limit})
    await shards.kernels["a"].durable()
    with intercept(hook):

        def is_over() -> bool:
            kernel = shards.kernels.get("a")
            process = None if kernel is None else kernel.processes.get("main")
            return process is not None and process.exit is not None

        await shards.until(is_over, within_s=120)
    await shards.until(lambda: len(shards.kernels) == len(shards.names) and not shards.outstanding(), within_s=120)
    process = shards.kernels["a"].processes["main"]
    assert process.exit is not None
    return int(process.spent.usd), process.exit


class DieAt:
    """Ends the running kernel, the other ones or all, at some visits of named points."""

    def __init__(self, shards: Shards, chooses: Any) -> None:
        self.shards = shards
        self.chooses = chooses  # point, shard → names of the shards that die
        self.is_busy = False

    def __call__(self, name: str) -> None:
        if self.is_busy:
            return
        self.is_busy = True
        try:
            running = self.shards.running()
            dying = [] if running is None else [x for x in self.chooses(name, running) if x in self.shards.kernels]
            for shard in dying:
                self.shards.crash_and_reopen(shard, 0.3)
        finally:
            self.is_busy = False
        if running in dying:
            raise SimulatedCrash(name)


def check_spent(provider: Provider, used: int, limit: int, lost: int) -> None:
    """What was performed over all lives is inside the limit, and what the budget says inside both."""
    assert provider.spent <= limit, "performed more than the limit"
    assert provider.spent <= used <= limit, "the budget does not have what was performed"
    assert used >= 0.99 * limit - lost, "some of the limit was lost"


@pytest.mark.parametrize("point", [*STEPS, *DOORS])
@pytest.mark.parametrize("who", ["home", "borrower", "both"])
def test_no_crash_between_two_steps_passes_the_limit_or_loses_money(point, who):
    """Kernels die at some visits of each point, the home, the borrower or both; what they lent is still accounted."""
    limit, cost = 1_000, 10
    every = 2 if point.startswith("process") else 17
    provider = begin(0.001)
    visits = 0

    async def main():
        nonlocal visits
        async with Shards("a", "b", programs=PROGRAMS, lease_s=5.0) as shards:

            def choose(name: str, running: str) -> list[str]:
                nonlocal visits
                if name != point:
                    return []
                visits += 1
                if shards.crashes >= 6 or visits % every != 1:
                    return []
                return {"home": ["a"], "borrower": ["b"], "both": ["a", "b"]}[who]

            async def on_the_way(_sender: str, _to: str) -> None:
                await asyncio.sleep(0.01)

            shards.before_deliver = on_the_way
            used, ended = await run_with_crashes(
                shards, DieAt(shards, choose), spend_abroad, ["b", "b"], [cost], 1_000, limit=limit
            )
            assert shards.crashes, "no kernel died"
            return used, ended

    used, ended = run_in_virtual_time(main())
    assert ended.ok, ended
    check_spent(provider, used, limit, cost)


def run_at_random(seed: int) -> tuple[int, int]:
    """One random run: shards, costs, limits and crashes by the seed."""
    rng = random.Random(seed)
    names = ["a", "b", "c", "d"][: rng.randint(2, 4)]
    costs = [rng.randint(1, 50) for _ in range(rng.randint(1, 4))]
    limit = rng.randint(100, 6_000)
    provider = begin(rng.choice([0.0, 0.001, 0.02]))
    program, where = rng.choice(
        [(spend_abroad, [rng.choice(names) for _ in range(rng.randint(1, 6))]), (spend_in_turn, names[1:])]
    )
    rate = rng.choice([0.0005, 0.002, 0.01])

    async def main():
        options = {"lease_s": 5.0, "snapshot_every_events": rng.choice([40, 10_000])}
        async with Shards(*names, programs=PROGRAMS, **options) as shards:

            def choose(name: str, running: str) -> list[str]:
                if shards.crashes >= 25 or rng.random() > rate:
                    return []
                return rng.choice([[running], [rng.choice(names)], names])

            async def late(_sender: str, _to: str) -> None:
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.5)

            shards.before_deliver = late
            used, ended = await run_with_crashes(
                shards, DieAt(shards, choose), program, where, costs, 7_000, limit=limit
            )
            return used, ended, shards.crashes

    used, ended, crashes = run_in_virtual_time(main())
    assert ended.ok, ended
    check_spent(provider, used, limit, max(costs))
    return crashes, used


def test_random_runs_with_crashes_keep_the_limit():
    crashes = 0
    for seed in range(25):
        crashes += run_at_random(seed)[0]
    assert crashes > 25


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(10, 20))
def test_many_random_runs_with_crashes_keep_the_limit(hundred):
    crashes = sum(run_at_random(seed)[0] for seed in range(100 * hundred, 100 * hundred + 100))
    assert crashes > 100
