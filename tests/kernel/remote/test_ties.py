"""Processes of different shards tied to each other: waits, links, monitors and stops, as on one shard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import ConfigError, Denied, LyraError, NameTaken, NoSuchProcess
from lyra.kernel.process.links import Down, ExitSignal
from tests.kernel.remote.world import Shards, run, until

diary: list[Any] = []
tries: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    diary.clear()
    tries.clear()


async def ear(ctx, label="ear"):
    """Do as it is told: end with a reason, with a result, with an error."""
    while True:
        message = await ctx.receive()
        diary.append([label, message])
        if isinstance(message, dict) and "exit" in message:
            ctx.exit(message["exit"])
        if isinstance(message, dict) and "result" in message:
            return message["result"]
        if isinstance(message, dict) and "size" in message:
            return b"x" * message["size"]
        if message == "crash":
            raise ValueError("boom")


async def ends_at_once(ctx):
    return "done"


async def quiet(ctx):
    await ctx.receive()


async def spawns_and_waits(ctx, program, *args):
    child = ctx.spawn(PROGRAMS[program], *args, shard="s2")
    ended = await child.wait()
    return [ended.reason, ended.result, str(ended.error or ""), child.pid]


async def traps(ctx, *addresses):
    ctx.trap_exit(True)
    for address in addresses:
        ctx.link(address)
    while True:
        diary.append(await ctx.receive())


async def links(ctx, address):
    ctx.link(address)
    await ctx.receive()


async def monitors(ctx, address):
    diary.append(ctx.monitor(address))
    while True:
        diary.append(await ctx.receive())


PROGRAMS = {
    program.__name__: program for program in (ear, ends_at_once, quiet, spawns_and_waits, traps, links, monitors)
}


def shards(**options: Any) -> Shards:
    return Shards("s1", "s2", programs=PROGRAMS.values(), **options)


async def stored(world: Shards) -> None:
    for kernel in world.kernels.values():
        await kernel.durable()


def nothing_left(world: Shards) -> bool:
    """Whether no shard remembers a tie of any process, and no post is on its way."""
    for kernel in world.kernels.values():
        remote = kernel.core.remote
        ties = remote.ties
        tables = (ties.awaited, ties.watchers, ties.links, ties.unlinking, ties.children, ties.gone, ties._asking)
        if remote.state.posts or any(tables):
            return False
    return True


def test_a_wait_gives_the_end_of_a_child_abroad():
    """Result, reason and error come back, and nothing is remembered afterwards."""

    async def main():
        async with shards() as world:
            parent = world["s1"].spawn(spawns_and_waits, "ends_at_once")
            reason, result, error, address = (await parent.wait()).result
            assert (reason, result, error) == ("normal", "done", "")
            assert address.startswith("s2/s1.")
            parent = world["s1"].spawn(spawns_and_waits, "ear")
            await until(lambda: world["s2"].live == 1)
            (child,) = [process for process in world["s2"].processes.values() if process.exit is None]
            await world["s1"].process(f"s2/{child.pid}").send("crash")
            assert (await parent.wait()).result[:3] == ["error", None, "boom"]
            await until(lambda: nothing_left(world))

    run(main())


def test_a_child_begins_where_the_cluster_says():
    """`near` and `resources` of a spawn are asked about, and a child that belongs here is one of this shard."""

    async def places(ctx):
        children = [ctx.spawn(quiet), ctx.spawn(quiet, near="s1/x"), ctx.spawn(quiet, resources={"gpu": 1})]
        return [child.pid.partition("/")[0] for child in children]

    async def main():
        async with Shards("s1", "s2", programs=[places, quiet]) as world:
            asked = []

            def place(needs):
                asked.append({key: needs[key] for key in ("near", "resources") if needs.get(key) is not None})
                return "s2" if needs.get("resources") else "s1"

            world["s1"].core.remote.acts.place = place
            began = (await world["s1"].spawn(places).wait()).result
            assert asked == [{"near": "s1/x"}, {"resources": {"gpu": 1}}]
            assert [where == "s2" for where in began] == [False, False, True]

    run(main())


def test_large_values_travel_as_blobs():
    """A message, an argument and a result of megabytes arrive whole; rows and the state hold only where they are."""

    async def main():
        async with shards() as world:
            world.cut.add(("s1", "s2"))
            ear_at = world["s2"].spawn(ear, pid="ear")
            await world["s1"].send("s2/ear", {"result": "y" * 3_000_000})
            await stored(world)
            assert len(world["s1"].core.remote.state.dump()["posts"]["s2"]) == 1
            longest = max(len(row.data) for row in world.stores["s1"].read())
            assert longest < 1_000
            await world.restart("s1")
            waiting = asyncio.ensure_future(world["s1"].process("s2/ear").wait())
            world.cut.clear()
            assert (await waiting).result == "y" * 3_000_000
            assert (await ear_at.wait()).result == "y" * 3_000_000
            assert max(len(row.data) for row in world.stores["s1"].read()) < 1_000

    run(main())


def test_a_call_carries_no_more_than_it_may():
    """Large posts travel a few at a time."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            world.cut.add(("s1", "s2"))
            for number in range(6):
                await world["s1"].send("s2/ear", {"n": number, "text": "z" * 2_000_000})
            world.cut.clear()
            await until(lambda: len(diary) == 6)
            assert [message["n"] for _, message in diary] == list(range(6))
            assert max(count for *_, count in world.carried) == 3

    run(main())


@pytest.mark.parametrize(
    ("message", "traps_get", "linked_reason"),
    [("crash", "error", "linked"), ({"exit": "odd"}, "odd", "linked"), ({"result": 1}, "normal", None)],
)
def test_a_link_carries_an_end_over(message, traps_get, linked_reason):
    """An end that is no normal one ends the other, or is an ExitSignal where that one traps exits."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            trapping = world["s1"].spawn(traps, "s2/ear")
            linked = world["s1"].spawn(links, "s2/ear")
            await until(lambda: len(world["s2"].core.remote.ties.links.get("ear", ())) == 2)
            await world["s2"].send("ear", message)
            await until(lambda: any(isinstance(seen, ExitSignal) for seen in diary))
            (signal,) = [seen for seen in diary if isinstance(seen, ExitSignal)]
            assert (signal.pid, signal.reason) == ("s2/ear", traps_get)
            if linked_reason is None:
                assert linked.alive
            else:
                ended = await linked.wait()
                assert ended.reason == linked_reason
                assert ended.error.fields["origin"] == "s2/ear"
            assert trapping.alive
            assert len([seen for seen in diary if isinstance(seen, ExitSignal)]) == 1

    run(main())


def test_a_chain_of_links_over_shards_names_who_died_first():
    """The end of the first is the origin for the last one of the chain."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="first")
            world["s1"].spawn(links, "s2/first", pid="second")
            last = world["s2"].spawn(links, "s1/second", pid="third")
            await until(lambda: world["s1"].core.remote.ties.links.get("second", {}).keys() == {"s2/first", "s2/third"})
            await world["s2"].send("first", "crash")
            ended = await last.wait()
            assert ended.error.fields["origin"] == "s2/first"
            assert ended.error.fields["cause"] == "boom"
            await until(lambda: nothing_left(world))

    run(main())


def test_names_abroad():
    """A link, a monitor and a wait by name are about the process that has the name, and say its pid."""

    async def main():
        async with shards() as world:
            there = world["s2"].spawn(ear, name="worker")
            world["s1"].spawn(traps, "s2/worker")
            world["s1"].spawn(monitors, "s2/worker")
            waiting = asyncio.ensure_future(world["s1"].process("s2/worker").wait())
            await until(lambda: len(world["s2"].core.remote.ties.watchers.get(there.pid, ())) == 2)
            await world["s1"].whereis("s2/worker").send("crash")
            assert (await waiting).reason == "error"
            await until(lambda: sum(isinstance(seen, (Down, ExitSignal)) for seen in diary) == 2)
            assert {seen.pid for seen in diary if isinstance(seen, (Down, ExitSignal))} == {f"s2/{there.pid}"}
            assert world["s2"].whereis("s2/nobody") is None

    run(main())


def test_two_shards_may_use_the_same_word_for_a_watch():
    """Watches of two processes of one pid on two shards are two."""

    async def main():
        async with Shards("s1", "s2", "s3", programs=PROGRAMS.values()) as world:
            world["s3"].spawn(ear, pid="ear")
            for name in ("s1", "s2"):
                world[name].spawn(monitors, "s3/ear", pid="same")
            await until(lambda: len(world["s3"].core.remote.ties.watchers.get("ear", ())) == 2)
            await world["s1"].send("s3/ear", "crash")
            await until(lambda: sum(isinstance(seen, Down) for seen in diary) == 2)

    run(main())


def test_what_is_not_there():
    """A wait raises, a link and a monitor say noproc, a message is dropped with an Event."""

    async def main():
        async with shards() as world:
            dropped = []
            world["s2"].on_event(dropped.append, ["message.dropped"])
            with pytest.raises(NoSuchProcess):
                await world["s1"].process("s2/nobody").wait()
            world["s1"].spawn(traps, "s2/nobody")
            world["s1"].spawn(monitors, "s2/nobody")
            await world["s1"].send("s2/nobody", 1)
            await until(lambda: sum(isinstance(seen, (Down, ExitSignal)) for seen in diary) == 2)
            assert {seen.reason for seen in diary if isinstance(seen, (Down, ExitSignal))} == {"noproc"}
            await until(lambda: dropped)
            with pytest.raises(NoSuchProcess):
                await world["s1"].send("s9/p1", 1)

    run(main())


def test_ties_with_a_child_that_ended_before_they_arrived():
    """A child that ends at once is linked and monitored all the same: its end is told as it was, not as noproc."""

    async def parent(ctx):
        ctx.trap_exit(True)
        child = ctx.spawn(ends_at_once, shard="s2")
        await ctx.sleep(1.0)
        ctx.link(child)
        ctx.monitor(child)
        return [type(await ctx.receive()).__name__ for _ in range(2)], (await child.wait()).reason

    async def plain(ctx):
        child = ctx.spawn(ends_at_once, shard="s2")
        await ctx.sleep(1.0)
        ctx.link(child)
        await ctx.sleep(5.0)
        return "alive"

    async def main():
        async with shards() as world:
            kinds, reason = (await world["s1"].spawn(parent).wait()).result
            assert sorted(kinds) == ["Down", "ExitSignal"]
            assert reason == "normal"
            assert (await world["s1"].spawn(plain).wait()).result == "alive"

    run(main())


def test_a_wait_that_is_cancelled_is_taken_back():
    """Neither shard remembers a wait that nobody awaits any more, and one who waits again gets the end."""

    async def parent(ctx, address):
        handle = ctx.process(address)
        try:
            async with asyncio.timeout(1.0):
                await handle.wait()
        except TimeoutError:
            diary.append("late")
        await asyncio.gather(handle.wait(), handle.wait())
        return "told twice"

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            waiting = world["s1"].spawn(parent, "s2/ear")
            await until(lambda: len(world["s2"].core.remote.ties.watchers.get("ear", ())) == 2)
            assert diary == ["late"]
            assert len(world["s1"].core.remote.ties.awaited) == 2
            outside = asyncio.ensure_future(world["s1"].process("s2/ear").wait())
            await until(lambda: len(world["s2"].core.remote.ties.watchers["ear"]) == 3)
            outside.cancel()
            await until(lambda: len(world["s2"].core.remote.ties.watchers["ear"]) == 2)
            await world["s1"].send("s2/ear", {"result": 1})
            assert (await waiting.wait()).result == "told twice"
            await until(lambda: nothing_left(world))

    run(main())


def test_a_process_that_ends_takes_its_watches_back():
    """What it awaited is forgotten on both shards."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            watcher = world["s1"].spawn(monitors, "s2/ear")
            await until(lambda: world["s2"].core.remote.ties.watchers.get("ear"))
            await watcher.kill()
            await until(lambda: nothing_left(world))
            world["s1"].process("s2/ear")
            assert world["s2"].process("ear").alive

    run(main())


def test_demonitor():
    """A monitor that was taken back tells nothing."""

    async def watcher(ctx, address):
        ref = ctx.monitor(address)
        ctx.demonitor(ref)
        await ctx.send(address, "crash")
        return await ctx.receive(timeout=5)

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            assert (await world["s1"].spawn(watcher, "s2/ear").wait()).result is None
            await until(lambda: nothing_left(world))

    run(main())


@pytest.mark.parametrize("cut", [None, ("s2", "s1"), ("s1", "s2")])
def test_links_made_and_taken_back_from_both_sides(cut):
    """Two links that cross are one; one that is taken back meanwhile is gone on both sides."""

    async def party(ctx, other, unlinks):
        ctx.trap_exit(True)
        await ctx.receive()
        ctx.link(other)
        ctx.link(other)
        if unlinks:
            ctx.unlink(other)
        while True:
            diary.append([ctx.pid, await ctx.receive()])

    async def main():
        async with shards() as world:
            world["s1"].spawn(party, "s2/b", True, pid="a")
            world["s2"].spawn(party, "s1/a", False, pid="b")
            if cut is not None:
                world.cut.add(cut)
            await world["s1"].send("a", "go")
            await world["s2"].send("b", "go")
            await asyncio.sleep(1.0)
            world.cut.clear()
            await until(lambda: not any(kernel.core.remote.state.posts for kernel in world.kernels.values()))
            ties = [kernel.core.remote.ties for kernel in world.kernels.values()]
            assert bool(ties[0].links) == bool(ties[1].links)
            assert not ties[0].unlinking
            assert not ties[1].unlinking
            linked = bool(ties[0].links)
            await world["s1"].kill("a")
            await asyncio.sleep(2.0)
            assert [[pid, seen.pid] for pid, seen in diary] == ([["b", "s1/a"]] if linked else [])

    run(main())


def test_who_may_stop_what():
    """A program stops what it spawned abroad, and nothing else; a child that has ended is no error."""

    async def parent(ctx, other):
        child = ctx.spawn(ear, shard="s2")
        with pytest.raises(Denied):
            ctx.stop(other)
        ctx.stop(child, grace_s=0)
        ended = await child.wait()
        ctx.stop(child)
        return ended.reason

    async def main():
        async with shards() as world:
            other = world["s2"].spawn(ear)
            assert (await world["s1"].spawn(parent, f"s2/{other.pid}").wait()).result == "shutdown"
            assert other.alive
            await world["s1"].kill(f"s2/{other.pid}", "enough")
            assert (await other.wait()).reason == "enough"

    run(main())


def test_a_tree_over_shards_is_killed_whole():
    """kill ends what was spawned abroad, and what that one spawned back here."""

    async def top(ctx):
        ctx.spawn(middle, shard="s2")
        await ctx.receive()

    async def middle(ctx):
        ctx.spawn(quiet, shard="s1")
        await ctx.receive()

    async def main():
        async with Shards("s1", "s2", programs=[top, middle, quiet]) as world:
            root = world["s1"].spawn(top)
            await until(lambda: world["s1"].live == 2 and world["s2"].live == 1)
            await root.kill()
            await until(lambda: world["s1"].live == 0 and world["s2"].live == 0)
            await until(lambda: nothing_left(world))

    run(main())


def test_a_pid_that_is_taken_is_refused():
    """A spawn under the pid or name of another process says so to whoever waits, and leaves that process alone."""

    async def parent(ctx, options):
        child = ctx.spawn(ear, shard="s2", **options)
        with pytest.raises(NameTaken):
            await child.wait()
        return "refused"

    async def unknown(ctx):
        child = ctx.spawn(parent, shard="s2")
        with pytest.raises(ConfigError):
            await child.wait()
        return "refused"

    async def main():
        async with shards() as world:
            other = world["s2"].spawn(ear, pid="taken", name="called")
            for options in ({"pid": "taken"}, {"name": "called"}):
                assert (await world["s1"].spawn(parent, options).wait()).result == "refused"
            assert (await world["s1"].spawn(unknown).wait()).result == "refused"
            assert other.alive
            assert not world["s2"].core.remote.acts.parents

    run(main())


def test_rights_of_a_process_count_abroad():
    """A child has no more rights than its parent; a parent may send to its child, and to no other process."""

    async def child(ctx):
        await ctx.receive()
        return [ctx.grant.is_all, ctx.parent]

    async def parent(ctx, other):
        mine = ctx.spawn(child, shard="s2")
        with pytest.raises(LyraError):
            await ctx.send(other, 1)
        await mine.send("go")
        return [*(await mine.wait()).result, ctx.address]

    async def main():
        async with Shards("s1", "s2", programs=[child, ear]) as world:
            world["s2"].spawn(ear, pid="other")
            process = world["s1"].spawn(parent, "s2/other", grant=["process.spawn"])
            is_all, above, own = (await process.wait()).result
            assert not is_all
            assert above == own

    run(main())


def test_marks_travel():
    """What a marked process sends, spawns and ends with abroad marks whom it reaches."""

    async def marked(ctx, other):
        ctx.own_process.core.taint.mark(ctx.pid, "a page")
        await ctx.send(other, "text")
        child = ctx.spawn(ear, shard="s2", pid="child")
        await ctx.send(child, "hello")
        await ctx.receive()
        return "words"

    async def waits(ctx, address):
        await ctx.process(address).wait()
        diary.append("waited")
        await ctx.receive()

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="ear")
            world["s1"].spawn(marked, "s2/ear", pid="marked")
            world["s2"].spawn(waits, "s1/marked", pid="waits")
            await until(lambda: len(diary) == 2)
            assert world["s2"].taint.is_tainted("ear")
            assert world["s2"].taint.is_tainted("child")
            assert not world["s2"].taint.is_tainted("waits")
            await world["s1"].send("marked", "end")
            await until(lambda: "waited" in diary)
            assert world["s2"].taint.is_tainted("waits")

    run(main())


def test_from_outside():
    """kernel.process, send, kill, link, monitor and whereis work with addresses of other shards."""

    async def main():
        async with shards() as world:
            kernel = world["s1"]
            there = world["s2"].spawn(ear, pid="there")
            handle = kernel.process("s2/there")
            assert handle.alive
            assert handle.pid == "s2/there"
            assert repr(handle) == "<HandleAbroad s2/there>"
            with pytest.raises(ConfigError, match="another shard"):
                _ = handle.state
            here = kernel.spawn(links, "s2/there", pid="here")
            kernel.spawn(quiet, pid="tied")
            await kernel.link("tied", handle)
            seen: list[Any] = []
            kernel.monitor(handle, seen.append)
            with pytest.raises(ConfigError, match="neither"):
                kernel.link("s2/there", "s2/other")
            await handle.send("hello")
            await until(lambda: len(world["s2"].core.remote.ties.links.get("there", ())) == 2)
            assert kernel.process("s1/here").pid == "here"
            await handle.kill("enough")
            assert (await handle.wait()).reason == "enough"
            assert (await there.wait()).reason == "enough"
            assert (await here.wait()).reason == (await kernel.process("tied").wait()).reason == "linked"
            await until(lambda: seen)
            assert (seen[0].pid, seen[0].reason) == ("s2/there", "enough")

    run(main())


def test_a_caller_outside_is_told_that_the_kernel_closes():
    """A wait from outside does not outlive its kernel, and the next life takes the watch back."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(ear, pid="there")
            waiting = asyncio.ensure_future(world["s1"].process("s2/there").wait())
            await until(lambda: world["s2"].core.remote.ties.watchers.get("there"))
            kernel = world.kernels.pop("s1")
            await kernel.close()
            with pytest.raises(LyraError, match="kernel stopped"):
                await waiting
            await world.open("s1")
            await until(lambda: not world["s2"].core.remote.ties.watchers.get("there"))

    run(main())


def test_a_diverged_process_has_not_ended():
    """A watch of a process whose program does not fit its journal waits for the right program."""

    async def main():
        async def first(ctx):
            await ctx.sleep(1)
            return await ctx.receive()

        async def other(ctx):
            ctx.now()
            return await ctx.receive()

        other.__qualname__ = first.__qualname__
        async with Shards("s1", "s2", programs=[first]) as world:
            world["s2"].spawn(first, pid="there")
            await asyncio.sleep(2)
            world.programs = [other]
            await world.restart("s2")
            await until(lambda: world["s2"].processes["there"].exit is not None)
            waiting = asyncio.ensure_future(world["s1"].process("s2/there").wait())
            await asyncio.sleep(5)
            assert not waiting.done()
            world.programs = [first]
            await world.restart("s2")
            await world["s1"].send("s2/there", "hello")
            assert (await waiting).result == "hello"

    run(main())


def test_a_snapshot_of_a_shard_has_what_its_parts_know():
    """A shard that comes back from a snapshot knows its ties, children, refusals and posts."""

    async def main():
        async with shards(snapshot_every_events=20) as world:
            world["s2"].spawn(ear, pid="ear")
            world["s1"].spawn(traps, "s2/ear", pid="traps")
            world["s1"].spawn(monitors, "s2/ear", pid="monitors")
            world["s1"].spawn(spawns_and_waits, "ear", pid="waits")
            await until(lambda: world["s2"].live == 2 and world["s2"].core.remote.ties.links)
            for number in range(40):
                await world["s1"].send("s2/ear", number)
            await until(lambda: len(diary) == 41)
            for name in ("s1", "s2"):
                kernel = world.kernels.pop(name)
                before = kernel.core.remote.state.dump()
                await kernel._recovery._snapshots.write()
                await kernel.close()
                assert "~remote" in world.stores[name].load_snapshots().states
                await world.open(name)
                assert world[name].core.remote.state.dump()["parts"] == before["parts"]
            diary.clear()
            (child,) = [process.pid for process in world["s2"].processes.values() if process.pid != "ear"]
            await world["s1"].send(f"s2/{child}", {"result": 5})
            await world["s1"].send("s2/ear", "crash")
            assert (await world["s1"].process("waits").wait()).result[1] == 5
            await until(lambda: sum(isinstance(seen, (Down, ExitSignal)) for seen in diary) == 2)

    run(main())


def test_a_plain_kernel_says_what_the_store_of_a_shard_is():
    """It is refused with a sentence, from rows and from a snapshot; readers read it."""
    from lyra.agents.turn.unfinished import read_agent
    from lyra.errors import ProcessError, StoreError
    from lyra.kernel import Kernel
    from lyra.kernel.journal.history import Fold
    from lyra.store.ended import load_all

    async def main():
        async with shards() as world:
            world["s1"].spawn(spawns_and_waits, "ear", pid="parent")
            await until(lambda: world["s2"].live == 1)
            for snapshot in (False, True):
                for name in ("s1", "s2"):
                    if name not in world.kernels:
                        await world.open(name)
                    kernel = world.kernels.pop(name)
                    if snapshot:
                        await kernel._recovery._snapshots.write()
                    await kernel.close()
                    store: Any = world.stores[name]
                    assert ("~remote" in store.load_snapshots().states) == snapshot
                    with pytest.raises(StoreError, match="is a shard of a cluster"):
                        await Kernel(store).start()
                    loaded = load_all(store)
                    fold = Fold.load(loaded.seq, loaded.states)
                    fold.add_all(store.read(after=loaded.seq))
                    assert fold.is_shard
                    assert len(fold.processes) == 1
                    with pytest.raises(ProcessError, match="has no process nobody"):
                        read_agent(store, "nobody")
            for name in ("s1", "s2"):
                await world.open(name)

    run(main())


def test_a_guard_abroad():
    """A program with a supervision of its own is spawned abroad with its guard: it is restarted there, under one
    address, and its parent gets the end of the last."""

    async def shaky(ctx):
        tries.append(ctx.pid)
        message = await ctx.receive()
        if message == "crash":
            raise ValueError("boom")
        return [message, ctx.address]

    async def parent(ctx):
        child = ctx.spawn(shaky, supervision="restart", shard="s2")
        for message in ("crash", "crash", "end"):
            await child.send(message)
            await ctx.sleep(1.0)
        ended = await child.wait()
        return [ended.reason, ended.result, child.pid]

    async def main():
        async with Shards("s1", "s2", programs=[shaky]) as world:
            reason, result, address = (await world["s1"].spawn(parent).wait()).result
            assert (reason, result) == ("normal", ["end", address])
            assert len(tries) == 3
            await until(lambda: nothing_left(world))

    run(main())


def test_a_checkpoint_keeps_children_links_and_waits():
    """A program that has forgotten its answers is still tied to what it spawned, and waits for it."""

    async def boss(ctx):
        kept = ctx.restored
        if kept is None:
            ctx.trap_exit(True)
            child = ctx.spawn(ear, shard="s2")
            ctx.link(child)
            kept = child.pid
            await ctx.checkpoint(kept)
        ended = await ctx.process(kept).wait()
        return [ended.result, (await ctx.receive()).pid == kept]

    async def main():
        async with Shards("s1", "s2", programs=[boss, ear]) as world:
            world["s1"].spawn(boss, pid="boss")
            await until(lambda: world["s2"].core.remote.ties.watchers)
            await world.restart("s1", "s2")
            await until(lambda: world["s2"].live == 1)
            (child,) = [process.pid for process in world["s2"].processes.values()]
            await world["s2"].send(child, {"result": 7})
            assert (await world["s1"].process("boss").wait()).result == [7, True]

    run(main())


def test_a_fork_stays_on_one_shard():
    """A run that has spawned abroad is not forked behind that: the fork would meddle with the children of the run."""
    from lyra.kernel.forks import start_fork
    from lyra.kernel.journal.fork_rows import ForkPoint

    async def boss(ctx):
        before = ctx.now()
        child = ctx.spawn(ear, shard="s2")
        await ctx.receive()
        return [before, child.pid]

    async def main():
        async with Shards("s1", "s2", programs=[boss, ear]) as world:
            world["s1"].spawn(boss, pid="boss")
            await until(lambda: world["s2"].live == 1)
            records = list(world.stores["s1"].read())
            with pytest.raises(ConfigError, match="a fork stays on one shard"):
                await start_fork(world["s1"], ForkPoint("boss", 1, records[-1].seq + 1, "boss"), records)
            spawned = next(row.seq for row in records if row.kind == "remote.posted")
            fork = await start_fork(world["s1"], ForkPoint("boss", 1, spawned, "boss"), records)
            await until(lambda: world["s2"].live == 2)
            await world["s1"].send(fork, "end")
            assert (await world["s1"].process(fork).wait()).result[1] != f"s2/{records[0].pid}"

    run(main())
