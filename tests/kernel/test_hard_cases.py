"""Odd but reasonable uses, and input that no kernel wrote: each once made something else go wrong."""

from __future__ import annotations

import asyncio

import pytest

from lyra.core.effect import Charged
from lyra.errors import ConfigError, Corrupt, DeadlineExceeded, NameTaken, NoSuchProcess, ProcessError, StoreFull
from lyra.kernel import Kernel
from lyra.kernel.journal import rows
from lyra.store.memory import MemoryStore
from lyra.store.sqlite import SqliteStore
from tests.kernel.conftest import Crash, run, settle


async def act(value=1):
    return value


async def forever(ctx):
    await ctx.receive()


async def quick(ctx):
    return 1


class Api(Exception):
    def __init__(self, response):
        super().__init__(response)
        self.status = response["status"]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_rights_and_budget_outlive_an_evicted_parent(path, monkeypatch):
    """A child keeps its parent's grant and budget after a restart, however many processes ended in between."""
    monkeypatch.setattr("lyra.core.limits.ENDED_PROCESSES_KEPT", 10)

    async def parent(ctx):
        for _ in range(30):
            ctx.spawn(quick)
        ctx.spawn(forever, pid="long")

    async def main():
        async with Kernel(path) as kernel:
            await kernel.run(parent, grant=["fs.read:/**", "process.spawn"], budget="$0.50")
            await settle(kernel)
            for _ in range(30):
                await kernel.run(quick)
        async with Kernel(path, programs=[forever]) as kernel:
            child = kernel.process("long")
            assert not child.grant.allows("fs.write:/etc/passwd")
            assert str(child.budget.limit()) == "$0.50"

    run(main())


def test_a_chosen_pid_is_not_forgotten(path, monkeypatch):
    """Spawning under a pid of long ago gives the process of long ago, also after thousands of others ended."""
    monkeypatch.setattr("lyra.core.limits.ENDED_PROCESSES_KEPT", 5)

    async def main():
        for _ in range(2):
            async with Kernel(path) as kernel:
                first = kernel.spawn(quick, pid="job")
                await first.wait()
                for _ in range(20):
                    await kernel.run(quick)
                assert (await kernel.spawn(forever, pid="job").wait()).result == 1

    run(main())


def test_children_that_ended_long_ago_replay(path, monkeypatch):
    """A parent's replay finds the results of all its children, also those the table has let go."""
    monkeypatch.setattr("lyra.core.limits.ENDED_PROCESSES_KEPT", 5)

    async def parent(ctx):
        total = 0
        for _ in range(20):
            total += (await ctx.spawn(quick).wait()).result
        await ctx.ask("?")
        return total

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(parent, pid="main")
            await settle(kernel)
            await settle(kernel)
        async with Kernel(path, programs=[parent, quick]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            assert (await kernel.process("main").wait()).result == 20

    run(main())


@pytest.mark.parametrize(
    "error",
    [
        ValueError(2**70),
        ValueError("\udcff"),
        ValueError(object()),
        Unprintable(),
        ExceptionGroup("two", [ValueError(1), Api({"status": 429})]),
        Api({"status": 429}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_ends_only_its_own_process(path, error):
    """Every exception has a row; the others go on, and the store opens again with the same kind of end."""

    async def raises(ctx):
        raise error

    async def main():
        async with Kernel(path) as kernel:
            handles = [kernel.spawn(raises, pid="bad"), kernel.spawn(quick, pid="good")]
            ends = [(await handle.wait()).reason for handle in handles]
            assert ends == ["error", "normal"]
        async with Kernel(path) as kernel:
            again = (await kernel.process("bad").wait()).error
            assert type(again) is type(error)
            if isinstance(error, Api):
                assert again.status == 429
            if isinstance(error, ExceptionGroup):
                assert again.exceptions[1].status == 429

    run(main())


def test_attributes_of_an_error_replay(path):
    """What an `except` clause looks at is the same on replay; live it sees what a replay will see."""

    async def fails():
        raise Api({"status": 503})

    async def program(ctx):
        try:
            await ctx.do(fails)
        except Api as error:
            status = error.status
        await ctx.ask("?")
        return status

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            assert (await kernel.process("main").wait()).result == 503

    run(main())


def test_mistakes_of_type_are_refused_where_they_are_made(path):
    """What a row could not hold never reaches the journal: the store opens again."""

    async def program(ctx):
        for wrong in (
            lambda: ctx.exit(5),
            lambda: ctx.do(act, idempotent=1),
            lambda: ctx.receive(timeout=float("nan")),
        ):
            with pytest.raises(ConfigError):
                wrong()
        for wrong in (lambda: ctx.ask(5), lambda: ctx.sleep("1"), lambda: ctx.sleep(float("nan"))):
            with pytest.raises(ConfigError):
                await wrong()
        await ctx.receive()

    async def main():
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program)
            await settle(kernel)
            assert handle.alive, await handle.wait()
            with pytest.raises(ConfigError):
                handle.kill(reason=7)  # type: ignore[arg-type]
            with pytest.raises(NoSuchProcess):
                kernel.send(5, 1)  # type: ignore[arg-type]
            kernel.spawn(forever, name="boss")
            with pytest.raises(NameTaken):
                kernel.spawn(forever, pid="boss")
        async with Kernel(path) as kernel:
            assert kernel.journal.store.check() == []

    run(main())


def test_large_arguments_with_power(path):
    """Large arguments, results and messages and a writer thread do not meet on one connection."""

    async def big(ctx, text):
        return text + await ctx.receive()

    async def main():
        async with Kernel(path, durability="power") as kernel:
            handles = [kernel.spawn(big, "x" * 100_000) for _ in range(30)]
            for handle in handles:
                kernel.send(handle, "y" * 100_000)
            for handle in handles:
                assert len((await handle.wait()).result) == 200_000
        async with Kernel(path, durability="power") as kernel:
            assert kernel.journal.store.check() == []

    run(main())


def test_no_room_for_a_large_result(clock):
    """A blob that finds no room goes into the row, and the row waits for room like every other."""

    class Full(MemoryStore):
        full = False

        def put_blob(self, data):
            if self.full:
                raise StoreFull("no room")
            return super().put_blob(data)

    store = Full()

    async def large(ctx):
        store.full = True
        return "z" * 200_000

    async def main():
        async with Kernel(store, clock) as kernel:
            handles = [kernel.spawn(large), kernel.spawn(quick)]
            assert [len(str((await handle.wait()).result)) for handle in handles] == [200_000, 1]

    run(main())


def test_receive_inside_gather_and_wait_for(target):
    """`ctx.receive()` may be handed to asyncio, and one that is not awaited does no harm."""

    async def program(ctx):
        both = await asyncio.gather(ctx.receive(), ctx.sleep(0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ctx.receive(), 0.01)
        ctx.receive()
        return [both[0], await ctx.receive()]

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await kernel.send(handle, 1)
            await asyncio.sleep(0.05)
            await kernel.send(handle, 2)
            ended = await handle.wait()
            assert ended.result == [1, 2], ended

    run(main())


def test_a_bad_message_fails_its_sender(path):
    """A message that cannot be kept is refused in its sender's hands, also while the mailbox is full."""

    async def ear(ctx):
        await ctx.ask("?")
        return [await ctx.receive() for _ in range(2)]

    async def main():
        async with Kernel(path, mailbox_messages_max=1) as kernel:
            handle = kernel.spawn(ear)
            await settle(kernel)
            kernel.send(handle, 1)
            with pytest.raises(ConfigError, match="object"):
                kernel.send(handle, object())
            kernel.send(handle, 2)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            assert (await handle.wait()).result == [1, 2]

    run(main())


def test_closing_twice_at_once(target):
    """Two closes (a signal handler and `async with`) both return when it is closed."""

    async def slow():
        await asyncio.sleep(0.05)

    async def program(ctx):
        await ctx.do(slow)

    async def main():
        async with Kernel(target) as kernel:
            kernel.spawn(program)
            await asyncio.sleep(0.01)
            await asyncio.gather(kernel.close(), kernel.close())
        with pytest.raises(ProcessError, match="once"):
            await kernel.start()
        with pytest.raises(ProcessError, match="closed"):
            kernel.send("p1", 1)
        unopened = Kernel(target)
        with pytest.raises(ProcessError, match="not open"):
            unopened.send("p1", 1)
        await unopened.close()

    run(main())


def test_a_deep_tree_is_killed_whole():
    """Killing the root of a thousand nested processes needs no thousand frames."""

    async def deeper(ctx, left):
        if left:
            ctx.spawn(deeper, left - 1)
        await ctx.receive()

    async def main():
        async with Kernel() as kernel:
            root = kernel.spawn(deeper, 990)
            while kernel.live < 991:
                await asyncio.sleep(0)
            kernel.kill(root)
            assert (await root.wait()).reason == "killed"
            await settle(kernel)
            assert kernel.live == 0

    run(main())


def test_a_scopes_seconds_bind_everything_in_it(path):
    """When a budget's time is up, children and orphans that share it end too, also after a restart."""

    async def parent(ctx):
        ctx.spawn(forever, pid="kid")
        ctx.spawn(forever, pid="own", budget="$1")

    async def main():
        async with Kernel(path) as kernel:
            await kernel.run(parent, budget={"seconds": 0.15})
            kernel.spawn(forever, pid="other")
            await asyncio.sleep(0.02)
            assert kernel.process("kid").alive
        async with Kernel(path, programs=[forever]) as kernel:
            for pid in ("kid", "own"):
                assert isinstance((await kernel.process(pid).wait()).error, DeadlineExceeded)
            assert kernel.process("other").alive
            assert len(kernel.lifetimes.deadlines) == 0

    run(main())


def test_gates_go_by_what_is_declared():
    """Another limit on the same function is another gate, not the first one again."""

    async def program(ctx):
        for _ in range(3):
            await ctx.do(act, rate_limit={"requests_per_minute": 10**6})
        begun = ctx.now()
        for _ in range(3):
            await ctx.do(act, rate_limit={"requests_per_minute": 3000, "burst": 1})
        return ctx.now() - begun

    async def main():
        async with Kernel() as kernel:
            assert await kernel.run(program) > 0.03

    run(main())


def test_functions_that_are_not_async_and_charges_that_are_not_usage():
    """A plain function is refused by name with a hint before it runs; a charge may be an amount of money."""
    ran = []

    def plain():
        ran.append(1)

    async def charged():
        return Charged(1, "$0.02")

    async def program(ctx):
        with pytest.raises(ConfigError, match="plain is not an async function"):
            await ctx.do(plain)
        assert not ran
        await ctx.do(charged, cost="$0.05")
        return str(ctx.budget.used())

    async def main():
        async with Kernel() as kernel:
            assert await kernel.run(program, budget="$1") == "$0.02"

    run(main())


def test_waiting_that_was_given_up_leaves_nothing():
    """A hundred timed-out waits leave no watcher behind; a task of a closed kernel does not linger."""
    ended, kept = [], []

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async def program(ctx):
        kept.append(asyncio.ensure_future(ctx.do(slow)))
        await ctx.receive()

    async def main():
        async with Kernel() as kernel:
            handle = kernel.spawn(program)
            for _ in range(100):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(handle.wait(), 0.0001)
            assert not kernel.processes[handle.pid].watchers
            await kernel.close(drain_s=0.01)
            await asyncio.sleep(0)
        assert ended == [1]

    run(main())


def _hostile(path, *records):
    """A store with these rows, with right checksums, as an attacker would make it."""
    store = SqliteStore(path)
    lease = store.acquire("x", now=0.0, ttl_s=1.0)
    store.append([(n, 1.0, pid, kind, data) for n, (pid, kind, data) in enumerate(records, 1)], lease.epoch)
    store.release(lease)
    store.close()


CREATED = rows.encode(rows.Created("tests.kernel.test_hard_cases:forever", rows.Raw(b"\x90")))


@pytest.mark.parametrize(
    "records",
    [
        [("x", "process.created", rows.encode({"program": "p", "priority": 99}))],
        [("x", "process.created", rows.encode({"program": "tests.kernel.test_hard_cases:forever", "args": 5}))],
        [("x", "process.created", rows.encode({"program": "p", "budget": {"limits": {"usd": -1}}}))],
        [("x", "process.created", rows.encode({"program": "p", "grant": {"layers": 7}}))],
        [("x", "process.created", CREATED), ("x", "program.checkpoint", rows.encode({"key": "a"}))],
        [("x", "process.created", CREATED), ("x", "effect.finished", rows.encode({"key": 0, "usage": {"usd": -5}}))],
        [("x", "process.created", CREATED), ("x", "interrupt.created", rows.encode({"id": "i", "kind": "odd"}))],
        [("x", "effect.finished", rows.encode({"key": 0}))],
        [("x", "process.created", CREATED), ("x", "process.created", CREATED)],
        [("x", "process.created", CREATED), ("x", "message.received", rows.encode({"key": 0, "message": 9}))],
        [("x", "process.created", b"\x91" * 5000)],
        [("x", "process.created", b"")],
    ],
)
def test_a_hostile_journal_is_corrupt(path, records):
    """Rows with right checksums that make no sense are `Corrupt`, never another exception and never a guess."""
    _hostile(path, *records)

    async def main():
        with pytest.raises(Corrupt):
            async with Kernel(path, programs=[forever]) as kernel:
                await settle(kernel)

    run(main())


def test_a_hostile_error_row_is_only_an_error(path):
    """Strange error rows come back as errors; nothing is loaded, run or raised by reading them."""
    strange = [
        {"code": "python", "type": "system", "module": "os", "args": ["true"], "message": "m"},
        {"code": "python", "type": "ValueError", "module": "builtins", "args": 7, "message": "m"},
        {"code": "store", "fields": 7, "message": "m"},
        {"code": "python", "type": "ExceptionGroup", "module": "builtins", "errors": [1], "args": []},
    ]
    records = []
    for number, error in enumerate(strange):
        records.append((f"x{number}", "process.created", CREATED))
        records.append((f"x{number}", "process.terminated", rows.encode({"reason": "error", "error": error})))
    _hostile(path, *records)

    async def main():
        async with Kernel(path, programs=[forever]) as kernel:
            for number in range(len(strange)):
                assert isinstance((await kernel.process(f"x{number}").wait()).error, Exception)

    run(main())


async def child_then(ctx):
    value = await ctx.do(act, "then")
    await ctx.ask("?")
    return value


async def child_now(ctx):
    return await ctx.do(act, "now")


for _program in (child_then, child_now):  # the same program before and after a change
    _program.__qualname__ = "child"


async def waits_for_child(ctx):
    ended = await ctx.spawn(child_then, pid="child").wait()
    return [ended.reason, ended.result]


def test_a_childs_divergence_is_no_result(path):
    """A parent that waits for a diverged child stops with it; with the right program both go on."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(waits_for_child, pid="parent")
            await settle(kernel)
        async with Crash(Kernel(path, programs=[waits_for_child, child_now])) as kernel:
            assert (await kernel.process("child").wait()).reason == "divergence"
            assert (await kernel.process("parent").wait()).reason == "divergence"
        async with Kernel(path, programs=[waits_for_child, child_then]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "on"})
            assert (await kernel.process("parent").wait()).result == ["normal", "then"]

    run(main())
