"""Messages between shards: once, in order, and never more than a mailbox abroad should hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.core import codec
from lyra.core.limits import MESSAGES_ON_TRUST
from lyra.errors import LyraError, Overloaded
from lyra.kernel.process.cut_short import GIVEN_UP
from lyra.kernel.remote.messages import Messages
from tests.kernel.remote.world import Shards, run, until

LIMIT = 8  # messages in a mailbox of these tests
BEYOND = LIMIT  # as many of one shard may be there beyond it: the trust is not above the limit

got: list[Any] = []
sent: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    got.clear()
    sent.clear()


async def slow(ctx, count, pause_s=1.0):
    for _ in range(count):
        got.append(await ctx.receive())
        await ctx.sleep(pause_s)
    return "done"


async def asleep(ctx):
    await ctx.sleep(1_000)
    while True:
        got.append(await ctx.receive())


async def sender(ctx, address, count, label=""):
    for number in range(count):
        await ctx.send(address, f"{label}{number}")
        sent.append(f"{label}{number}")
    return "sent"


async def careless(ctx, address, count):
    for number in range(count):
        ctx.send(address, str(number))
    return "sent"


async def echoes(ctx):
    while True:
        back, value = await ctx.receive()
        await asyncio.sleep(0.01)  # the sender hears that its message has arrived before it has the answer
        ctx.send(back, value)


async def asks(ctx, to, own, rounds):
    for number in range(rounds):
        ctx.send(to, [own, number])
        assert await ctx.receive() == number
    return rounds


def shards(*names: str, limit: int = LIMIT) -> Shards:
    return Shards(
        *(names or ("s1", "s2")), programs=[slow, asleep, sender, careless, echoes, asks], mailbox_messages_max=limit
    )


def waiting_in(world: Shards, name: str, pid: str) -> int:
    return len(world[name].processes[pid].inbox or ())


@pytest.mark.parametrize("count", [1, 5, 500])
def test_messages_arrive_in_order(count):
    """All that was sent arrives once and in order, also more than a mailbox holds; every send is held back."""

    async def main():
        async with shards() as world:
            there = world["s2"].spawn(slow, count, 0.01, pid="slow")
            await world["s1"].spawn(sender, "s2/slow", count).wait()
            assert (await there.wait()).result == "done"
            assert got == [str(number) for number in range(count)]

    run(main())


def test_a_full_mailbox_abroad_holds_its_sender_back():
    """A sender stops when the mailbox abroad is full, with a bounded number beyond the limit, and continues as it is
    read."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 100, pid="slow")
            here = world["s1"].spawn(sender, "s2/slow", 100)
            most = 0
            while here.alive:
                await asyncio.sleep(0.5)
                most = max(most, waiting_in(world, "s2", "slow"))
                assert len(sent) <= len(got) + LIMIT + BEYOND + 1
            assert LIMIT <= most <= LIMIT + BEYOND
            await until(lambda: len(got) == 100)
            assert got == [str(number) for number in range(100)]

    run(main())


def test_a_careless_sender_stands_in_line_all_the_same():
    """Sends that are not awaited wait for room, too; their program may end meanwhile."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 60, 0.1, pid="slow")
            assert (await world["s1"].spawn(careless, "s2/slow", 60).wait()).result == "sent"
            await asyncio.sleep(0.05)
            assert waiting_in(world, "s2", "slow") <= LIMIT + BEYOND
            await until(lambda: len(got) == 60)
            assert got == [str(number) for number in range(60)]

    run(main())


def test_a_full_mailbox_holds_up_no_other_one():
    """Messages for another receiver of that shard go on."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(asleep, pid="full")
            world["s2"].spawn(slow, 200, 0.0, pid="quick")
            world["s1"].spawn(sender, "s2/full", 200)
            await until(lambda: len(sent) >= LIMIT)
            await asyncio.sleep(1.0)
            stuck = len(sent)
            assert stuck <= LIMIT + BEYOND
            other = world["s1"].spawn(sender, "s2/quick", 200)
            assert (await other.wait()).result == "sent"
            await until(lambda: len(got) == 200)
            assert len(sent) == stuck + 200

    run(main())


def test_senders_of_several_shards_take_turns():
    """Each gets room, the local ones among them, and nobody starves."""

    async def main():
        async with shards("s1", "s2", "s3") as world:
            world["s2"].spawn(slow, 90, 0.1, pid="slow")
            for name, label in (("s1", "a"), ("s2", "b"), ("s3", "c")):
                world[name].spawn(sender, "s2/slow", 30, label)
            await until(lambda: len(got) == 90)
            for label in "abc":
                assert [one for one in got if one[0] == label] == [f"{label}{number}" for number in range(30)]
            assert {one[0] for one in got[:60]} == set("abc")

    run(main())


def test_a_receiver_that_ends_lets_its_senders_go():
    """What waits for room in the mailbox of a process that ended is dropped, with an Event."""

    async def main():
        async with shards() as world:
            there = world["s2"].spawn(asleep, pid="full")
            here = world["s1"].spawn(sender, "s2/full", 60)
            await until(lambda: len(sent) >= LIMIT)
            await there.kill()
            assert (await here.wait()).result == "sent"
            await until(lambda: not world["s1"].core.remote.state.posts)

    run(main())


def test_a_sender_that_gives_up_leaves_the_line():
    """A send that is cancelled is not sent, and those behind it are."""

    async def impatient(ctx, address):
        for number in range(30):
            try:
                async with asyncio.timeout(1.0):
                    await ctx.send(address, f"early{number}")
            except TimeoutError:
                break
        await ctx.send(address, "late")
        return number

    async def main():
        async with shards() as world:
            world.programs.append(impatient)
            world["s2"].spawn(asleep, pid="full")
            here = world["s1"].spawn(impatient, "s2/full", pid="here")
            gave_up = (await here.wait()).result
            await until(lambda: "late" in got, within_s=2_000)
            assert got == [*(f"early{number}" for number in range(gave_up)), "late"]

    run(main())


def test_a_send_that_is_given_up_when_its_room_comes_is_given_up_in_a_replay(monkeypatch):
    """The message goes, and the program that was cancelled in that moment continues as it did."""
    tasks: list[asyncio.Future[Any]] = []
    take_room = Messages._take_room

    def take_room_and_cancel(messages, address):
        take_room(messages, address)
        tasks[-1].cancel(GIVEN_UP)

    async def torn(ctx, address):
        for number in range(60):
            tasks.append(asyncio.ensure_future(ctx.send(address, f"m{number}")))
            try:
                await tasks[-1]
            except asyncio.CancelledError:
                break
        await ctx.receive()
        return number

    async def main():
        async with shards() as world:
            world.programs.append(torn)
            monkeypatch.setattr(Messages, "_take_room", take_room_and_cancel)
            world["s2"].spawn(slow, 60, pid="slow")
            world["s1"].spawn(torn, "s2/slow", pid="here")
            await until(lambda: bool(tasks) and tasks[-1].cancelled())
            last = len(tasks) - 1
            monkeypatch.undo()
            await world.restart("s1")
            await world["s1"].send("here", "end")
            assert (await world["s1"].process("here").wait()).result == last
            await until(lambda: f"m{last}" in got)

    run(main())


def test_a_caller_outside_is_held_back():
    """kernel.send waits for room abroad, and fails with a sentence where its kernel closes."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(asleep, pid="full")
            acks = [world["s1"].send("s2/full", number) for number in range(LIMIT + BEYOND + 2)]
            sending = [asyncio.ensure_future(_await(ack)) for ack in acks]
            await asyncio.sleep(1.0)
            assert not sending[-1].done()
            kernel = world.kernels.pop("s1")
            await kernel.close()
            with pytest.raises(LyraError, match="found no room"):
                await sending[-1]
            await world.open("s1")

    async def _await(ack):
        await ack

    run(main())


@pytest.mark.parametrize("who", [("s1",), ("s2",), ("s1", "s2")])
def test_killed_while_the_mailbox_is_full(who):
    """Killed again and again, nothing is lost or repeated, and no restart lets more in."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 80, pid="slow")
            world["s1"].spawn(sender, "s2/slow", 80, pid="sender")
            most = 0
            for _ in range(12):
                await asyncio.sleep(3.3)
                most = max(most, waiting_in(world, "s2", "slow"))
                await world.restart(*who)
            ended = await world["s2"].process("slow").wait()
            assert ended.result == "done"
            assert most <= LIMIT + 2 * BEYOND
            rows = list(world.stores["s2"].read(kind="message.received"))
            assert len(rows) == 80
        texts = [codec.decode(row.data) for row in world.stores["s2"].read(kind="message.sent")]
        assert [row["message"] for row in texts] == [str(number) for number in range(80)]

    run(main())


def test_sends_cost_no_answer_each():
    """A shard that keeps up answers a small part of the messages, and one that sends little is answered nothing."""

    async def main():
        async with shards(limit=1_000) as world:
            world["s2"].spawn(slow, 1_000, 0.0, pid="quick")
            await world["s1"].send("s2/quick", "one")
            await until(lambda: len(got) == 1)
            assert "s1" not in world["s2"].core.remote.state.numbers
            await world["s1"].spawn(sender, "s2/quick", 999).wait()
            await until(lambda: len(got) == 1_000)
            assert world["s2"].core.remote.state.numbers["s1"] <= 2 * 1_000 / (MESSAGES_ON_TRUST // 2)

    run(main())


def test_a_client_is_refused_at_a_full_mailbox():
    """A client of the cluster, who has no line, is told to come again; what it repeats is taken once."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(asleep, pid="full")
            remote = world["s2"].core.remote

            async def post(number):
                data = {"to": "full", "form": "", "message": codec.encode(number)}
                return await remote.take("~client", number, [codec.encode(["message", data])])

            for number in range(1, LIMIT + 1):
                assert await post(number) == await post(number) == number
            with pytest.raises(Overloaded):
                await post(LIMIT + 1)
            assert waiting_in(world, "s2", "full") == LIMIT

    run(main())


def test_a_post_of_a_newer_version_waits():
    """A shard that does not know a kind of post refuses it and those behind it, also when it is opened again; the
    version that knows it takes all, once and in their order."""
    from lyra.kernel.remote.part import RemotePart

    taken: list[Any] = []

    class News(RemotePart):
        NAME = "news"
        SENDS = frozenset({"news"})

        def take(self, sender, what, data, before):
            taken.append([sender, data["text"], len(data["blob"]), list(got)])

    def knows(kernel):
        remote = kernel.core.remote
        part = News()
        remote.parts.append(part)
        remote.state.add(part)

    async def main():
        async with shards() as world:
            knows(world["s1"])
            world["s2"].spawn(slow, 2, pid="slow")
            await world["s1"].send("s2/slow", "before")
            world["s1"].core.remote.post("s2", "news", {"text": "hear", "blob": b"x" * 100_000})
            await world["s1"].send("s2/slow", "behind")
            await until(lambda: got == ["before"])
            await asyncio.sleep(30.0)
            await world.restart("s2")
            await asyncio.sleep(30.0)
            assert set(got) == {"before"}  # a second time by the program that was brought back
            assert not taken
            assert sorted(world["s1"].core.remote.state.posts["s2"]) == [2, 3]
            knows(world["s2"])
            await until(lambda: "behind" in got)
            assert [[*news[:3], set(news[3])] for news in taken] == [["s1", "hear", 100_000, {"before"}]]
            assert got.count("behind") == 1
            await until(lambda: not world["s1"].core.remote.state.posts)

    run(main())


def test_posts_are_carried_at_once_to_a_shard_that_has_moved():
    """A shard that was away for long is tried again only every two seconds, and at once when it is said to be back."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 1, pid="slow")
            await world["s2"].durable()
            world.kill("s2")
            await world["s1"].send("s2/slow", "hurry")
            await asyncio.sleep(20.0)
            await world.open("s2")
            opened_s = asyncio.get_running_loop().time()
            world["s1"].core.remote.hurry("s2")
            await until(lambda: got == ["hurry"])
            assert asyncio.get_running_loop().time() - opened_s < 0.5

    run(main())


def test_the_row_of_a_delivery_holds_up_no_answer():
    """Messages there and back take one commit of the shard that begins: that a post has arrived is written with the
    next one, and a little later where there is none."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echoes, pid="echoes")
            commits = world["s1"].core.journal.commits
            assert (await world["s1"].spawn(asks, "s2/echoes", "s1/asks", 20, pid="asks").wait()).result == 20
            posts = world["s1"].core.remote.state.numbers["s2"]  # 20 messages, and some that ask for room
            assert world["s1"].core.journal.commits - commits <= posts + 3
            await asyncio.sleep(1.0)
            await world["s1"].durable()
            rows = [row for row in world.stores["s1"].read() if row.kind == "remote.acknowledged"]
            assert codec.decode(rows[-1].data)["n"] == posts

    run(main())


def test_a_post_that_cannot_be_taken_holds_up_nobody():
    """The mistake of one post is reported, and the next are taken."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 1, pid="slow")
            world["s1"].core.remote.post("s2", "stop", {"pid": "slow"})
            world["s1"].core.remote.post("s2", "unwatch", {"ref": "r"})
            await world["s1"].send("s2/slow", "behind")
            await until(lambda: got == ["behind"])

    run(main(), expected=("'stop' of shard s1 cannot be taken", "'unwatch' of shard s1 cannot be taken"))


def test_an_answer_is_posted_however_many_wait(monkeypatch):
    """A program is told when too many posts wait for a shard; the end of a process is told all the same."""
    monkeypatch.setattr("lyra.kernel.remote.posts.POSTS_WAITING_MAX", 3)

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 1, pid="slow")
            waiting = asyncio.ensure_future(world["s1"].process("s2/slow").wait())
            await until(lambda: world["s2"].core.remote.ties.watchers.get("slow"))
            world.cut.add(("s2", "s1"))
            for number in range(3):
                await world["s2"].send("s1/nobody", number)
            with pytest.raises(Overloaded):
                world["s2"].send("s1/nobody", 3)
            await world["s2"].send("slow", "end")
            await asyncio.sleep(5.0)
            world.cut.clear()
            assert (await waiting).result == "done"

    run(main())


def test_a_sender_killed_again_and_again_overfills_no_mailbox():
    """What a shard sent before it was killed is not known to its next life, which asks for room with its first
    message."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(asleep, pid="full")
            for _ in range(12):
                for number in range(LIMIT // 2 - 1):
                    world["s1"].send("s2/full", number)
                await asyncio.sleep(0.5)
                await world.restart("s1")
            assert LIMIT <= waiting_in(world, "s2", "full") <= LIMIT + BEYOND

    run(main())


def test_a_post_leaves_when_it_is_durable():
    """A post whose row the disk has no room for waits, and one in front of it does not."""
    from lyra.errors import StoreFull

    async def main():
        async with shards() as world:
            world["s2"].spawn(slow, 2, 0.0, pid="slow")
            world.cut.add(("s1", "s2"))
            await world["s1"].send("s2/slow", "first")
            disk: Any = world["s1"].journal.store
            append = disk.store.append

            def refuse(records, epoch):
                raise StoreFull("no room")

            disk.append = refuse
            world["s1"].send("s2/slow", "second")
            await asyncio.sleep(0.5)
            world.cut.clear()
            await until(lambda: got)
            await asyncio.sleep(5.0)
            assert got == ["first"]
            disk.append = append
            await until(lambda: got == ["first", "second"])

    run(main())


async def tells_of_its_child(ctx, third):
    child = ctx.spawn(keeps, shard="b")
    await ctx.send(third, child.pid)
    return (await child.wait()).result


async def writes_to_what_it_is_told(ctx):
    address = await ctx.receive()
    await ctx.send(address, "first")
    await ctx.send(address, "second")
    ref = ctx.monitor(address)
    down = await ctx.receive()
    return [down.ref == ref, down.reason]


async def keeps(ctx):
    return [await ctx.receive(), await ctx.receive()]


@pytest.mark.parametrize("killed", [False, True])
def test_a_message_that_overtakes_the_spawn_of_its_receiver_waits_for_it(killed):
    """A spawns on B and tells C; what C posts to B meanwhile arrives first, is put aside, and outlives a kill of B."""

    async def main() -> None:
        async with Shards("a", "b", "c", programs=[tells_of_its_child, writes_to_what_it_is_told, keeps]) as shards:
            third = shards["c"].spawn(writes_to_what_it_is_told)
            shards.cut.add(("a", "b"))
            first = shards["a"].spawn(tells_of_its_child, f"c/{third.pid}")
            await until(lambda: len(shards["b"].core.remote.state.early.get("a.1", ())) == 3)
            if killed:
                await shards.restart("b")
            shards.cut.clear()
            assert (await first.wait()).result == ["first", "second"]
            assert (await shards["c"].process(third.pid).wait()).result == [True, "normal"]
            assert shards["b"].core.remote.state.early == {}

    run(main())
