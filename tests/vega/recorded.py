"""Durable runs for the tests of replays: made in this process, on a model that keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lyra import vega
from lyra.errors import LyraError
from lyra.models.client import LLMClient
from lyra.models.sim import SimProvider
from lyra.store.space import Space
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.runs import DurableRun, Runs
from lyra.vega.replay.fork import RecordedAnswers, fork_door, live_on
from lyra.vega.replay.player import Player
from lyra.vega.replay.reader import read
from lyra.vega.replay.timeline import Timeline
from lyra.vega.runtime.world import RunOptions
from tests.vega.support import Seen

FILE = "prog.vega"

TEAM = """\
agent A { model "sim/script" }
agent M { model "sim/script" memory conversation }
fn worker(main, xs) {
    while true {
        receive {
            [n, f] => { main <- [n + xs[0], f(2)]; }
        }
    }
}
fn add(a, b) {
    let c = a + b;
    return c;
}
let a = spawn A;
let m = spawn M;
print(a <- "one");
print(m <- "two");
let k = 10;
let p = spawn fn worker(process::self(), [5]);
p <- [1, |x| x * k];
receive { r => { print(r); } }
parallel { let x = a <- "x"; let y = a <- "y"; }
print(x + y);
for c in a <~ "three four" { print(c); }
let dice = math::random();
let total = 0;
for i in [1, 2, 3] {
    let square = add(i, i * i);
    total = total + square;
}
print(total);
print(a <- "again");
print(m <- "more");
"""


class Recorded:
    """A store with runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "runs.db"

    def run(
        self,
        source: str,
        name: str = "run",
        *,
        model: Any = None,
        stop_after_s: float | None = None,
        stop_when: asyncio.Event | None = None,
        stop_after_lines: int = 0,
        **facts: Any,
    ) -> list[str]:
        """What a new run printed; one that is stopped in the middle stays as it is."""
        event = stop_when or asyncio.Event()

        def on_line(count: int) -> None:
            if count == stop_after_lines:
                event.set()

        began = {"id": name, "file": FILE, "sources": {FILE: source}, "model": None, "budget": None, "args": []}
        began |= {"folder": str(self.folder), "settings": [], **facts}
        space = Space(self.path, name)
        life, lines = self._life(space, vega.compile(source, FILE), model, on_line=on_line)
        life.world.options.sequential = bool(facts.get("sequential"))
        try:
            asyncio.run(_until(life.run(began), stop_after_s, event))
        except LyraError as error:
            lines.append(f"error: {error.message}")
        finally:
            space.close()
        return lines

    def go_on(self, name: str, book: RecordedAnswers, *, is_live: bool = False, model: Any = None) -> str:
        """Run a fork to its end; the error that ended it."""
        space = Space(self.path, name)
        try:
            before = DurableRun(space)
            door = fork_door(book, is_live=is_live)
            life, _ = self._life(space, before.program(), model, before, door=door)
            live_on(life)
            asyncio.run(life.run())
        except LyraError as error:
            return error.message
        finally:
            space.close()
        return ""

    def resume(self, name: str = "run", *, model: Any = None, stop_after_s: float | None = None) -> list[str]:
        """What the next life of a run printed."""
        space = Space(self.path, name)
        try:
            before = DurableRun(space)
            life, lines = self._life(space, before.program(), model, before)
            life.world.options.sequential = bool(before.began.get("sequential"))
            asyncio.run(_until(life.run(), stop_after_s, asyncio.Event()))
        finally:
            space.close()
        return lines

    def _life(
        self,
        space: Space,
        program: Any,
        model: Any,
        before: DurableRun | None = None,
        *,
        on_line: Callable[[int], None] | None = None,
        **options: Any,
    ) -> tuple[RunExecution, list[str]]:
        lines: list[str] = []

        def write(line: str) -> None:
            lines.append(line)
            if on_line is not None:
                on_line(len(lines))

        chosen = RunOptions(write=write, warn=lambda _: None, folder=str(self.folder))
        life = RunExecution(space, program, chosen, before=before, **options)
        client = LLMClient()
        client.register("sim", SimProvider(script=model if model is not None else Seen()))
        life.world.runtime.models.client = client
        return life, lines

    def timeline(self, name: str = "run") -> Timeline:
        with Runs(self.path) as runs:
            return read(runs[name])

    def player(self, name: str = "run") -> Player:
        return Player(self.timeline(name))

    def rows(self, name: str = "run") -> list[Any]:
        with Runs(self.path) as runs:
            return list(runs[name].rows())

    def output(self, name: str = "run") -> list[str]:
        with Runs(self.path) as runs:
            return runs[name].output()


async def _until(work: Any, seconds: float | None, event: asyncio.Event) -> None:
    """Await a run until it ends, its time is over or something has happened."""
    running = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait((running, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not running.done():
        running.cancel()
        await asyncio.wait((running,))
    if not running.cancelled():
        await running
