"""Rights at their edges: after a restart, under an earlier version's rows, in options of a call and in handlers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from lyra.core.budgets.budget import Budget
from lyra.core.effect import Effect, effect
from lyra.core.rights.capability import Grant
from lyra.errors import CapabilityDenied
from lyra.kernel import Kernel
from lyra.kernel.journal import rows
from lyra.store.sqlite import SqliteStore
from tests.kernel.conftest import run, settle


@effect(needs=lambda path: f"fs.read:{path}", cost={"tool_calls": 2}, idempotent=True)
async def read(path: str) -> str:
    return path


async def reader(ctx: Any, *paths: str) -> list[str]:
    """Which of the paths may be read, once a message has come."""
    await ctx.receive()
    allowed = []
    for path in paths:
        with suppress(CapabilityDenied):
            allowed.append(await ctx.do(read, path))
    return allowed


async def family(ctx: Any) -> None:
    ctx.spawn(reader, "/a/x", "/b/x", name="child", grant=["fs.read:/**"])
    await ctx.receive()


@pytest.mark.parametrize("snapshot", [False, True])
def test_after_a_restart_a_grant_is_narrowed_by_the_root_of_today(path, snapshot):
    """What a journal allows, the user may have taken back since: also for a child, and for one with a Grant of its own.
    What the user allows now and the journal does not, stays denied."""

    async def first() -> None:
        async with Kernel(path) as kernel:
            await kernel.spawn(reader, "/a/x", "/b/x", "/c/x", pid="one", grant=["fs.read:/a/**", "fs.read:/b/**"])
            await kernel.spawn(reader, "/a/x", "/b/x", "/c/x", pid="plain")
            await kernel.spawn(family, pid="family")
            await settle(kernel)
            if snapshot:
                await kernel._snapshots.write()

    async def second() -> list[Any]:
        root = Grant(["fs.read:/b/**", "fs.read:/c/**", "process.spawn"])
        async with Kernel(path, programs=[reader, family], grant=root) as kernel:
            results = []
            for name in ("one", "plain", "child"):
                handle = kernel.whereis(name) or kernel.process(name)
                await handle.send("go")
                results.append((await handle.wait()).result)
            return results

    run(first())
    assert run(second()) == [["/b/x"], ["/b/x", "/c/x"], ["/b/x"]]


def test_a_process_of_an_earlier_version_keeps_its_rights(path):
    """Rows without the mark of today's rights: what was not checked then stays allowed, what was checked stays denied,
    and what the Grant denies by name counts from now on."""

    async def old(ctx: Any) -> list[str]:
        await ctx.receive()
        done = []
        for name, act in {
            "spawn": lambda: ctx.spawn(family).pid,
            "read": lambda: ctx.do(read, "/etc/passwd"),
            "send": lambda: ctx.send("other", "hello"),
        }.items():
            try:
                result = act()
                if hasattr(type(result), "__await__"):
                    await result
                done.append(name)
            except CapabilityDenied:
                pass
        return done

    async def first() -> None:
        async with Kernel(path) as kernel:
            await kernel.spawn(family, pid="other")
            await kernel.spawn(old, pid="allows", grant=["fs.read:/project/**"])
            await kernel.spawn(old, pid="denies", grant={"allow": ["fs.read:/project/**"], "deny": ["process.send"]})

    run(first())
    _copy_without_mark(path, f"{path}.old")
    assert run(_outcomes(path, old)) == [[], []]  # of this version: the list says all
    assert run(_outcomes(f"{path}.old", old)) == [["spawn", "send"], ["spawn"]]


async def _outcomes(path: str, old: Any) -> list[Any]:
    async with Kernel(path, programs=[old, family]) as kernel:
        results = []
        for name in ("allows", "denies"):
            await kernel.send(name, "go")
            results.append((await kernel.process(name).wait()).result)
        return results


def _copy_without_mark(source: str, target: str) -> None:
    """The rows of a store as the version before wrote them."""
    store, copy = SqliteStore(source), SqliteStore(target)
    lease = copy.acquire("test", now=0.0, ttl_s=60.0)
    batch = []
    for row in store.read(after=0):
        data = row.data
        if row.kind == "process.created":
            created = msgspec.msgpack.decode(data, type=rows.Created)
            data = rows.encode(msgspec.structs.replace(created, rights=0))
        batch.append((row.seq, row.time, row.pid, row.kind, data))
    copy.append(batch, lease.epoch)
    copy.release(lease)
    store.close()
    copy.close()


# ---------------------------------------------------------------------- options of a call


@pytest.mark.parametrize("needs", [(), None, [], "fs.read:/project/b.txt", lambda path: ()])
@pytest.mark.parametrize("cost", [None, {}, {"tool_calls": 1}, {"tool_calls": 2, "llm_calls": 1}])
def test_options_of_a_call_add_and_never_take_away(needs, cost):
    """What an effect declares to need and to cost holds for every call of it."""

    async def program(ctx: Any) -> str:
        with pytest.raises(CapabilityDenied):
            await ctx.do(read, "/etc/passwd", needs=needs, cost=cost)
        return str(await ctx.do(read, "/project/a.txt", needs=needs, cost=cost))

    async def main() -> None:
        async with Kernel() as kernel:
            process = kernel.spawn(program, grant=["fs.read:/project/**"], budget={"tool_calls": 2, "llm_calls": 1})
            assert (await process.wait()).result == "/project/a.txt"
            assert process.budget.used("tool_calls") == 2
            assert process.budget.used("llm_calls") == (cost or {}).get("llm_calls", 0)

    run(main())


def test_options_of_a_call_are_checked_too():
    """A call may ask for more than its effect declares."""
    more = Effect.of(read, needs="net.http:a.test", cost={"tool_calls": 5})
    assert {str(need) for need in more.needs_for(("/a",), {})} == {"fs.read:/a", "net.http:a.test"}
    assert more.cost["tool_calls"] == 5
    quoted = Effect.of(read, quote=lambda budget, path: Budget.of({}).usage)
    assert quoted.quote is not None
    assert quoted.quote(Budget(), "/a")["tool_calls"] == 2


# ---------------------------------------------------------------------- who acts


def test_a_handler_acts_for_the_process_that_registered_it(target):
    """A subscriber, a listener and a service's handler have the rights of their maker, whoever makes them run."""
    denied: list[str] = []

    async def main() -> None:
        async with Kernel(target) as kernel:

            async def publishes(_message: Any) -> None:
                try:
                    await kernel.bus.publish("secret", 1)
                except CapabilityDenied:
                    denied.append("a process")

            async def narrow(ctx: Any) -> None:
                async def subscribe() -> None:
                    kernel.bus.subscribe("tick", publishes)

                await ctx.do(subscribe)

            async def ticks(ctx: Any) -> None:
                async def tick() -> int:
                    return await kernel.bus.publish("tick", 1)

                assert await ctx.do(tick) == 2

            outside: list[Any] = []

            async def publishes_outside(_message: Any) -> None:
                outside.append(await kernel.bus.publish("secret", 1))

            await kernel.run(narrow, grant=["events.subscribe:tick"])
            kernel.bus.subscribe("tick", publishes_outside)
            await kernel.run(ticks)  # all rights, and the subscriber has none of them
            assert denied == ["a process"]
            await kernel.run(ticks, grant=["events.publish:tick"])  # none, and the outside has all
            assert outside == [0, 0]

    run(main())


def test_no_process_widens_its_own_rights(target):
    """`regrant` and `kernel.spawn` in a process give no more than that process has."""

    async def child(ctx: Any) -> bool:
        return bool(ctx.grant.allows("fs.read:/etc/passwd"))

    async def main() -> None:
        async with Kernel(target) as kernel:

            async def program(ctx: Any) -> list[bool]:
                async def widen() -> bool:
                    kernel.process(ctx.pid).regrant(None)
                    return bool(ctx.grant.allows("fs.read:/etc/passwd"))

                async def start() -> bool:
                    return bool((await kernel.spawn(child, grant=["*"]).wait()).result)

                return [await ctx.do(widen), await ctx.do(start)]

            assert await kernel.run(program, grant=["fs.read:/project/**", "process.spawn"]) == [False, False]
            assert kernel.spawn(child).grant.is_all

    run(main())


def test_a_denied_link_takes_no_process_down(target):
    """A process that may do nothing cannot tie itself to a named one and end it with its own end."""

    async def victim(ctx: Any) -> None:
        await ctx.receive()

    async def attacker(ctx: Any) -> None:
        with pytest.raises(CapabilityDenied):
            ctx.link("victim")
        raise RuntimeError("down with it")

    async def main() -> None:
        async with Kernel(target) as kernel:
            handle = kernel.spawn(victim, name="victim")
            assert (await kernel.spawn(attacker, grant=[]).wait()).reason == "error"
            await settle(kernel)
            assert handle.alive

    run(main())


def test_a_refusal_is_met_again_by_a_replay(path):
    """A denied send, spawn and question are facts: a kernel with other rights comes to the same place."""

    async def program(ctx: Any) -> list[str]:
        refused = []
        for act in (lambda: ctx.spawn(family), lambda: ctx.send("other", 1), lambda: ctx.ask("well?")):
            try:
                result = act()
                if hasattr(type(result), "__await__"):
                    await result
            except CapabilityDenied as error:
                refused.append(error.fields["capability"])
        await ctx.receive()
        return refused

    async def main() -> None:
        async with Kernel(path) as kernel:
            await kernel.spawn(family, name="other")
            await kernel.spawn(program, pid="one", grant={"allow": ["*"], "deny": ["process.*", "human.ask"]})
            await settle(kernel)
        async with Kernel(path, programs=[program, family]) as kernel:
            kernel.process("one").regrant(None)
            await kernel.send("one", "go")
            spawned, sent, asked = (await kernel.process("one").wait()).result
            assert (spawned, sent, asked) == ("process.spawn:family", "process.send:other", "human.ask:clarification")

    run(main())
