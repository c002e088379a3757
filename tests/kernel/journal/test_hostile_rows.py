"""Rows with right checksums that no kernel wrote: recovery says `Corrupt`, and which row it is."""

from __future__ import annotations

import asyncio
import math
import random

import msgspec
import pytest

from lyra.core.budgets.money import Money
from lyra.errors import Corrupt, LyraError
from lyra.kernel import Kernel
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold
from lyra.store.protocol import Record
from lyra.store.sqlite import SqliteStore
from tests.cases import cases
from tests.kernel.conftest import run, settle

ME = "tests.kernel.journal.test_hostile_rows"


async def forever(ctx):
    await ctx.receive()


async def reads(ctx):
    """One reading of each sort; the last is awaited for ever."""
    read = [ctx.now(), ctx.random.random(), ctx.budget.remaining(), ctx.budget.used("llm_calls")]
    await ctx.receive()
    return read


async def waits(ctx):
    return await ctx.process("x").wait()


async def act(value):
    return value


async def child(ctx, value):
    await ctx.sleep(0.001)
    return value


async def everything(ctx):
    """One call of each sort, then it waits."""
    ctx.now()
    ctx.random.random()
    ctx.budget.remaining()
    await ctx.do(act, 3)
    spawned = ctx.spawn(child, 5, name="child", budget="$0.10")
    ctx.monitor(spawned)
    await spawned.wait()
    await ctx.receive()
    await ctx.receive(timeout=0.001)
    await ctx.ask("ok?", kind="confirmation")
    await ctx.send(ctx.pid, {"to": "itself"})
    await ctx.receive()
    await ctx.ask("and now?")


def created(program="forever", **fields):
    return rows.encode(rows.Created(f"{ME}:{program}", rows.Raw(b"\x90"), **fields))


def reading(key, name, value):
    return rows.encode(rows.Finished(key, rows.Raw(msgspec.msgpack.encode(value)), name=name, form="read"))


def written(path, *records):
    store = SqliteStore(path)
    lease = store.acquire("x", now=0.0, ttl_s=1.0)
    store.append([(n, 1.0, pid, kind, data) for n, (pid, kind, data) in enumerate(records, 1)], lease.epoch)
    store.release(lease)
    store.close()


async def opened(path):
    async with Kernel(path, programs=[forever, reads]) as kernel:
        await settle(kernel)
        return {pid: process.name for pid, process in kernel.processes.items()}


def fault(path, *records):
    written(path, *records)
    with pytest.raises(Corrupt) as caught:
        run(opened(path))
    return caught.value


def test_two_processes_with_one_name(path):
    """A name leads to one process: the second live one that claims it is named by its row."""
    error = fault(
        path,
        ("x", "process.created", created(name="db")),
        ("y", "process.created", created(name="web")),
        ("z", "process.created", created(name="db")),
    )
    assert error.fields["seq"] == 3
    assert "row 3 creates process z with the name 'db', which is that of process x" in error.message


def test_a_name_may_be_used_again(path):
    """One that was given up before belongs to no process: a restarted child has the name of the one before it."""
    written(
        path,
        ("x", "process.created", created(name="db")),
        ("x", "process.terminated", rows.encode(rows.Terminated("error"))),
        ("z", "process.created", created(name="db")),
    )
    assert run(opened(path))["z"] == "db"


@pytest.mark.parametrize("pid", ["", "~interrupts"])
def test_a_pid_that_is_none(path, pid):
    """No process can be asked for by an empty pid, and ~ belongs to the kernel's own parts."""
    error = fault(path, ("x", "process.created", created()), (pid, "process.created", created()))
    assert error.fields["seq"] == 2
    assert f"row 2 creates a process with the pid {pid!r}" in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clock", "noon"),
        ("clock", None),
        ("clock", True),
        ("clock", math.nan),
        ("clock", -math.inf),
        ("seed", "abc"),
        ("seed", 1.5),
        ("seed", [1]),
        ("budget.usd", "$1"),
        ("used.llm_calls", -1),
        ("parent", 7),
    ],
)
def test_a_reading_that_is_none(path, name, value):
    """A clock, a seed or a budget that cannot have been read is found when the store is opened, with its row."""
    error = fault(path, ("x", "process.created", created("reads")), ("x", "effect.finished", reading(0, name, value)))
    assert error.fields["seq"] == 2
    assert f"row 2 (effect.finished) is no reading of {name}" in error.message


@pytest.mark.parametrize("value", [None, 7, b"x", [], {}, {"reason": 1, "result": 1, "error": None}])
def test_an_end_that_is_none(path, value):
    """What a wait for another process gave has its reason, its result and its error."""
    row = rows.Finished(0, rows.Raw(msgspec.msgpack.encode(value)), name="y", form="wait")
    error = fault(path, ("x", "process.created", created()), ("x", "effect.finished", rows.encode(row)))
    assert error.fields["seq"] == 2
    assert "row 2 (effect.finished) is no end of y" in error.message


def test_a_second_value_for_a_reading(path):
    """A later row for the same key is held to the same."""
    second = rows.encode(rows.Finished(0, blob="elsewhere"))
    error = fault(
        path,
        ("x", "process.created", created("reads")),
        ("x", "effect.finished", reading(0, "clock", 5.0)),
        ("x", "effect.finished", second),
    )
    assert error.fields["seq"] == 3


def test_readings_that_a_kernel_writes_are_readings(path):
    """What a program read in one life is what it reads in the next."""

    async def life(message):
        async with Kernel(path, programs=[forever, reads]) as kernel:
            handle = kernel.spawn(reads, pid="x", budget={"usd": "$1"})
            await settle(kernel)
            if message:
                await kernel.send("x", "end")
                ended = await handle.wait()
                assert ended.error is None
                return ended.result
            return None

    run(life(""))
    before = [row for row in SqliteStore(path).read() if row.kind == "effect.finished"]
    clock, _, left, used = run(life("end"))
    assert clock == msgspec.msgpack.decode(rows.DECODERS["effect.finished"].decode(before[0].data).value)
    assert (Money(left), used) == (Money.parse("$1"), 0)


@pytest.mark.parametrize(("name", "value"), [("clock", "noon"), ("seed", None)])
def test_a_reading_in_a_snapshot(name, value):
    """A snapshot is held to the same as the rows it stands for."""
    fold = Fold()
    fold.add(Record(1, 1.0, "x", "process.created", created("reads")))
    fold.add(Record(2, 1.0, "x", "effect.finished", reading(0, name, 1)))
    fold.processes["x"].effects[0].value = rows.Raw(msgspec.msgpack.encode(value))
    with pytest.raises(Corrupt) as caught:
        Fold.load(2, {pid: state for pid, state in fold.dump().items() if state is not None})
    assert caught.value.fields["pid"] == "x"
    assert f"has at 0 no reading of {name}" in caught.value.message


@pytest.mark.parametrize("wrong", [{"children": True}, {"max_restarts": 1.5}, {"guards": "x"}, {"template": {"a": 1}}])
def test_a_supervisor_whose_plan_is_none(path, wrong):
    """It ends with `Corrupt`, which says what is wrong with the plan; the others go on."""
    plan = rows.Raw(msgspec.msgpack.encode([wrong]))
    program = "lyra.kernel.supervisor:supervise"
    written(
        path,
        ("s", "process.created", rows.encode(rows.Created(program, plan))),
        ("x", "process.created", created()),
    )

    async def main():
        async with Kernel(path, programs=[forever]) as kernel:
            ended = await kernel.process("s").wait()
            assert isinstance(ended.error, Corrupt)
            assert "the Plan of supervisor s cannot be read" in ended.error.message
            assert kernel.process("x").alive

    run(main())


def supervisor_rows(*after):
    """A supervisor without children, and what is in its journal after its creation."""
    plan = rows.Raw(msgspec.msgpack.encode([{"children": []}]))
    return (
        "s",
        "process.created",
        rows.encode(rows.Created("lyra.kernel.supervisor:supervise", plan)),
    ), *after


async def end_of_supervisor(path):
    async with Kernel(path, programs=[forever]) as kernel:
        return (await asyncio.wait_for(kernel.process("s").wait(), 5)).error


@pytest.mark.parametrize("verb", ["explode", "", "run", "_stop"])
def test_an_order_that_no_supervisor_knows(path, verb):
    """It ends with `Corrupt`, which names the order."""
    order = rows.Raw(msgspec.msgpack.encode({"verb": verb, "token": "t"}))
    written(path, *supervisor_rows(("", "message.sent", rows.encode(rows.Sent("s", order, form="supervisor")))))
    error = run(end_of_supervisor(path))
    assert isinstance(error, Corrupt)
    assert f"unknown command {verb!r}" in error.message


GOOD = {"is": "command", "do": "started", "token": "t", "id": "", "spec": None, "args": []}


@pytest.mark.parametrize(
    "event",
    [
        3,
        {},
        {"is": "party"},
        {"is": ["exit"]},
        {"is": "exit", "pid": 3, "reason": "x"},
        {"is": "ready"},
        {"is": "again"},
        {"is": "message"},
        {**GOOD, "args": 3},
        {**GOOD, "do": None},
        {**GOOD, "do": "start_child", "spec": {"id": 3}},
    ],
)
def test_an_event_that_a_supervisor_never_kept(path, event):
    """Its checkpoint holds what was to be handled next; anything else there is `Corrupt`."""

    def checkpoint(pending):
        state = rows.Raw(msgspec.msgpack.encode({"rows": [], "pending": pending}))
        return ("s", "program.checkpoint", rows.encode(rows.Checkpointed(0, state)))

    written(path, *supervisor_rows(checkpoint([GOOD, event])))
    assert isinstance(run(end_of_supervisor(path)), Corrupt)


def test_an_end_in_a_blob_that_is_none(path):
    """The answer to a wait that is too large for its row is looked at before it is used."""

    async def main():
        store = SqliteStore(path)
        blob = store.put_blob(msgspec.msgpack.encode({"reason": 3, "result": None}))
        store.close()
        row = rows.Finished(0, rows.NIL, blob, name="x", form="wait")
        written(path, ("w", "process.created", created("waits")), ("w", "effect.finished", rows.encode(row)))
        async with Kernel(path, programs=[waits]) as kernel:
            error = (await kernel.process("w").wait()).error
            assert isinstance(error, Corrupt)
            assert "the end of x that w waited for" in error.message

    run(main())


# ---------------------------------------------------------------- any one value of any row
NASTY = [None, True, -1, 2**63, 1.5, math.nan, math.inf, "", "x", "~x", "e", [], [1], {}, {"a": 1}, b"\x00"]


def real_journal(path):
    """What a kernel writes for `everything`."""

    async def main():
        async with Kernel(path, programs=[everything, child]) as kernel:
            kernel.spawn(everything, pid="e", budget="$1")
            for _ in range(2):
                while not kernel.interrupts.pending("e"):
                    await asyncio.sleep(0.001)
                question = kernel.interrupts.pending("e")[0]
                if question.question == "ok?":
                    await kernel.resolve_interrupt(question.id, {"approved": True})
                    await settle(kernel)

    run(main())
    store = SqliteStore(path)
    records = [(row.pid, row.kind, row.data) for row in store.read()]
    store.close()
    return records


def places(value, place=()):
    """The way to every value inside."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*place, key))


def put(value, place, new):
    if not place:
        return new
    value[place[0]] = put(value[place[0]], place[1:], new)
    return value


@pytest.mark.slow
def test_one_wrong_value_anywhere(tmp_path):
    """Whatever is wrong in one row: a LyraError when the store opens or where the program asks, nothing else."""
    records = real_journal(str(tmp_path / "real.db"))
    rng = random.Random(11)
    corrupt, count = 0, cases(800)
    for number in range(count):
        pid, kind, data = records[index := rng.randrange(len(records))]
        if kind == "process.terminated":  # what a program's own error holds is the program's affair
            continue
        value = msgspec.msgpack.decode(data)
        place, new = rng.choice(list(places(value))), rng.choice(NASTY)
        path = str(tmp_path / f"{number}.db")
        wrong = (pid, kind, msgspec.msgpack.encode(put(value, place, new)))
        written(path, *records[:index], wrong, *records[index + 1 :])

        async def opened_again(path):
            async with Kernel(path, programs=[everything, child]) as kernel:
                await settle(kernel)
                return [process.exit.error for process in kernel.processes.values() if process.exit is not None]

        try:
            errors = run(opened_again(path))
        except Corrupt:
            corrupt += 1
        else:
            assert all(error is None or isinstance(error, LyraError) for error in errors), (kind, place, new, errors)
    assert corrupt > count / 6
