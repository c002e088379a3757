"""Supervisors whose children are on several shards: the same order of starts, ends and restarts as on one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.core import codec
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.errors import LyraError, ProcessError
from lyra.kernel import Child, Kernel
from tests.kernel.remote.world import Shards, run, until

diary: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    diary.clear()


async def worker(ctx, label):
    note(ctx, f"+{label}")
    try:
        while True:
            message = await ctx.receive()
            if message == "crash":
                raise ValueError("boom")
            ctx.exit(message)
    except asyncio.CancelledError:
        note(ctx, f"-{label}")
        raise


async def slow_to_start(ctx, label):
    await ctx.sleep(3.0)
    note(ctx, f"+{label}")
    ctx.ready()
    await ctx.receive()


async def never_starts(ctx, label):
    note(ctx, f"!{label}")
    raise ValueError("no")


async def slow_to_stop(ctx, label, seconds):
    note(ctx, f"+{label}")
    try:
        await ctx.receive()
    except asyncio.CancelledError:
        await ctx.sleep(seconds)
        note(ctx, f"-{label}")
        raise


def note(ctx, what: str) -> None:
    if not ctx.replaying:
        diary.append(what)


PROGRAMS = [worker, slow_to_start, never_starts, slow_to_stop]
PLACES = {"a": {}, "b": {"shard": "s2"}, "c": {"shard": "s3"}}


class OneKernel(Shards):
    """A kernel that is no shard, with the same use."""

    async def open(self, name):
        kernel = self.kernels[name] = Kernel(self.stores[name], programs=self.programs)
        await kernel.start()
        return kernel


def place(label: str, spread: bool) -> dict[str, Any]:
    return PLACES[label] if spread else {}


async def settle(*worlds: Shards) -> None:
    await asyncio.sleep(2.0)


async def tell(world: Shards, sup, label: str, message: Any) -> None:
    (child,) = [child for child in sup.which_children() if child.id == label]
    await world["s1"].send(child.pid, message)
    await settle()


def both(scenario) -> tuple[list[str], list[str]]:
    """Return what a scenario's diary says on one kernel and on three shards."""
    told = []
    for spread in (False, True):
        diary.clear()

        async def main(spread=spread):
            kind = Shards if spread else OneKernel
            async with kind(*(("s1", "s2", "s3") if spread else ("s1",)), programs=PROGRAMS) as world:
                await scenario(world, spread)

        run(main())
        told.append(list(diary))
    return told[0], told[1]


def children(spread: bool, program: Any = worker, *more: Any, **options: Any) -> list[Child]:
    return [Child(label, program, (label, *more), **options, **place(label, spread)) for label in "abc"]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_strategies(strategy, victim):
    """Who is restarted with whom, and in which order, does not depend on where they are."""

    async def scenario(world, spread):
        sup = await world["s1"].supervise(children(spread), strategy=strategy)
        await settle()
        diary.append("--")
        await tell(world, sup, victim, "crash")
        diary.append("--")
        await tell(world, sup, victim, "normal")
        diary.append("--")
        await sup.stop()

    here, abroad = both(scenario)
    assert here == abroad
    assert here[:3] == ["+a", "+b", "+c"]
    assert here[-3:] == ["-c", "-b", "-a"]


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("reason", ["crash", "normal", "shutdown", "odd"])
def test_who_is_restarted(restart, reason):
    """permanent, transient and temporary mean the same abroad."""

    async def scenario(world, spread):
        sup = await world["s1"].supervise(children(spread, restart=restart), strategy="one_for_one")
        await settle()
        await tell(world, sup, "b", reason)
        diary.append(" ".join(f"{child.id}:{child.state}:{child.starts}" for child in sup.which_children()))
        await sup.stop()

    here, abroad = both(scenario)
    assert here == abroad


def test_too_many_restarts():
    """The window counts restarts of children anywhere; then all are stopped in reverse and it ends with shutdown."""

    async def scenario(world, spread):
        sup = await world["s1"].supervise(children(spread), max_restarts=2, window_s=60)
        await settle()
        for _ in range(3):
            await tell(world, sup, "b", "crash")
        ended = await sup.wait()
        diary.append(f"{ended.reason}: {ended.error}")

    here, abroad = both(scenario)
    assert here == abroad
    assert "gave up after 2 restarts" in here[-1]


def test_a_dynamic_supervisor():
    """Children of one kind are started on demand, on the shard of their template."""

    async def scenario(world, spread):
        template = Child("w", worker, restart="transient", **place("b", spread))
        sup = await world["s1"].supervise([template], strategy="simple_one_for_one")
        handles = [await sup.start_child(args=(label,)) for label in "xyz"]
        await settle()
        await world["s1"].send(handles[1].pid, "crash")
        await settle()
        await sup.terminate_child(handles[0].pid)
        diary.append(str(sup.count_children()))
        await handles[2].kill()
        await settle()
        await sup.stop()

    here, abroad = both(scenario)
    assert here == abroad


def test_wait_ready_and_time_to_stop():
    """A child that has to be ready holds the next one up; one that stops too slowly is killed after its time."""

    async def scenario(world, spread):
        slow = Child("a", slow_to_start, ("a",), wait_ready=True, **place("b", spread))
        lazy = Child("b", slow_to_stop, ("b", 3.0), shutdown_s=10.0, **place("c", spread))
        late = Child("c", slow_to_stop, ("c", 30.0), shutdown_s=2.0, **place("b", spread))
        gone = Child("d", slow_to_stop, ("d", 1.0), shutdown_s="kill", **place("c", spread))
        sup = await world["s1"].supervise([slow, lazy, late, gone])
        assert diary == ["+a", "+b", "+c", "+d"]
        began_s = asyncio.get_running_loop().time()
        await sup.stop()
        took_s = asyncio.get_running_loop().time() - began_s
        assert 5.0 <= took_s < 6.0

    here, abroad = both(scenario)
    assert here == abroad == ["+a", "+b", "+c", "+d", "-b"]


@pytest.mark.parametrize("program", [never_starts, "missing"])
def test_a_child_that_does_not_start(program):
    """The children before it are stopped in reverse, and the supervisor fails with the reason."""

    async def absent(ctx, label):
        raise AssertionError

    async def scenario(world, spread):
        bad = Child("c", absent, ("c",), **place("c", spread))
        if program is never_starts:
            bad = Child("c", never_starts, ("c",), wait_ready=True, **place("c", spread))
        elif not spread:  # what a kernel is given, it knows
            return
        first = [Child(label, worker, (label,), **place(label, spread)) for label in "ab"]
        with pytest.raises((ProcessError, LyraError), match="child 'c' did not start"):
            await world["s1"].supervise([*first, bad])
        await settle()

    here, abroad = both(scenario)
    assert [what for what in abroad if what[0] != "!"] == ["+a", "+b", "-b", "-a"]
    if program is never_starts:
        assert here == abroad


def test_significant_children():
    """A significant child abroad that ends takes the supervisor along."""

    async def scenario(world, spread):
        specs = [
            Child(label, worker, (label,), restart="transient", significant=label == "b", **place(label, spread))
            for label in "abc"
        ]
        sup = await world["s1"].supervise(specs, auto_shutdown="any_significant")
        await settle()
        await tell(world, sup, "b", "normal")
        diary.append((await sup.wait()).reason)

    here, abroad = both(scenario)
    assert here == abroad == ["+a", "+b", "+c", "-c", "-a", "shutdown"]


def test_a_supervisor_abroad():
    """A supervisor below another one may be on another shard, with children of its own anywhere: it is started when
    its children are, stopped before those in front of it, and stops its own when its parent goes."""

    async def scenario(world, spread):
        inner = [Child(label, worker, (label,), **place(label, spread)) for label in "bca"]
        tree = [
            Child("first", worker, ("first",)),
            Child.supervisor("inner", inner, strategy="one_for_all", **({"shard": "s2"} if spread else {})),
            Child("last", worker, ("last",)),
        ]
        sup = await world["s1"].supervise(tree, strategy="rest_for_one")
        await settle()
        diary.append("--")
        home = world["s2"] if spread else world["s1"]
        (below,) = [p for p in home.processes.values() if "supervise" in p.program and p.pid != sup.pid]
        (child,) = [row for row in home.supervisor(below.pid).which_children() if row.id == "c"]
        await home.send(child.pid, "crash")
        await settle()
        diary.append("--")
        await home.kill(below.pid)
        await settle()
        diary.append("--")
        await sup.stop()

    here, abroad = both(scenario)
    split = [[[]], [[]]]
    for told, parts in zip((here, abroad), split, strict=True):
        for what in told:
            if what == "--":
                parts.append([])
            else:
                parts[-1].append(what)
    first, second = split
    assert first[0] == second[0] == ["+first", "+b", "+c", "+a", "+last"]
    assert first[1] == second[1] == ["-a", "-b", "+b", "+c", "+a"]
    # A tree that is killed is told at once; over shards the posts need a moment.
    assert sorted(first[2]) == sorted(second[2])
    assert [what for what in first[2] if what[0] == "+"] == [what for what in second[2] if what[0] == "+"]
    assert first[3] == second[3] == ["-last", "-a", "-c", "-b", "-first"]


def test_a_shard_that_moves_is_no_crash():
    """The supervisor's own shard and those of its children are killed and opened again: nothing is restarted, nothing
    counts for the window, and what happens afterwards is as before."""

    async def main():
        async with Shards("s1", "s2", "s3", programs=PROGRAMS) as world:
            sup = await world["s1"].supervise(children(True), pid="sup", max_restarts=1)
            await settle()
            assert diary == ["+a", "+b", "+c"]
            for names in (["s2"], ["s3"], ["s1"], ["s1", "s2", "s3"]) * 2:
                await world.restart(*names)
                await settle()
            sup = world["s1"].supervisor("sup")
            assert [child.starts for child in await sup.which_children()] == [1, 1, 1]
            await until(lambda: all(kernel.live for kernel in world.kernels.values()))
            diary.clear()
            await tell(world, sup, "b", "crash")
            assert diary == ["+b"]
            await sup.stop()
            assert diary == ["+b", "-c", "-b", "-a"]

    run(main())


def test_marks_of_a_child_stay_with_it():
    """The end of a marked child marks neither its supervisor nor the child that is started after it."""

    async def marked(ctx):
        message = await ctx.receive()
        ctx.own_process.core.taint.mark(ctx.pid, "a page")
        raise ValueError(message)

    async def main():
        async with Shards("s1", "s2", programs=[marked]) as world:
            sup = await world["s1"].supervise([Child("m", marked, shard="s2")])
            (before,) = sup.which_children()
            assert before.pid is not None
            await world["s1"].send(before.pid, "words")
            await until(lambda: sup.which_children()[0].starts == 2)
            (after,) = sup.which_children()
            assert not world["s1"].taint.is_tainted(sup.pid)
            assert not world["s2"].taint.is_tainted(after.pid.partition("/")[2])
            await sup.stop()

    run(main())


def test_words_of_a_marked_child_mark_who_reads_them():
    """A supervisor that tells its parent why a marked child ended marks it, and stays unmarked itself."""

    async def marked(ctx):
        ctx.own_process.core.taint.mark(ctx.pid, "a page")
        ctx.exit("words of a page")

    async def boss(ctx):
        ctx.supervise([Child("m", marked, shard="s2")], strategy="stop", name="sup")
        told = await ctx.receive()
        return [told["reason"], told["child"]]

    async def main():
        async with Shards("s1", "s2", programs=[marked]) as world:
            process = world["s1"].spawn(boss, pid="boss")
            reason, child = (await process.wait()).result
            assert reason == "words of a page"
            assert world["s1"].taint.is_tainted("boss")
            assert [pid for pid in world["s1"].taint.state.pids if pid not in ("boss", child)] == []
            await until(lambda: world["s1"].live == 0)
            assert child not in world["s1"].taint.state.pids

    run(main())


def test_a_supervisor_abroad_goes_with_its_parent():
    """A supervisor on another shard stops its children in reverse when the one above it ends without a word."""

    async def main():
        async with Shards("s1", "s2", programs=PROGRAMS) as world:
            inner = [Child(label, worker, (label,)) for label in "bc"]
            sup = await world["s1"].supervise([Child.supervisor("inner", inner, shard="s2")], pid="sup")
            await settle()
            diary.clear()
            world["s1"].lifetimes.stop(world["s1"].processes[sup.pid], "odd", grace_s=0.0)
            await until(lambda: not world["s2"].live)
            assert diary == ["-c", "-b"]

    run(main())


def kill_at(world: Shards, point: str, visit: int, others: tuple[str, ...]):
    """Return a hook that kills the shard which visits a point for the n-th time, and others with it."""
    left = [visit]
    killed: list[str] = []

    def hook(name: str) -> None:
        if name != point or killed:
            return
        here = world.shard_here()
        if here is None:
            return
        left[0] -= 1
        if left[0] > 0:
            return
        names = sorted({here, *others} & world.kernels.keys())
        killed.extend(names)
        for victim in names:
            world.kill(victim)
        asyncio.get_running_loop().call_later(1.0, lambda: reopen(world, names))
        raise SimulatedCrash

    return hook, killed


def reopen(world: Shards, names: list[str]) -> None:
    async def open_all() -> None:
        for name in names:
            await world.open(name)
            del world.reopening[name]

    task = asyncio.ensure_future(open_all())
    for name in names:
        world.reopening[name] = task


async def tree_under_fire(point: str, visit: int, others: tuple[str, ...]) -> bool:
    """Start a tree, crash two children, stop it, with shards killed on the way; gives whether that came to pass."""
    async with Shards("s1", "s2", "s3", programs=PROGRAMS) as world:

        async def sup():
            while "s1" not in world.kernels or "sup" not in world["s1"].processes:
                await asyncio.sleep(0.05)
            return world["s1"].supervisor("sup")

        async def table(wanted: list[int]) -> list[Any]:
            for _ in range(4_000):
                supervisor = await sup()
                rows = list(supervisor.which_children())
                if [row.starts for row in rows] == wanted and all(row.state == "running" for row in rows):
                    return rows
                await asyncio.sleep(0.05)
            raise AssertionError(f"{[(row.id, row.state, row.starts) for row in rows]}, not {wanted}")

        async def in_time(work) -> None:
            """Repeat what meets a shard that is gone."""
            while True:
                try:
                    await work()
                except (LyraError, KeyError, SimulatedCrash):
                    await asyncio.sleep(0.1)
                else:
                    return

        world["s1"].supervise(children(True), strategy="rest_for_one", pid="sup", max_restarts=2)
        await world["s1"].durable()
        hook, killed = kill_at(world, point, visit, others)
        with intercept(hook):
            rows = await table([1, 1, 1])
            await in_time(lambda: crash_once(world, rows[1].pid))
            rows = await table([1, 2, 2])
            await in_time(lambda: crash_once(world, rows[2].pid))
            rows = await table([1, 2, 3])
            await in_time(lambda: ask_to_stop(world))
            for _ in range(4_000):
                await asyncio.sleep(0.05)
                if not world.reopening and len(world.kernels) == 3:
                    process = world["s1"].processes["sup"]
                    if process.exit is not None and not any(kernel.live for kernel in world.kernels.values()):
                        break
            else:
                raise AssertionError("it did not stop")
        assert process.exit.reason == "shutdown"
        ends = {}
        for name, kernel in world.kernels.items():
            for child in kernel.processes.values():
                ends[f"{name}/{child.pid}"] = child.exit.reason
        # One supervisor; a, two of b, three of c: nothing was started twice, nothing is left.
        assert sorted(ends.values()) == ["error", "error", "shutdown", "shutdown", "shutdown", "shutdown", "shutdown"]
        assert not any(kernel.core.remote.ties.links for kernel in world.kernels.values())
        return bool(killed)


async def ask_to_stop(world: Shards) -> None:
    if world["s1"].processes["sup"].exit is None and '"stop"' not in told(world, "s1", "sup"):
        world["s1"].supervisor("sup")._command("stop")
        await world["s1"].durable()


async def crash_once(world: Shards, address: str) -> None:
    """Crash a child by a message that is not sent again once the store has it."""
    shard, _, pid = address.partition("/") if "/" in address else ("s1", "", address)
    if '"crash"' not in told(world, shard, pid):
        await world[shard].send(pid, "crash")


def told(world: Shards, shard: str, pid: str) -> str:
    """Return the messages to a process that its store has."""
    rows = [codec.decode(row.data) for row in world.stores[shard].read(pid=pid, kind="message.sent")]
    return json.dumps([row["message"] for row in rows], default=str)


POINTS_OF_A_TREE = [
    "journal.before_commit",
    "journal.after_commit",
    "remote.taken",
    "remote.delivered",
    "fact.written",
    "mailbox.delivered",
    "process.spawned",
    "process.exiting",
    "supervisor.restarting",
]


def under_fire(point: str, visits: range, others: tuple[str, ...] = ()) -> int:
    hits = 0
    for visit in visits:
        diary.clear()
        hits += run(tree_under_fire(point, visit, others), expected=("failed while it was closed",))
    return hits


@pytest.mark.parametrize("point", POINTS_OF_A_TREE)
def test_killed_at_a_step(point):
    """The shard of the supervisor or of a child is killed at some steps of a start, a restart and a stop: each child is
    started as often as without, and all are gone at the end."""
    assert under_fire(point, range(1, 40, 9)) > 0


@pytest.mark.long
@pytest.mark.parametrize("others", [(), ("s1",), ("s1", "s2", "s3")])
@pytest.mark.parametrize("point", POINTS_OF_A_TREE)
def test_killed_at_every_step(point, others):
    """The same at every visit of a point, also with other shards killed along."""
    assert under_fire(point, range(1, 90), others) > 0


def test_children_begin_where_the_cluster_says():
    """`near` and `resources` are asked for once: a child stays where it began when its supervisor comes back, and one
    that belongs on the supervisor's own shard is a child like any other."""

    async def main():
        async with Shards("s1", "s2", "s3", programs=PROGRAMS) as world:
            asked: list[Any] = []

            def place(needs):
                asked.append({key: value for key, value in needs.items() if value is not None and key != "tells"})
                return "s1" if needs["near"] == "s1/x" else "s2"

            world["s1"].core.remote.acts.place = place
            specs = [
                Child("a", worker, ("a",), resources={"gpu": 1}),
                {"id": "b", "program": worker, "args": ("b",), "near": "s1/x"},
                Child("c", worker, ("c",)),
            ]
            sup = await world["s1"].supervise(specs, pid="sup")
            before = [child.pid for child in sup.which_children()]
            assert asked == [{"resources": {"gpu": 1}}, {"near": "s1/x"}]
            assert [pid.startswith("s2/") for pid in before] == [True, False, False]
            await world.restart("s1")
            world["s1"].core.remote.acts.place = lambda _needs: "s3"
            sup = world["s1"].supervisor("sup")
            assert [child.pid for child in await sup.which_children()] == before
            await tell(world, sup, "a", "crash")
            after = [child.pid for child in sup.which_children()]
            assert after[0].startswith("s3/")
            assert after[1:] == before[1:]
            await sup.stop()

    run(main())
