"""The variables of a Python program at a step and the arguments of its calls: it is run again, and performs nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from lyra.agents.forks.program_frames import ProgramFrame, ProgramReplay, _WithBlobsOf
from lyra.errors import ConfigError, Divergence
from lyra.kernel.programs.context import OwnContext
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.store.memory import MemoryStore
from lyra.store.protocol import Store
from lyra.store.space import open_to_read
from tests.agents.forks.programs import acts, booking, clerk, guide, mail, note, publisher, reserve, talk

_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


async def add(total: int, *, step: int = 1) -> int:
    note(f"add-{step}")
    return total + step


def doubled(number: int) -> int:
    return number * 2


async def inner(ctx: Any, total: int) -> int:
    """A function of the program, in which it stands while its call is made."""
    twice = doubled(total)
    async with asyncio.timeout(60):
        return int(await ctx.do(add, twice, step=5))


async def counter(ctx: Any, start: int) -> int:
    total = start
    for step in (1, 2):
        total = await ctx.do(add, total, step=step)
    print("counted")
    total = await inner(ctx, total)
    await ctx.sleep(0.01)
    order = await ctx.receive()
    total += order["more"]
    await ctx.do(mail, str(total))
    return int(total)


async def tidy(ctx: Any, word: str) -> str:
    """A child that waits for something outside, and tidies up when it is told to end."""
    try:
        await asyncio.Event().wait()
    finally:
        await ctx.do(mail, f"tidied-{word}")
    return word


async def careful(ctx: Any) -> None:
    """It and its child tidy up by acts of their own."""
    held = await ctx.do(reserve, "sea")
    OwnContext(ctx.own_process).link(ctx.spawn(tidy, "child"))
    await asyncio.sleep(0.05)  # the child is at work before this ends
    try:
        await ctx.receive()
    finally:
        await ctx.do(mail, f"freed-{held['room']}")


async def both(ctx: Any) -> list[int]:
    async def line(number: int) -> int:
        first = await ctx.do(add, number, step=10)
        return int(first) + int(await ctx.do(add, first, step=20))

    return list(await asyncio.gather(line(1), line(2)))


PROGRAMS = (counter, tidy, careful, both, booking, clerk, publisher, guide)


def replay(store: str, pid: str, *programs: Any) -> tuple[RunTimeline, ProgramReplay]:
    _opened.append(open_to_read(store))
    timeline = RunTimeline(StoredRows(_opened[-1]), pid)

    async def register(kernel: Kernel) -> None:
        for program in programs or PROGRAMS:
            kernel.register(program)

    return timeline, ProgramReplay(_opened[-1], timeline, register)


def frames(store: str, pid: str, number: int, *programs: Any, of: str = "") -> list[ProgramFrame]:
    _, looked = replay(store, pid, *programs)
    return asyncio.run(looked.frames(number, of or pid))


def count(store: str) -> None:
    async def main() -> None:
        async with Kernel(store, programs=PROGRAMS) as kernel:
            process = kernel.spawn(counter, 100, pid="count")
            while len(acts()) < 3:
                await asyncio.sleep(0.01)
            await kernel.send("count", {"more": 1_000})
            assert (await process.wait()).result == 100 * 2 + 6 + 5 + 1_000

    asyncio.run(main())


def test_at_each_step_the_variables_are_those_that_the_program_had(store: str) -> None:
    """Those of the function that it stands in, and of those that called it; without its ctx."""
    count(store)
    timeline, _ = replay(store, "count")
    kinds = ["began", "effect", "effect", "effect", "sleep", "message", "effect", "exit"]
    assert [step.kind for step in timeline.steps] == kinds
    (start,) = frames(store, "count", 1)
    assert (start.function, start.variables) == ("counter", {"start": 100, "total": 100, "step": 1})
    assert start.file == __file__
    (second,) = frames(store, "count", 2)
    assert second.variables == {"start": 100, "total": 101, "step": 2}
    outer, within = frames(store, "count", 3)
    assert (outer.function, within.function) == ("counter", "inner")
    assert within.variables == {"total": 103, "twice": 206}
    (asleep,) = frames(store, "count", 4)
    (receives,) = frames(store, "count", 6)
    assert asleep.variables == {"start": 100, "total": 211, "step": 2}
    assert receives.variables == {"start": 100, "total": 1_211, "step": 2, "order": {"more": 1_000}}
    assert receives.line > asleep.line
    assert frames(store, "count", 0) == frames(store, "count", 8) == []


def test_a_program_that_pauses_stands_there_while_the_pause_lasts(store: str) -> None:
    """However long ago that is: time is that of the journal."""

    async def main() -> None:
        async with Kernel(store, programs=[sleeper, clerk]) as kernel:
            await kernel.spawn(sleeper, pid="long").wait()

    asyncio.run(main())
    timeline, _ = replay(store, "long")
    kinds = [step.kind for step in timeline.steps]
    during = 1 + next(number for number, kind in enumerate(kinds) if kind == "effect" and number > kinds.index("sleep"))
    (frame,) = frames(store, "long", during, sleeper, clerk)
    assert frame.variables["place"] == "asleep"


async def sleeper(ctx: Any) -> str:
    place = "before"
    ctx.spawn(clerk, "beside")
    place = "asleep"
    await ctx.sleep(0.3)
    place = "awake"
    await ctx.do(add, 1)
    return place


def test_nothing_is_performed_printed_or_written(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Not when a program stops in the middle, nor by what it and its children do when they are told to end."""
    count(store)

    async def main() -> None:
        async with Kernel(store, programs=PROGRAMS) as kernel:
            kernel.spawn(careful, pid="careful")
            while "reserve-sea" not in acts():
                await asyncio.sleep(0.01)
            await kernel.durable()
            while len(kernel.processes) < 3:
                await asyncio.sleep(0.01)
            await kernel.durable()

    asyncio.run(main())
    before, digest = acts(), hashlib.sha256(Path(store).read_bytes()).hexdigest()
    capfd.readouterr()
    for pid in ("count", "careful"):
        timeline, looked = replay(store, pid)
        for number in range(len(timeline.steps) + 1):
            asyncio.run(looked.frames(number, pid))
        asyncio.run(looked.arguments(pid))
    last = len(replay(store, "careful")[0].steps)
    (waiting,) = frames(store, "careful", last)
    assert waiting.variables == {"held": {"room": "sea"}}
    assert acts() == before
    assert hashlib.sha256(Path(store).read_bytes()).hexdigest() == digest
    assert [path.name for path in Path(store).parent.glob("run.db*")] == ["run.db"]
    assert capfd.readouterr().out == ""


def test_calls_have_their_arguments_by_name(store: str) -> None:
    """Those of `ctx.do`, which no journal has."""
    count(store)
    _, looked = replay(store, "count")
    arguments = asyncio.run(looked.arguments("count"))
    assert list(arguments.values()) == [
        {"total": 100, "step": 1},
        {"total": 101, "step": 2},
        {"total": 206, "step": 5},
        {"text": "1211"},
    ]


def test_lines_of_a_program_that_run_beside_each_other_are_told_apart(store: str) -> None:
    async def main() -> None:
        async with Kernel(store, programs=PROGRAMS) as kernel:
            await kernel.spawn(both, pid="both").wait()

    asyncio.run(main())
    timeline, _ = replay(store, "both")
    effects = [step.number for step in timeline.steps if step.kind == "effect"]
    stacks = frames(store, "both", effects[1])
    assert sorted({frame.branch for frame in stacks if frame.branch}) == ["0", "1"]
    assert sorted(frame.variables.get("first", 0) for frame in stacks if frame.branch) == [11, 12]


def test_an_answer_of_a_person_is_in_the_variables(store: str) -> None:
    """While the question is open, the program stands at it; once it is answered, it has the answer, also before it acts
    on it."""

    async def main() -> None:
        async with Kernel(store, programs=PROGRAMS) as kernel:
            process = kernel.spawn(publisher, pid="paper")
            while not (questions := kernel.interrupts.pending("paper")):
                await asyncio.sleep(0.01)
            await kernel.durable()
            (open_,) = await replay(store, "paper")[1].frames(2, "paper")
            assert open_.variables == {}
            kernel.resolve_interrupt(questions[0].id, {"approved": True})
            await process.wait()
            await kernel.durable()

    asyncio.run(asyncio.wait_for(main(), 60))
    (frame,) = frames(store, "paper", 2)
    assert "answer" in frame.variables


def test_a_child_is_looked_at_in_its_own_program(store: str) -> None:
    """By its pid; handles of children are told by the pids that they had."""
    from tests.agents.forks.programs import book

    asyncio.run(book(store))
    timeline, _ = replay(store, "trip")
    child = timeline.steps[2].child
    (own,) = frames(store, "trip", 3, of=child)
    assert (own.function, own.variables) == ("clerk", {"room": "sea"})
    (parent,) = frames(store, "trip", 3)
    assert parent.variables["reserved"] == {"room": "sea"}


def test_agents_have_no_frames_and_other_programs_are_refused(store: str) -> None:
    """With the reason: the program is not known, or is another one than the journal's."""
    asyncio.run(talk(store))
    assert frames(store, "talk", 3) == []
    count(store)
    with pytest.raises(ConfigError, match="does not know the program"):
        frames(store, "count", 3, guide)

    async def other(ctx: Any, start: int) -> None:
        await ctx.do(mail, str(start))

    other.__module__, other.__qualname__ = counter.__module__, counter.__qualname__
    with pytest.raises(Divergence):
        frames(store, "count", 3, other)


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no")


async def holds(ctx: Any) -> None:
    odd, large = Odd(), "x" * 50_000  # noqa: F841 - looked at by the test
    await ctx.receive()


def test_values_that_cannot_be_shown_and_large_ones_are_told_shortly(store: str) -> None:
    async def main() -> None:
        async with Kernel(store, programs=[holds]) as kernel:
            await kernel.spawn(holds, pid="holds")
            await kernel.durable()

    asyncio.run(main())
    (frame,) = frames(store, "holds", 1, holds)
    assert "cannot be shown" in frame.variables["odd"]
    assert len(frame.variables["large"]) < 3_000


def test_large_values_are_those_of_the_other_store_until_the_program_has_its_own():
    other = MemoryStore()
    theirs = other.put_blob(b"theirs")
    store = _WithBlobsOf(other)
    own = store.put_blob(b"own")
    assert (store.get_blob(theirs), store.get_blob(own)) == (b"theirs", b"own")
