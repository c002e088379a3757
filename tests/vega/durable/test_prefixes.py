"""A run killed behind any row of its journal goes on to the same output: every beginning of a journal is tried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra.core.clock import SystemClock
from lyra.store.space import Space
from lyra.store.standing import open_signed
from lyra.vega import compile as compile_source
from lyra.vega.durable import durable_run as saving
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.runs import DurableRun
from lyra.vega.runtime.world import RunOptions
from tests.cases import ALL

SOURCE = """\
agent A { model "sim/echo" }
agent B { model "sim/echo" memory conversation }
fn worker(main, a) { main <- "told " + (a <- "work"); }
fn main() {
  let a = spawn A;
  print(a <- "one");
  spawn fn worker(process::self(), a);
  receive { text => { print(text); } }
  let b = spawn B supervised by { strategy restart };
  print(b <- "two");
  let x = a <- "three";
  let y = a <- "four";
  print(x + y);
}
"""
OUTPUT = ["one", "told work", "two", "threefour"]


def live(space: Space, folder: Path, facts: dict[str, Any] | None = None) -> list[str]:
    program = compile_source(SOURCE, "a.vega")

    async def main() -> None:
        options = RunOptions(write=lambda _: None, warn=lambda _: None, folder=str(folder))
        before = None if facts is not None else DurableRun(space)
        await asyncio.wait_for(RunExecution(space, program, options, before=before).run(facts), 20)

    asyncio.run(main())
    return DurableRun(space).output()


@pytest.mark.parametrize("saves_often", [True, False])
def test_every_beginning_of_a_journal_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves_often: bool):
    """Also where only the guard of an agent is in it, and not yet the agent; `make test` takes every other one."""
    if saves_often:
        monkeypatch.setattr(saving, "EFFECTS", 2)
        monkeypatch.setattr(saving, "LOOK_EVERY", 1)
    path = str(tmp_path / "run.db")
    facts = {"id": "whole", "file": "a.vega", "model": None, "budget": None, "args": [], "folder": str(tmp_path)}
    whole = Space(path, "whole")
    assert live(whole, tmp_path, facts) == OUTPUT
    rows = list(DurableRun(whole).rows())
    whole.close()
    assert any(row.kind == "program.checkpoint" for row in rows) is saves_often
    for count in range(2, len(rows), 1 if ALL else 2):
        space = Space(path, f"first-{count}")
        lease = space.acquire("test", now=SystemClock().now(), ttl_s=60)
        open_signed(space, lease.epoch)
        space.append(rows[:count], lease.epoch)
        space.release(lease)
        assert live(space, tmp_path) == OUTPUT, f"killed behind row {count}: {rows[count - 1].kind}"
        space.close()
