"""A subsystem is one row in the kernel's list, and is told of every moment."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from lyra.errors import NameTaken
from lyra.kernel import Kernel
from lyra.kernel.base.subsystem import Subsystem
from tests.kernel.conftest import run


class TallyState:
    """How many processes have ended."""

    NAME: ClassVar[str] = "tally"
    KINDS: ClassVar[frozenset[str]] = frozenset({"memory.added"})  # a kind of Event that there is

    def __init__(self) -> None:
        self.ended = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        self.ended += 1

    def dump(self) -> Any:
        return self.ended

    def load(self, data: Any) -> None:
        self.ended = int(data)


class Tally(Subsystem):
    NAME: ClassVar[str] = "tally"

    def __init__(self) -> None:
        self.state = TallyState()
        self.moments: list[str] = []

    def on_restored(self) -> None:
        self.moments.append("restored")

    def process_started(self, parent: Any, process: Any) -> None:
        self.moments.append(f"started {process.pid} of {parent.pid}")

    def process_ending(self, process: Any) -> None:
        assert process.exit is None
        self.moments.append(f"ending {process.pid}")

    def process_ended(self, process: Any, how: Any) -> None:
        assert process.exit is how
        process.core.fact(self.state, process.pid, "memory.added", {})
        self.moments.append(f"ended {process.pid} {how.reason}")

    def process_diverged(self, process: Any) -> None:
        self.moments.append(f"diverged {process.pid}")

    def replay_dropped(self, process: Any) -> None:
        self.moments.append(f"replay dropped {process.pid}")

    def forgotten(self, process: Any) -> None:
        self.moments.append(f"forgotten {process.pid}")

    def has_name(self, word: str) -> bool:
        return word == "taken"

    def stop(self) -> None:
        self.moments.append("stop")


def _kernel(path: Any, *programs: Any) -> tuple[Kernel, Tally]:
    kernel, tally = Kernel(path, programs=programs), Tally()
    kernel.core.subsystems.add(tally)
    return kernel, tally


async def child(ctx):
    return None


async def parent(ctx):
    await ctx.spawn(child, pid="child").wait()
    await ctx.receive()


async def asks_twice(ctx):
    ctx.now()
    await ctx.sleep(1_000)


async def asks_otherwise(ctx):
    ctx.random()
    await ctx.sleep(1_000)


asks_otherwise.__qualname__ = asks_twice.__qualname__  # the same program, edited


def test_a_subsystem_is_told_of_every_moment(tmp_path):
    """Each moment reaches a subsystem that was added to the list, in order; its state comes back after a restart."""
    path = str(tmp_path / "run.db")

    async def first():
        kernel, tally = _kernel(path, parent, child, asks_twice)
        async with kernel:
            assert kernel.core.subsystems.find_by_name("tally") is tally
            with pytest.raises(NameTaken):
                kernel.spawn(parent, name="taken")
            kernel.spawn(parent, pid="parent")
            for pid in ("edited", "stopped"):
                kernel.spawn(asks_twice, pid=pid)
            await kernel.durable()
            while "ended child normal" not in tally.moments:
                await asyncio.sleep(0)
            await kernel.durable()
            kernel.lifetimes.forget("child")
        assert tally.state.ended == 1
        return tally.moments

    assert run(first()) == [
        "restored",
        "started child of parent",
        "ending child",
        "ended child normal",
        "forgotten child",
        "stop",
    ]

    async def second():
        kernel, tally = _kernel(path, parent, child)
        async with kernel:
            assert tally.state.ended == 1
            kernel.kill("stopped")  # before its program is known: it has not begun to replay
            kernel.register(asks_otherwise)
            await kernel.process("edited").wait()
            await kernel.durable()
        return tally.moments

    assert run(second()) == [
        "restored",
        "replay dropped stopped",
        "ending stopped",
        "ended stopped killed",
        "diverged edited",
        "stop",
    ]


def test_a_moment_that_is_not_overridden_is_not_called():
    """A subsystem that overrides nothing stands in no list of moments."""
    kernel = Kernel()
    before = len(kernel.core.subsystems.process_ended)
    kernel.core.subsystems.add(Subsystem())
    assert len(kernel.core.subsystems.process_ended) == before


@pytest.mark.parametrize("name", ["door", "programs", "kill"])
def test_nothing_assigns_over_the_door(name):
    """The door, the programs and `kill` of a kernel are its own: others are handed in when it is made."""
    kernel = Kernel()
    with pytest.raises(AttributeError):
        setattr(kernel, name, None)
