"""The stores that are attacked, and what their processes may do when a kernel opens them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.kernel.kernel import Kernel
from lyra.kernel.supervision.child import Child
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore

__all__ = ["NARROW", "PLACES", "Place", "Victim", "asks", "rests"]

NARROW: Final = {"allow": ["fs.read:/project/**", "model.use", "human.ask"], "deny": ["fs.read:/project/secret/**"]}
_heard: Final[dict[str, Any]] = {}  # the answers that programs were given


class Place(NamedTuple):
    name: str
    run: str = ""  # the space that the journal is in
    snapshots: frozenset[int] = frozenset()  # the lives of the store that end with one: the first, the last


PLACES: Final = (
    Place("the rows of a store"),
    Place("the snapshot of a store", snapshots=frozenset({1, 2})),
    Place("the rows after a snapshot", snapshots=frozenset({1})),
    Place("the rows of a run", run="r1"),
    Place("the snapshot of a run", run="r1", snapshots=frozenset({1, 2})),
)


async def rests(ctx: Any, *_words: Any) -> None:
    """Do nothing, for ever."""
    await ctx.sleep(1e9)


async def asks(ctx: Any, what: str) -> None:
    """Ask a human, and keep the answer."""
    answer = await ctx.ask(what, kind="confirmation")
    _heard[ctx.pid] = answer
    await ctx.sleep(1e9)


class Victim:
    """One signed store, another one of the same user, and an older state of the first; all closed."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.place = place
        self.folder = folder / place.name.replace(" ", "-")
        self.folder.mkdir(parents=True)
        self.path = self.folder / "run.db"
        self.other = self.folder / "other.db"
        self.older = self.folder / "older.db"
        self.fork = self.folder / "fork.db"
        self.scratch = self.folder / "scratch"
        self._saved = self.folder / "saved.db"
        asyncio.run(self._live(self.path, self._begin, 1))
        shutil.copy(self.path, self.older)
        asyncio.run(self._live(self.path, self._go_on, 2))
        shutil.copy(self.path, self._saved)
        # The same beginning, and other rows after it: signed with the same key, under the same numbers.
        shutil.copy(self.older, self.path)
        asyncio.run(self._live(self.path, self._go_on_otherwise, 2))
        shutil.copy(self.path, self.fork)
        asyncio.run(self._live(self.other, self._begin_wide, 2))
        self.restore()
        self.rights_before = asyncio.run(self.rights())

    def restore(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._saved, self.path)

    async def rights(self) -> dict[str, Any]:
        """What each process may do, has read, was told and waits for, as a kernel brings it back."""
        _heard.clear()
        rights: dict[str, Any] = {}
        store = self._store(self.path)
        try:
            kernel = Kernel(store, programs=[rests, asks])
            await kernel.start()
            try:
                await asyncio.sleep(0.01)  # programs come to where they were
                for pid, process in kernel.processes.items():
                    rights[pid] = (
                        process.program,
                        process.grant.to_data(),
                        process.exit is None,
                        process.name,
                        kernel.taint.is_tainted(pid),
                        [message for _, message in process.inbox or ()],
                        process.budget.limit("usd"),
                    )
                rights["answers"] = dict(_heard)
                rights["questions"] = sorted(question.id for question in kernel.interrupts.pending())
            finally:
                await kernel.close(drain_s=0.0, snapshot=False)
        finally:
            store.close()
        return rights

    def _store(self, path: Path) -> SqliteStore:
        return Space(path, self.place.run) if self.place.run else SqliteStore(path)

    async def _live(self, path: Path, act: Any, number: int) -> None:
        store = self._store(path)
        try:
            async with Kernel(store, programs=[rests, asks]) as kernel:
                await act(kernel)
                if number in self.place.snapshots:
                    await kernel._snapshots.write()
        finally:
            store.close()

    async def _begin(self, kernel: Kernel) -> None:
        """A process each: with few rights, with all, marked, ended, asking, answered, supervised."""
        await kernel.spawn(rests, "work", pid="narrow", grant=NARROW, budget="$0.50")
        await kernel.spawn(rests, "work", pid="wide", name="boss")
        await kernel.spawn(rests, "work", pid="marked")
        await kernel.spawn(rests, "x" * 100_000, pid="large", grant=NARROW)
        kernel.taint.mark("marked", "a page")
        await kernel.spawn(rests, pid="over", grant=NARROW)
        await kernel.spawn(asks, "May I delete it?", pid="asking", grant=NARROW)
        await kernel.spawn(asks, "May I send it?", pid="answered", grant=NARROW)
        await kernel.supervise([Child("child", rests, grant=NARROW)], pid="tree")
        await kernel.end("over", "done")
        await self._until_asked(kernel, 2)

    async def _go_on(self, kernel: Kernel) -> None:
        (question,) = [waiting for waiting in kernel.interrupts.pending() if waiting.pid == "answered"]
        await kernel.resolve_interrupt(question.id, {"approved": False})
        await kernel.send("narrow", "be careful")
        await kernel.spawn(rests, "late", pid="late", grant=NARROW)

    async def _go_on_otherwise(self, kernel: Kernel) -> None:
        (question,) = [waiting for waiting in kernel.interrupts.pending() if waiting.pid == "answered"]
        await kernel.resolve_interrupt(question.id, {"approved": True})
        await kernel.send("narrow", "do all of it")
        await kernel.spawn(rests, "late", pid="late")

    async def _begin_wide(self, kernel: Kernel) -> None:
        await kernel.spawn(rests, "work", pid="narrow")
        await kernel.spawn(rests, "work", pid="wide", name="boss")

    async def _until_asked(self, kernel: Kernel, count: int) -> None:
        for _ in range(1000):
            if len(kernel.interrupts.pending()) >= count:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the questions were not asked")
