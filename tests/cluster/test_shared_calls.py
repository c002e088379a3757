"""What a client asks of the whole cluster: names, the inbox, schedules and Events, also while shards move."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from lyra.cluster.calls import read_rows
from lyra.core.clock import SystemClock
from lyra.errors import ConfigError, Conflict, Denied, InvalidTransition, NoSuchInterrupt, NoSuchProcess, StoreError
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.kernel.remote.part import home_of
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until


async def works(ctx: Context, word: str = "") -> str:
    return f"{word}{ctx.pid}"


async def waits(ctx: Context) -> Any:
    return await ctx.receive()


async def asks(ctx: Context) -> str:
    answer = await ctx.ask("May I?", kind="confirmation", message="to go on")
    return f"{answer.text}/{answer.approved}"


async def sends(ctx: Context, address: str, word: str) -> None:
    ctx.send(address, word)


PROGRAMS = (works, waits, asks, sends)


# ---------------------------------------------------------------------- names


def test_a_name_belongs_to_one_shard():
    """A name is found wherever it is; `shard/name` reaches it from abroad; two of one name are told apart."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            assert await client.whereis("editor") is None
            editor = await client.spawn(waits, shard="s3", name="editor")
            found = await client.whereis("editor")
            assert found is not None
            assert found.address == editor.address
            assert world.kernel("s1").whereis("editor") is None
            await (await client.spawn(sends, "s3/editor", "hello", shard="s1")).wait()
            assert (await editor.wait()).result == "hello"
            for shard in ("s1", "s2"):
                await client.spawn(waits, shard=shard, name="editor")
            with pytest.raises(Conflict, match=r"s1/.*, s2/"):
                await client.whereis("editor")

    run_cluster(main)


def test_an_address_of_no_shard_is_told_at_once():
    """No host will ever have it, so it is not waited for as a shard that moves is."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world, asyncio.timeout(5):
            for address in ("s9/p1", "/p1"):
                with pytest.raises(NoSuchProcess, match="no shard"):
                    await world.client.send(address, "hello")
                with pytest.raises(NoSuchProcess, match="no shard"):
                    await world.client.process(address).wait()

    run_cluster(main)


def test_what_a_dead_host_has_is_not_told_as_missing():
    """While a host is dead its names and questions are not said to be nowhere; taken over they are found again."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            editor = await client.spawn(asks, shard="s1", name="editor")
            (row,) = await until(lambda: _all(client.interrupts(), 1))
            await world.kill(world.host_of("s1"))
            with pytest.raises(StoreError):
                await client.whereis("editor")
            with pytest.raises(StoreError):
                await client.resolve_interrupt(row["id"], {"approved": True})
            await world.until_open()
            found = await client.whereis("editor")
            assert found is not None
            await client.resolve_interrupt(row["id"], {"approved": True})
            assert (await editor.wait()).result == "/True"
            assert await client.whereis("editor") is None

    run_cluster(main)


# ---------------------------------------------------------------------- the inbox


def test_one_inbox_for_all_shards():
    """Questions of programs and those about entries of workers are listed with who asks, what and since when; each is
    answered by its id or by the address."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client, began = world.client, SystemClock().now()
            jobs = [await client.spawn(asks, shard=f"s{number}", name=f"n{number}") for number in (1, 2, 3, 4)]
            rows = await until(lambda: _all(client.interrupts(), 4))
            assert {row["address"] for row in rows} == {job.address for job in jobs}
            row = next(row for row in rows if row["address"] == jobs[0].address)
            assert (row["question"], row["message"], row["kind"], row["name"]) == (
                "May I?",
                "to go on",
                "confirmation",
                "n1",
            )
            assert row["program"].endswith(":asks")
            assert began - 1 <= row["since"] <= SystemClock().now() + 1
            told = await client.resolve_interrupt(row["id"], {"approved": True, "text": "yes"})
            assert told["status"] == "resolved"
            await client.resolve_interrupt(jobs[1].address, {"approved": False})
            await client.resolve_interrupt("s3/n3", {"text": "by name", "approved": True})
            results = [(await job.wait()).result for job in jobs[:3]]
            assert results == ["yes/True", "/False", "by name/True"]
            assert [row["address"] for row in await client.interrupts()] == [jobs[3].address]

    run_cluster(main)


async def _all(listed: Any, count: int) -> Any:
    rows = await listed
    return rows if len(rows) == count else None


def test_wrong_answers_are_refused_as_on_one_machine():
    """Another user's question, an empty answer, a second one, an unknown question or shard; the same answer again, as
    after a call that was cut off, is none of these."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client, kernel = world.client, world.kernel("s2")
            kernel.submit("job", request_id="r", user_id="ann", session_id="s")
            question = kernel.create_interrupt("job", "clarification", question="Which?")
            with pytest.raises(Denied):
                await client.resolve_interrupt(question.id, {"text": "that"}, user_id="bob")
            with pytest.raises(ConfigError, match="needs an answer"):
                await client.resolve_interrupt(question.id, {}, user_id="ann")
            with pytest.raises(ConfigError):
                await client.resolve_interrupt(question.id, {"txt": "that"}, user_id="ann")
            for _ in range(2):
                told = await client.resolve_interrupt(question.id, {"text": "that"}, user_id="ann")
                assert (told["status"], told["user_id"], told["address"]) == ("resolved", "ann", "s2/job")
            with pytest.raises(InvalidTransition):
                await client.resolve_interrupt(question.id, {"text": "the other"}, user_id="ann")
            with pytest.raises(NoSuchInterrupt):
                await client.resolve_interrupt("int_0000", {"text": "that"})
            with pytest.raises(NoSuchInterrupt):
                await client.resolve_interrupt("s2/job", {"text": "that"})
            with pytest.raises(ConfigError, match="no shard"):
                await client.resolve_interrupt("s9/job", {"text": "that"})

    run_cluster(main)


def test_questions_survive_a_move():
    """A host dies: its questions are asked by the shards elsewhere, under the same ids, and are answered there."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            jobs = [await client.spawn(asks, shard=f"s{number}") for number in (1, 2, 3, 4)]
            before = await until(lambda: _all(client.interrupts(), 4))
            await world.kill("a")
            await world.until_open()
            after = await until(lambda: _all(client.interrupts(), 4))
            since = {row["id"]: pytest.approx(row["since"], abs=0.01) for row in before}
            assert {row["id"]: row["since"] for row in after} == since
            for row in after:
                await client.resolve_interrupt(row["id"], {"approved": True})
            assert [(await job.wait()).result for job in jobs] == ["/True"] * 4
            assert await client.interrupts() == []

    run_cluster(main)


# ---------------------------------------------------------------------- schedules


def test_schedules_of_a_client():
    """A client schedules, lists and unschedules; what fires has a pid of the name and the due time; a schedule goes on
    when the host of its home dies."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            await client.schedule("tick", works, "x", every_s=1, missed="all")
            await client.schedule("later", works, at=SystemClock().now() + 3600, shard="s2")
            rows = await client.schedules()
            assert [row["name"] for row in rows] == ["later", "tick"]
            assert (rows[0]["shard"], rows[0]["home"]) == ("s2", home_of("later", world.stores))
            home = home_of("tick", world.stores)
            await until(lambda: _fired(client, "tick", 1))
            await world.kill(world.host_of(home))
            await world.until_open()
            await until(lambda: _fired(client, "tick", 4))
            pids = [row["pid"] for row in await client.processes(everything=True) if row["pid"].startswith("tick@")]
            assert len(pids) == len(set(pids)) >= 4
            assert (await client.process(f"{home}/{min(pids)}").wait()).result == f"x{min(pids)}"
            dues = sorted(datetime.fromisoformat(pid.partition("@")[2]).timestamp() for pid in pids)
            assert dues == [dues[0] + number for number in range(len(dues))]
            assert await client.unschedule("tick") is True
            assert await client.unschedule("tick") is False
            assert [row["name"] for row in await client.schedules()] == ["later"]
            with pytest.raises(ConfigError):
                await client.schedule("tick", works, every_s=1, at=5.0)
            with pytest.raises(ConfigError, match="no shard"):
                await client.schedule("tick", works, every_s=1, shard="s9")

    run_cluster(main)


async def _fired(client: Any, name: str, least: int) -> bool:
    return any(row["name"] == name and row["fired"] >= least for row in await client.schedules())


# ---------------------------------------------------------------------- services


def test_a_dispatch_reaches_another_host_and_goes_on_when_that_dies():
    """The handler of a host is called from the other; when its host is dead, its shards open elsewhere have it again,
    since the hosts register it there."""

    def setup(kernel: Kernel) -> None:
        shard = kernel.core.remote.shard
        if shard != "s1":
            return
        kernel.register_service({"name": "resize", "max_concurrent": 2})
        kernel.register_handler("resize", lambda request: {"shard": shard, **request.metadata})

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS, setup=setup) as world:
            caller = next(shard for shard in world.stores if world.host_of(shard) != world.host_of("s1"))
            kernel = world.kernel(caller)
            await until(lambda: [info for info in kernel.services.list_services() if info.status == "healthy"])
            answer = await kernel.dispatch("resize", {"metadata": {"n": 1}})
            assert answer.metadata == {"shard": "s1", "n": 1}
            await world.kill(world.host_of("s1"))
            await until(lambda: kernel.services.get_service("resize").status == "unhealthy")
            await world.until_open()
            await until(lambda: kernel.services.get_service("resize").status == "healthy")
            assert (await kernel.dispatch("resize", {"metadata": {"n": 2}})).metadata == {"shard": "s1", "n": 2}

    run_cluster(main)


# ---------------------------------------------------------------------- Events


def test_events_of_all_shards_go_on_after_a_move():
    """The stream has each row of each shard once and in order, also of a shard that was taken over meanwhile, and
    another stream goes on from its position."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            seen: dict[str, list[int]] = {shard: [] for shard in world.stores}
            ended: set[str] = set()

            async def spawn_all(round_number: int) -> set[str]:
                jobs = [await client.spawn(works, shard=shard, pid=f"j{round_number}") for shard in world.stores]
                return {job.address for job in jobs}

            async def follow(stream: Any, wanted: set[str]) -> None:
                async for event in stream:
                    seen[event.shard].append(event.seq)
                    if event.kind == "process.terminated":
                        assert event.address not in ended
                        ended.add(event.address)
                    if wanted <= ended:
                        return

            before = await spawn_all(0)
            async with client.events() as stream:
                wanted = await spawn_all(1)
                await follow(stream, wanted)
                assert not before & ended
                await world.kill("a")
                wanted = await spawn_all(2)
                await follow(stream, wanted)
                position = dict(stream.position)
            wanted = await spawn_all(3)
            async with client.events(after=position) as stream:
                await follow(stream, wanted)
            for shard, numbers in seen.items():
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), shard

    run_cluster(main)


def test_events_of_some_kinds():
    """Only the kinds that are asked for come; from the beginning where no position of a shard is named."""

    async def main() -> None:
        async with MemoryCluster("a", "b", programs=PROGRAMS) as world:
            client = world.client
            jobs = [await client.spawn(works, shard=shard) for shard in ("s1", "s2")]
            for job in jobs:
                await job.wait()
            addresses = []
            async with client.events(after={}, kinds=["process.terminated"]) as stream:
                async for event in stream:
                    assert event.kind == "process.terminated"
                    addresses.append(event.address)
                    if len(addresses) == 2:
                        break
            assert sorted(addresses) == sorted(job.address for job in jobs)
            with pytest.raises(ConfigError):
                client.events(kinds=["process.nothing"])
            with pytest.raises(ConfigError, match="no shard"):
                await client.events(after={"s9": 1}).start()

    run_cluster(main)


def test_a_position_that_is_not_kept_any_more_is_told():
    """A reader that was away for longer than rows are kept hears of the gap; one that begins anew begins after it."""

    async def main() -> None:
        async with MemoryCluster("a", programs=PROGRAMS, shards=1) as world:
            kernel, store = world.kernel("s1"), world.stores["s1"]
            for _ in range(5):
                await kernel.run(works)
            await kernel.durable()
            journal = kernel.journal
            assert journal is not None
            store.save_snapshots(6, {}, journal.epoch)
            store.compact(before=SystemClock().now() + 10, epoch=journal.epoch)
            first = store.first_seq()
            assert first > 3
            stream = world.client.events(after={"s1": 2})
            with pytest.raises(Conflict, match="not kept"):
                await anext(stream)
            assert read_rows(store, 0, store.last_seq(), None)["rows"][0][0] == first

    run_cluster(main)


def test_long_answers_come_in_pieces(monkeypatch):
    """What one call reads is bounded by rows and by bytes; the rest follows."""
    monkeypatch.setattr("lyra.cluster.calls.EVENTS_AT_ONCE", 7)

    async def main() -> None:
        async with MemoryCluster("a", programs=PROGRAMS, shards=1) as world:
            for number in range(10):
                await world.kernel("s1").run(works, "x" * number)
            last = world.stores["s1"].last_seq()
            numbers = []
            async with world.client.events(after={}) as stream:
                async with asyncio.timeout(10):
                    async for event in stream:
                        numbers.append(event.seq)
                        if event.seq == last:
                            break
            assert numbers == list(range(1, last + 1))
            monkeypatch.setattr("lyra.cluster.calls.EVENTS_BYTES_AT_ONCE", 100)
            assert 0 < read_rows(world.stores["s1"], 0, 7, None)["upto"] < 7

    run_cluster(main)
