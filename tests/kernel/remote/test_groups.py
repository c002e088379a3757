"""Groups over several shards: copies that become what the home has, broadcasts by shard, compare-and-set at home."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from lyra.core import codec
from lyra.core.ids import make_random
from lyra.core.limits import BLACKBOARD_KEYS_MAX
from lyra.errors import InvalidTransition, LyraError, NameTaken, NoSuchGroup, Overloaded
from lyra.kernel.programs.context import Context
from lyra.kernel.remote import posts
from lyra.kernel.remote.part import home_of
from tests.kernel.remote.wired import Killer, Shards, run_shards


async def listens(ctx: Context) -> list[Any]:
    heard: list[Any] = []
    while (message := await ctx.receive()) != "stop":
        heard.append(message)
    return heard


async def ends(ctx: Context) -> None:
    await ctx.receive()


PROGRAMS = (listens, ends)


def boards(shards: Shards, name: str) -> list[Any]:
    return [kernel.groups.bb_snapshot(name) for kernel in shards.kernels.values()]


def test_the_home_of_a_name_is_found_once(monkeypatch):
    """It takes a hash for each shard of the cluster, and a name is used often; a kernel remembers so many names."""
    found: list[str] = []

    def find(name: str, shards: Any) -> str:
        found.append(name)
        return home_of(name, shards)

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            monkeypatch.setattr(posts, "home_of", find)
            monkeypatch.setattr(posts, "_HOMES_KEPT", 2)
            remote = shards["a"].core.remote
            homes = [remote.home_of(name) for name in ("x", "y", "x", "y")]
            assert homes == [home_of(name, ("a", "b")) for name in ("x", "y", "x", "y")]
            assert found == ["x", "y"]
            assert remote.home_of("z") == home_of("z", ("a", "b"))
            assert len(remote._homes) == 1

    run_shards(main)


def test_every_shard_creates_joins_writes_and_reads():
    """What one shard writes, all read; members are named by their addresses; versions of copies grow."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["b"].groups.create(group)
            first, second = shards["b"].spawn(listens), shards["c"].spawn(listens)
            await shards.settle()
            assert shards["b"].groups.join(group, first)
            assert shards["c"].groups.join(group, second)
            assert not shards["c"].groups.join(group, second)
            shards["b"].groups.bb_set(group, "x", {"n": 1})
            assert shards["b"].groups.bb_get(group, "x") == {"n": 1}  # a shard reads what it wrote
            await shards.settle()
            assert shards["c"].groups.bb_get(group, "x") == {"n": 1}
            assert set(shards["a"].groups.members(group)) == {f"b/{first.pid}", f"c/{second.pid}"}
            assert set(shards["c"].groups.members(group)) == {f"b/{first.pid}", second.pid}
            before = shards["c"].groups.get(group).version
            shards["a"].groups.bb_set(group, "y", 2)
            assert shards["c"].groups.bb_delete(group, "x")
            await shards.settle()
            assert boards(shards, group) == [{"y": 2}] * 3
            assert shards["c"].groups.get(group).version > before
            assert shards["b"].groups.leave(group, first)
            await shards.settle()
            assert shards["a"].groups.members(group) == [f"c/{second.pid}"]

    run_shards(main)


def test_a_broadcast_is_one_post_a_shard():
    """Fifty members on another shard hear of a message by one post; those left out do not hear it."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            far = [shards["b"].spawn(listens) for _ in range(50)]
            near = shards["c"].spawn(listens)
            for process in far:
                shards["b"].groups.join(group, process)
            shards["c"].groups.join(group, near)
            await shards.settle()
            numbers = dict(shards["c"].core.remote.state.numbers)
            outcome = shards["c"].groups.broadcast(group, "hello", exclude=f"b/{far[0].pid}")
            assert outcome == {near.pid: None, **{f"b/{process.pid}": None for process in far[1:]}}
            now = shards["c"].core.remote.state.numbers
            assert now.get("b", 0) - numbers.get("b", 0) == 1
            assert now.get("a", 0) == numbers.get("a", 0)  # it has no member
            await shards.settle()
            for process in [*far, near]:
                kernel = shards["c"] if process is near else shards["b"]
                kernel.send(process.pid, "stop")
            heard = [(await process.wait()).result for process in [*far, near]]
            assert heard == [[], *[["hello"]] * 50]

    run_shards(main)


def test_a_shard_without_a_copy_broadcasts_too():
    """A shard that has neither joined nor read a group knows which shards have members."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            process = shards["b"].spawn(listens)
            shards["b"].groups.join(group, process)
            await shards.settle()
            shards["c"].groups.broadcast(group, "hello")
            await shards.settle()
            shards["b"].groups.leave(group, process)
            await shards.settle()
            numbers = dict(shards["c"].core.remote.state.numbers)
            shards["c"].groups.broadcast(group, "again")
            assert shards["c"].core.remote.state.numbers == numbers
            shards["b"].send(process.pid, "stop")
            assert (await process.wait()).result == ["hello"]

    run_shards(main)


def test_changes_are_posted_to_readers_alone():
    """A shard that has not asked for a group is not told of its board; its first read makes it a reader."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            numbers = dict(shards["a"].core.remote.state.numbers)
            shards["a"].groups.bb_set(group, "x", 1)
            assert shards["a"].core.remote.state.numbers == numbers
            await shards.settle()
            assert shards["b"].groups.bb_get(group, "x") is None  # the copy of version 0
            assert (await shards["b"].groups.refresh(group)).keys == ("x",)
            assert shards["b"].groups.bb_get(group, "x") == 1
            shards["a"].groups.bb_set(group, "x", 2)
            assert shards["a"].core.remote.state.numbers["c"] == numbers["c"]
            await shards.settle()
            assert shards["b"].groups.bb_get(group, "x") == 2
            await shards["b"].durable()
            copied = list(shards.stores["b"].read(kind="group.copied"))
            assert [codec.decode(row.data)["kept"]["board"].keys() for row in copied] == [{"x"}]

    run_shards(main)


def test_own_writes_are_read_until_the_home_has_settled_them():
    """A write of another shard that the home took first does not show up over a newer one of this shard."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            for name in ("b", "c"):
                await shards[name].groups.refresh(group)
            shards.cut.add(("b", "a"))
            shards["b"].groups.bb_set(group, "x", "b's")
            shards["c"].groups.bb_set(group, "x", "c's")
            await asyncio.sleep(10)
            assert shards["c"].groups.bb_get(group, "x") == "c's"
            assert shards["b"].groups.bb_get(group, "x") == "b's"
            shards.cut.clear()
            await shards.settle()
            assert boards(shards, group) == [{"x": "b's"}] * 3

    run_shards(main)


def test_a_copy_that_arrives_late_hides_no_own_write():
    """A shard that reads, writes and only then gets the copy that it asked for still reads what it wrote."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            for key in ("x", "y", "z"):
                shards["a"].groups.bb_set(group, key, "a's")
            await shards.settle()
            shards.cut.add(("a", "b"))
            assert shards["b"].groups.bb_get(group, "x") is None
            await asyncio.sleep(5)
            process = shards["b"].spawn(listens)
            shards.cut.add(("b", "a"))
            shards["b"].groups.bb_set(group, "x", "b's")
            shards["b"].groups.bb_set(group, "z", 1)
            shards["b"].groups.bb_delete(group, "z")
            shards["b"].groups.join(group, process)
            shards.cut.remove(("a", "b"))
            await asyncio.sleep(5)
            assert shards["b"].groups.bb_snapshot(group) == {"x": "b's", "y": "a's"}
            assert shards["b"].groups.members(group) == [process.pid]
            assert shards["a"].groups.bb_get(group, "x") == "a's"
            shards.cut.clear()
            await shards.settle()
            assert boards(shards, group) == [{"x": "b's", "y": "a's"}] * 2
            assert shards["a"].groups.members(group) == [f"b/{process.pid}"]

    run_shards(main)


def test_one_of_several_that_compare_wins():
    """Twelve writers on three shards count up by compare-and-set: no step is lost or made twice."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            won: list[int] = []

            async def count(name: str) -> None:
                groups = shards[name].groups
                while len(won) < 30:
                    await groups.refresh(group)
                    last = groups.bb_get(group, "n")
                    if await groups.bb_compare(group, "n", last, (last or 0) + 1):
                        won.append((last or 0) + 1)

            async with asyncio.TaskGroup() as tasks:
                for name in "abcabcabcabc":
                    tasks.create_task(count(name))
            assert sorted(won) == list(range(1, len(won) + 1))
            await shards.settle()
            assert boards(shards, group) == [{"n": len(won)}] * 3

    run_shards(main)


def test_names_are_unique_and_groups_with_members_stay():
    """Two shards that create a name at once: awaiting says who came second. A group with members is not deleted."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            acks = [shards[name].groups.create(group) for name in ("b", "c")]
            taken = 0
            for ack in acks:
                try:
                    await ack
                except NameTaken:
                    taken += 1
            assert taken == 1
            await shards.settle()
            assert all(kernel.groups.names() == [group] for kernel in shards.kernels.values())
            await shards["b"].groups.create(group, exist_ok=True)
            process = shards["b"].spawn(listens)
            shards["b"].groups.join(group, process)
            await shards.settle()
            with pytest.raises(InvalidTransition):
                await shards["c"].groups.delete_group(group)
            process.kill()
            await shards.settle()
            await shards["c"].groups.delete_group(group)
            await shards.settle()
            assert all(kernel.groups.names() == [] for kernel in shards.kernels.values())
            with pytest.raises(NoSuchGroup):
                shards["b"].groups.bb_get(group, "x")

    run_shards(main)


def test_a_join_that_meets_a_deletion_is_undone():
    """A process that joins while the home deletes the group is no member anywhere, also of a new one of that name."""

    async def main() -> None:
        async with Shards("a", "b", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            process = shards["b"].spawn(listens)
            shards["b"].groups.join(group, process)
            shards["a"].groups.delete_group(group)
            shards["a"].groups.create(group)
            await shards.settle()
            for kernel in shards.kernels.values():
                assert kernel.groups.members(group) == []
            assert shards["b"].groups.groups_of(process.pid) == []

    run_shards(main)


def test_processes_abroad_are_put_in_and_taken_out():
    """A shard may have a process of another one join and leave; it is that shard that does it."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            process = shards["b"].spawn(ends, name="worker")
            assert shards["c"].groups.join(group, f"b/{process.pid}")
            await shards.settle()
            assert shards["b"].groups.members(group) == [process.pid]
            assert shards["c"].groups.leave(group, f"b/{process.pid}") is True
            await shards.settle()
            assert shards["a"].groups.members(group) == []
            heard: list[Any] = []
            shards["a"].groups.on_join(lambda name, pid: heard.append((name, pid)))
            shards["c"].groups.join(group, "b/worker")
            await shards.settle()
            assert heard == [(group, f"b/{process.pid}")]
            shards["b"].send(process.pid, "end")
            await process.wait()
            await shards.settle()
            assert shards["a"].groups.members(group) == shards["c"].groups.members(group) == []

    run_shards(main)


def test_a_full_board_takes_a_write_back(monkeypatch):
    """Two shards that fill the last place at once: the second value is taken back where it was written."""
    monkeypatch.setattr("lyra.kernel.remote.groups.BLACKBOARD_KEYS_MAX", 1)
    assert BLACKBOARD_KEYS_MAX > 1

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            for name in ("b", "c"):
                await shards[name].groups.refresh(group)
            shards["b"].groups.bb_set(group, "x", 1)
            shards["c"].groups.bb_set(group, "y", 2)
            await shards.settle()
            assert boards(shards, group)[0] in ({"x": 1}, {"y": 2})
            assert boards(shards, group) == [boards(shards, group)[0]] * 3

    run_shards(main)


def test_too_many_posts_refuse_a_write_and_lose_no_change(monkeypatch):
    """Where the posts for the home are at their limit a write is refused and not seen; what a home has to tell, and the
    end of a member, is told all the same."""
    monkeypatch.setattr("lyra.kernel.remote.posts.POSTS_WAITING_MAX", 3)

    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            member = shards["b"].spawn(ends)
            shards["b"].groups.join(group, member)
            await shards["c"].groups.refresh(group)
            await shards.settle()
            shards.cut |= {("a", "b"), ("a", "c"), ("b", "a"), ("b", "c")}
            for number in range(3):
                shards["b"].groups.bb_set(group, "b", number)
            with pytest.raises(Overloaded):
                shards["b"].groups.bb_set(group, "b", 3)
            assert shards["b"].groups.bb_get(group, "b") == 2
            shards["b"].send(member.pid, "end")
            await member.wait()
            for number in range(6):
                shards["a"].groups.bb_set(group, "a", number)
            await asyncio.sleep(1)
            shards.cut.clear()
            await shards.settle()
            assert boards(shards, group) == [{"a": 5, "b": 2}] * 3
            assert [kernel.groups.members(group) for kernel in shards.kernels.values()] == [[]] * 3
            others = [shards["b"].spawn(ends), shards["c"].spawn(ends)]
            shards["b"].groups.join(group, others[0])
            shards["c"].groups.join(group, others[1])
            await shards.settle()
            shards.cut.add(("a", "b"))
            outcomes = [shards["a"].groups.broadcast(group, number) for number in range(5)]
            errors = [outcome[f"b/{others[0].pid}"] for outcome in outcomes]
            assert errors[:3] == [None] * 3
            assert isinstance(errors[4], Overloaded)
            assert all(outcome[f"c/{others[1].pid}"] is None for outcome in outcomes[:3])

    run_shards(main)


def test_a_denied_member_abroad_is_left_out():
    """A process that may not send to a member on another shard does not reach it by a broadcast, either."""

    async def tells(ctx: Context, group: str) -> dict[str, str]:
        groups = ctx.groups

        async def act() -> dict[str, str]:
            outcome = groups.broadcast(group, "hello")
            return {pid: "" if error is None else error.code for pid, error in outcome.items()}

        result: dict[str, str] = await ctx.do(act)
        return result

    async def main() -> None:
        async with Shards("a", "b", programs=(*PROGRAMS, tells)) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            members = [await shards["b"].spawn(listens, pid=f"m{number}") for number in range(2)]
            for member in members:
                shards["b"].groups.join(group, member)
            await shards.settle()
            grant = {"allow": ["process.send"], "deny": ["process.send:b/m1"]}
            outcome = (await shards["a"].spawn(tells, group, grant=grant).wait()).result
            assert outcome == {"b/m0": "", "b/m1": "capability_denied"}
            await shards.settle()
            for member in members:
                shards["b"].send(member.pid, "stop")
            assert [(await member.wait()).result for member in members] == [["hello"], []]

    run_shards(main)


def test_taint_travels_with_values_and_broadcasts():
    """A value of a marked process marks who reads it on another shard; so does its broadcast each member there."""

    async def writes(ctx: Context, group: str) -> None:
        kernel = ctx.own_process.core.face
        kernel.taint.mark(ctx.pid, "a page")

        async def act() -> None:
            kernel.groups.bb_set(group, "x", "text")
            kernel.groups.broadcast(group, "more")

        await ctx.do(act)

    async def reads(ctx: Context, group: str) -> bool:
        kernel = ctx.own_process.core.face

        async def act() -> Any:
            return kernel.groups.bb_get(group, "x")

        assert await ctx.do(act) == "text"
        return bool(kernel.taint.is_tainted(ctx.pid))

    async def main() -> None:
        async with Shards("a", "b", "c", programs=(*PROGRAMS, writes, reads)) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            member = shards["c"].spawn(listens)
            shards["c"].groups.join(group, member)
            await shards.settle()
            assert not shards["c"].taint.is_tainted(member.pid)
            await shards["b"].run(writes, group)
            await shards.settle()
            assert shards["c"].taint.is_tainted(member.pid)
            assert await shards["c"].run(reads, group) is True
            await shards["a"].groups.refresh(group)
            assert await shards["a"].run(reads, group) is True
            await shards.reopen("c")
            assert await shards["c"].run(reads, group) is True

    run_shards(main)


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_copies_agree_whatever_is_killed(victim):
    """Shards join, write, wipe, broadcast; one is killed at any point: afterwards all have what the home has, and no
    member heard a message twice or out of order."""

    async def one(at: int) -> int:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            group = shards.named("a")
            await shards["a"].groups.create(group)
            await shards.settle()
            members = {name: await shards[name].spawn(listens, pid=f"m-{name}") for name in ("b", "c")}
            killer = Killer(shards, victim, at)
            with killer.armed():
                for name in members:
                    shards[name].groups.join(group, f"m-{name}")
                for number in range(3):
                    for name in ("a", "b", "c"):
                        shards[name].groups.bb_set(group, f"{name}{number % 2}", number)
                        shards[name].groups.broadcast(group, [name, number])
                    await asyncio.sleep(0.003)
                shards["c"].groups.bb_delete(group, "c0")
                await asyncio.sleep(0.05)
            visited = at - killer.left
            await killer.bring_back()
            await shards.settle()
            for name in ("b", "c"):
                await shards[name].groups.refresh(group)
            found = boards(shards, group)
            assert found[0] == found[1] == found[2], (at, found)
            listed = {name: shards[name].groups.members(group) for name in shards.names}
            wide = {name: {pid if "/" in pid else f"{name}/{pid}" for pid in pids} for name, pids in listed.items()}
            assert wide["a"] == wide["b"] == wide["c"], (at, wide)
            for name in members:
                shards[name].send(f"m-{name}", "stop")
                heard = (await shards[name].process(f"m-{name}").wait()).result
                for sender in ("a", "b", "c"):
                    numbers = [number for who, number in heard if who == sender]
                    assert numbers == sorted(set(numbers)), (at, heard)
            return visited

    async def main() -> None:
        total = await one(1_000_000)
        assert total > 30  # points are visited at all
        for at in range(1, total, max(1, total // 25)):
            await one(at)

    run_shards(main)


class _RandomLife:
    """Random acts on three groups of three shards, with lost calls, kills and returns in between."""

    def __init__(self, shards: Shards, seed: int) -> None:
        self.shards = shards
        self.random = make_random(seed)
        self.groups = [shards.named(home) for home in shards.names]
        self.spawned = 0

    async def act(self) -> None:
        draw, shards = self.random, self.shards
        name = draw.choice([shard for shard in shards.names if shard in shards.kernels])
        kernel, group, key = shards[name], draw.choice(self.groups), draw.choice("xyz")
        what = draw.choice(["set", "set", "set", "unset", "join", "join", "leave", "end", "get", "compare", "delete"])
        try:
            if group not in kernel.groups.names():
                kernel.groups.create(group)
            elif what == "set":
                kernel.groups.bb_set(group, key, draw.randint(0, 9))
            elif what == "unset":
                kernel.groups.bb_delete(group, key)
            elif what == "join":
                self.spawned += 1
                kernel.groups.join(group, kernel.spawn(listens, pid=f"m{self.spawned}"))
            elif what in ("leave", "end"):
                mine = [pid for pid in kernel.groups.members(group) if "/" not in pid]
                if mine and what == "leave":
                    kernel.groups.leave(group, draw.choice(mine))
                elif mine:
                    kernel.kill(draw.choice(mine))
            elif what == "get":
                kernel.groups.bb_get(group, key)
            elif what == "compare":
                work = kernel.groups.bb_compare(group, key, kernel.groups.bb_get(group, key), draw.randint(10, 19))
                kernel.core.tasks.start(self.try_compare(work), name="compare")
            elif not kernel.groups.members(group):
                kernel.groups.delete_group(group)
        except LyraError:
            pass
        await asyncio.sleep(draw.choice([0, 0, 0.001, 0.004, 0.02]))

    async def try_compare(self, work: Any) -> None:
        with suppress(LyraError):
            await work

    async def disturb(self) -> None:
        draw, shards = self.random, self.shards
        name = draw.choice(shards.names)
        what = draw.choice(["cut", "heal", "kill", "open"])
        if what == "cut":
            shards.cut.add((name, draw.choice([other for other in shards.names if other != name])))
        elif what == "heal":
            shards.cut.clear()
        elif what == "kill" and name in shards.kernels and len(shards.kernels) > 1:
            shards.kill(name)
        elif what == "open" and name not in shards.kernels:
            await shards.reopen(name)


def live_at_random(seed: int) -> None:
    async def main() -> None:
        async with Shards("a", "b", "c", programs=PROGRAMS) as shards:
            life = _RandomLife(shards, seed)
            for step in range(120):
                await life.act()
                if step % 8 == 7:
                    await life.disturb()
            shards.cut.clear()
            for name in shards.names:
                if name not in shards.kernels:
                    await shards.reopen(name)
            await shards.settle()
            for group in life.groups:
                names = {name: group in kernel.groups.names() for name, kernel in shards.kernels.items()}
                assert len(set(names.values())) == 1, (seed, group, names)
                if not names["a"]:
                    continue
                for kernel in shards.kernels.values():
                    await kernel.groups.refresh(group)
                await shards.settle()
                found = boards(shards, group)
                assert found == [found[0]] * 3, (seed, group, found)
                wide = []
                for name, kernel in shards.kernels.items():
                    members = kernel.groups.members(group)
                    wide.append({pid if "/" in pid else f"{name}/{pid}" for pid in members})
                    own = [kernel.processes[pid] for pid in members if "/" not in pid]
                    assert all(process.exit is None for process in own), (seed, group)
                assert wide == [wide[0]] * 3, (seed, group, wide)

    run_shards(main, limit_s=10_000)


@pytest.mark.parametrize("seed", range(30))
def test_random_lives_end_alike(seed):
    """Whatever happens on three shards, with calls lost and shards killed: in the end all have the same groups."""
    live_at_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(10, 15))
def test_many_random_lives_end_alike(hundred):
    """Five hundred other seeds."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        live_at_random(seed)
