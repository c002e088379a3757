"""Every edit at every place: each beginning of a journal is gone on with by each of some changed programs.

What is accepted prints what it had printed, then lines of either program, and ends without a divergence; what is
refused goes on with the program that the run has, to the output that it would have had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lyra import vega
from lyra.core.clock import SystemClock
from lyra.core.event import Event
from lyra.errors import ConfigError
from lyra.store.space import Space
from lyra.store.standing import open_signed
from lyra.vega import compile as compile_source
from lyra.vega.bytecode.file import verify
from lyra.vega.bytecode.renumber import find_changed_functions, is_gone, renumber
from lyra.vega.durable import durable_run as saving
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.record import ProgramMigration
from lyra.vega.durable.runs import DurableRun
from lyra.vega.migrate.migration import plan_migration
from lyra.vega.runtime.world import RunOptions
from tests.cases import ALL, cases, first
from tests.vega.random_programs import random_program

SOURCE = """\
const MARK = "." + "";
agent A { model "sim/echo" system "be brief" }
fn first(a) { return a <- "first"; }
fn worker(main, a) { main <- "told " + (a <- "work"); }
fn last(x) { return "last ${x}"; }
fn main() {
  let a = spawn A;
  print(first(a));
  spawn fn worker(process::self(), a);
  receive { text => { print(text); } }
  let add = |x| x + MARK;
  let x = a <- "three";
  let y = a <- "four";
  print(add(x + y));
  print(last("one"));
}
"""
OUTPUT = ["first", "told work", "threefour.", "last one"]
EDITS: dict[str, tuple[tuple[str, str], list[str]]] = {
    "a function at the end": (('"last ${x}"', '"later ${x}"'), [*OUTPUT[:3], "later one"]),
    "a function at the beginning": (('a <- "first"', 'a <- "uno"'), ["uno", *OUTPUT[1:]]),
    "what another process runs": (('a <- "work"', 'a <- "play"'), ["first", "told play", *OUTPUT[2:]]),
    "a call made beside another": (('a <- "four"', 'a <- "five"'), [*OUTPUT[:2], "threefive.", "last one"]),
    "settings": (("be brief", "be kind"), OUTPUT),
    "functions and variables": (("fn first", 'const MORE = "a" + "b";\nfn more() { return MORE; }\nfn first'), OUTPUT),
    "a variable": (('"." + ""', '"!" + ""'), [*OUTPUT[:2], "threefour!", "last one"]),
    "a lambda": (("x + MARK", "x + MARK + MARK"), [*OUTPUT[:2], "threefour..", "last one"]),
    "one line more": (('print(last("one"));', 'print(last("one"));\n  print(last("two"));'), [*OUTPUT, "last two"]),
    "one line less": (('  print(last("one"));\n', ""), OUTPUT[:3]),
}


def live(
    space: Space,
    folder: Path,
    facts: dict[str, Any] | None = None,
    migration: ProgramMigration | None = None,
    listener: Callable[[Event], object] = lambda _: None,
) -> list[str]:
    before = None if facts is not None else DurableRun(space)
    program = compile_source(SOURCE, "a.vega") if before is None else before.program()
    if migration is not None:
        program = migration.program

    async def main() -> None:
        options = RunOptions(write=lambda _: None, warn=lambda _: None, folder=str(folder))
        life = RunExecution(space, program, options, before=before, migration=migration)
        life.kernel.on_event(listener)
        await asyncio.wait_for(life.run(facts), 20)

    asyncio.run(main())
    return DurableRun(space).output()


@pytest.mark.parametrize("saves_often", [True, False])
def test_every_edit_behind_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves_often: bool):
    if saves_often:
        monkeypatch.setattr(saving, "EFFECTS", 2)
        monkeypatch.setattr(saving, "LOOK_EVERY", 1)
    path = str(tmp_path / "run.db")
    facts: dict[str, Any] = {"id": "whole", "file": "a.vega", "model": None, "budget": None, "args": []}
    facts |= {"folder": str(tmp_path), "sources": {"a.vega": SOURCE}}
    whole = Space(path, "whole")
    assert live(whole, tmp_path, facts) == OUTPUT
    rows = list(DurableRun(whole).rows())
    whole.close()
    outcomes: dict[str, set[bool]] = {name: set() for name in EDITS}
    for number, count in enumerate(range(2, len(rows), 3 if ALL else 11)):
        for name in list(EDITS)[number % 2 :: 2]:
            (was, becomes), lines = EDITS[name]
            space = Space(path, f"r{count}-{name}".replace(" ", "-"))
            lease = space.acquire("test", now=SystemClock().now(), ttl_s=60)
            open_signed(space, lease.epoch)
            space.append(rows[:count], lease.epoch)
            space.release(lease)
            run = DurableRun(space)
            printed = run.output()
            edited = SOURCE.replace(was, becomes)
            where = f"{name}, behind row {count}: {rows[count - 1].kind}"
            try:
                migration = plan_migration(run, compile_source(edited, "a.vega"), {"a.vega": edited})
            except ConfigError:
                assert live(space, tmp_path) == OUTPUT, where
                outcomes[name].add(False)
            else:
                output = live(space, tmp_path, migration=migration)
                assert output[: len(printed)] == printed, where
                assert len(output) == len(lines), where
                for index, line in enumerate(output):
                    assert line in (lines[index], *OUTPUT[index : index + 1]), where
                assert len(DurableRun(space).versions) == 2
                outcomes[name].add(True)
            space.close()
    accepted = {name for name, results in outcomes.items() if True in results}
    refused = {name for name, results in outcomes.items() if False in results}
    assert "a function at the end" in accepted, outcomes
    assert len(accepted) > 4, outcomes
    assert refused, outcomes


def test_who_listens_hears_of_another_program(tmp_path: Path):
    """With what changed, once it is in force."""
    path = str(tmp_path / "run.db")
    facts: dict[str, Any] = {"id": "whole", "file": "a.vega", "model": None, "budget": None, "args": []}
    facts |= {"folder": str(tmp_path), "sources": {"a.vega": SOURCE}}
    whole = Space(path, "whole")
    assert live(whole, tmp_path, facts) == OUTPUT
    rows = list(DurableRun(whole).rows())
    whole.close()
    last = max(number for number, row in enumerate(rows) if row.kind == "run.printed")
    space = Space(path, "cut")
    lease = space.acquire("test", now=SystemClock().now(), ttl_s=60)
    open_signed(space, lease.epoch)
    space.append(rows[:last], lease.epoch)
    space.release(lease)
    edited = SOURCE.replace('"last ${x}"', '"later ${x}"')
    heard: list[Event] = []
    migration = plan_migration(DurableRun(space), compile_source(edited, "a.vega"), {"a.vega": edited})
    assert live(space, tmp_path, migration=migration, listener=heard.append)[:3] == OUTPUT[:3]
    (event,) = [event for event in heard if event.kind == "run.migrated"]
    (ended,) = [event for event in heard if event.kind == "run.ended"]
    assert event.data["hash"] == ended.data["hash"] != DurableRun(space).began["hash"]
    space.close()


# ---------------------------------------------------------------- fitting


def output_of(program: Any) -> list[str]:
    lines: list[str] = []
    try:
        vega.run(program, stdout=lines.append, stderr=lines.append)
    except Exception as error:
        lines.append(str(error).partition("\n")[0])
    return lines


@pytest.mark.parametrize("seed", first(range(cases(40)), 4))
def test_a_fitted_program_does_what_it_did(seed: int):
    """Laid over any other program it is sound and prints the same; over itself it is itself."""
    old = compile_source(random_program(seed), "a.vega")
    new = compile_source(random_program(seed + 1_000), "a.vega")
    laid = renumber(old, new)
    verify(laid)
    assert output_of(laid) == output_of(new)
    assert renumber(old, old) == old
    assert not find_changed_functions(old, renumber(old, old))


def test_functions_keep_their_numbers_and_leave_gaps():
    old = compile_source("fn a() { return 1; }\nfn b() { return a(); }\nprint(b());", "x.vega")
    new = compile_source("fn c() { return 3; }\nfn b() { return c(); }\nprint(b());", "y.vega")
    laid = renumber(old, new)
    numbers = {function.name: index for index, function in enumerate(laid.functions)}
    assert numbers["b"] == [function.name for function in old.functions].index("b")
    assert numbers["c"] == len(old.functions)
    assert is_gone(laid.functions[numbers["a"]])
    assert {old.functions[index].name for index in find_changed_functions(old, laid)} == {"a", "b"}
