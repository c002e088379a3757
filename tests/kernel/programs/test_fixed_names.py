"""Lyra's own programs have fixed names in journals: stores of earlier versions go on, and no file path is written."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import pkgutil
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra import Agent, tool, vega
from lyra.core import naming
from lyra.core.naming import OLD_NAMES, find_thing, get_qualified_name, old_names, to_fixed_name
from lyra.errors import LyraError
from lyra.kernel import Child, Kernel
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.pipelines.runner import run_pipeline
from lyra.kernel.services.registry import ServiceInfo
from lyra.kernel.supervision.supervisor import supervise
from lyra.store import open_store
from lyra.vega.runtime.driver import PROGRAMS, agent_front, vega_process
from lyra.vega.runtime.world import RunOptions, World
from tests.agents.support import calls, says
from tests.kernel.conftest import Crash, an_earlier_version, run, settle

MODULE_PATH = re.compile(rb"lyra(\.[a-z_0-9]+)+:[A-Za-z_]")


def own_modules() -> list[str]:
    """Every module that is shipped and that users may come to, without the commands' entry points."""
    modules = pkgutil.walk_packages(lyra.__path__, "lyra.")
    left_out = ("lyra.testing", "lyra.store.postgres", "lyra.__main__")
    return [module.name for module in modules if not module.name.startswith(left_out) and "__main__" not in module.name]


def data_of(path: str) -> list[bytes]:
    """All that a store holds: rows, snapshots, blobs."""
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        tables = [name for (name,) in file.execute("select name from sqlite_master where type = 'table'")]
        cells = [cell for table in tables for row in file.execute(f'select * from "{table}"') for cell in row]
    return [cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells]


def paths_in(path: str) -> set[bytes]:
    return {match.group() for cell in data_of(path) for match in MODULE_PATH.finditer(cell)}


# ---------------------------------------------------------------------- the table
def test_every_fixed_name_has_its_thing():
    """Each row of the table is carried by one function or class, which has that name and is found by the old ones."""
    for module in own_modules():
        importlib.import_module(module)
    for name, olds in OLD_NAMES.items():
        thing = find_thing(name)
        assert thing is not None, name
        assert get_qualified_name(thing) == to_fixed_name(name) == name
        assert olds == old_names(name)
        assert all(to_fixed_name(old) == name and find_thing(old) is thing for old in olds)
    every_old = [old for names in OLD_NAMES.values() for old in names]
    assert len(every_old) == len(set(every_old))
    assert not set(every_old) & set(OLD_NAMES)


STARTS = {"spawn", "start", "adopt", "Child", "Kernel", "ProcessPrograms"}  # calls that are given programs

# Raised and caught inside one component, or shown to a person who runs a command: no journal has them.
INSIDE = {
    *("_Refused", "_Swapped", "Overtaken", "Stop", "Barrier", "GiveUp", "_Unfit", "_Bad", "RenameRefused"),
    *("Abandoned", "_Returned", "_NotPlain", "UnknownCommand", "BadPattern", "_NoForm", "TooDeep"),
    *("CallRefused", "ClientLeft", "HttpRefusal", "InvalidLine", "RpcError", "VendorPathMissed"),
    *("AnswerTooLarge", "PatternTooLarge", "StopLookahead"),
    *("Again", "NotEarly", "TooManySteps", "Unsupported", "_PassOnError"),
    # of nodes: a failure of theirs leaves as an outcome
    *("UnreadableInputs", "SqlRefused"),
    *("DeclaredError", "EffectError", "EffectFailure", "FailedAct", "HttpFailure", "Misfit"),
    *("Mismatch", "NodeError", "NotSupplied", "UndefinedName", "Unjudged", "Unverifiable"),
    *("_Answered", "_EffectFailed", "_Refused", "_Returned", "_TooLong", "_RecordLeaves", "WrongAnswer"),
    *("UnsupportedNode", "NoModelInput", "_NoPattern"),
    # of Sage: a hook's failure is its answer, a damaged index is made anew, the end of a file ends the reading of it
    *("HookFailed", "_Damaged", "StreamEnded"),
}
_START = re.compile(rf"\b({'|'.join(sorted(STARTS))})\s*[()]")  # what a text with such a call has
NO_PROGRAMS = {"lyra.vesper.python.run:start", "lyra.vesper.direct.run:start", "lyra.vesper.reference.run:start"}
NO_PROGRAMS |= {
    "lyra.sage.commands.settings:config",
    "lyra.sage.commands.settings:output",
    "lyra.server.http.api.interrupts:answer",
}


def test_every_program_that_lyra_starts_has_a_fixed_name():
    """Each function that Lyra hands to `spawn`, or to a supervisor as a child, is in the table."""
    programs, words = {}, set()
    for name in own_modules():
        module = importlib.import_module(name)
        text = inspect.getsource(module)
        for node in ast.walk(ast.parse(text)) if _START.search(text) else ():
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in STARTS:
                is_table = getattr(node.func, "id", "") == "ProcessPrograms"
                given = [keyword.value for keyword in node.keywords] if is_table else node.args
                words |= {argument.id for argument in given if isinstance(argument, ast.Name)}
        functions = [function for function in vars(module).values() if inspect.iscoroutinefunction(function)]
        programs |= {
            function.__name__: function for function in functions if getattr(function, "__module__", "") == name
        }
    started = {programs[word] for word in words & set(programs)}
    assert {supervise, run_pipeline, vega_process, agent_front} <= started
    assert {get_qualified_name(program) for program in started} - NO_PROGRAMS <= set(OLD_NAMES)


def test_every_exception_that_leaves_its_component_has_a_fixed_name():
    """Those that are no LyraErrors, which go by their code."""
    unnamed = set()
    for name in own_modules():
        for thing in vars(importlib.import_module(name)).values():
            is_error = inspect.isclass(thing) and issubclass(thing, Exception) and not issubclass(thing, LyraError)
            if is_error and thing.__module__ == name and get_qualified_name(thing) not in OLD_NAMES:
                unnamed.add(thing.__qualname__)
    assert unnamed == INSIDE


@pytest.mark.parametrize("program", [supervise, run_pipeline, vega_process, agent_front])
def test_a_kernel_finds_a_program_by_its_old_names(program):
    kernel = Kernel(programs=[program])
    name = get_qualified_name(program)
    assert old_names(name)
    assert all(kernel.programs.get(known) is program for known in (name, *old_names(name)))


def test_a_subclass_has_a_name_of_its_own():
    fault = find_thing("lyra:vega.Fault") or importlib.import_module("lyra.vega.values.values").Fault
    other = type("Other", (fault,), {"__module__": "elsewhere"})
    assert get_qualified_name(fault) == "lyra:vega.Fault"
    assert get_qualified_name(other) == "elsewhere:Other"


def test_rows_and_snapshots_of_earlier_versions_are_read_with_fixed_names():
    """Both the row that creates a process and the state that a snapshot holds of it."""
    for name, (old, *_) in ((name, olds) for name, olds in OLD_NAMES.items() if olds):
        row = rows.Created(old, key=1, parent="up")
        assert rows.DECODERS["process.created"].decode(rows.encode(row)).program == name
        fold = Fold()
        fold.add_all([(1, 0.0, "up", "process.created", rows.encode(rows.Created(old)))])  # type: ignore[list-item]
        fold.add_all([(2, 0.0, "p", "process.created", rows.encode(row))])  # type: ignore[list-item]
        fold.processes["up"].created.program = fold.processes["up"].effects[1].name = old
        states = {pid: state for pid, state in fold.dump().items() if state is not None}
        again = Fold.load(2, states)
        assert again.processes["up"].created.program == again.processes["up"].effects[1].name == name


@pytest.mark.parametrize("name", ["lyra:vega.Fault", "lyra:demo.ServiceError"])
def test_exceptions_of_earlier_versions_come_back_as_their_class(monkeypatch, name):
    """An `except` clause of Lyra's own meets the same class after its file has moved."""
    importlib.import_module("lyra.vega.values.values")
    importlib.import_module("lyra.cli.demo.team")
    kind: Any = find_thing(name)
    error = kind("Overflow", "too large") if name == "lyra:vega.Fault" else kind(503)
    with an_earlier_version(monkeypatch):
        before = error_to_row(error)
    now = error_to_row(error)
    assert f"{before['module']}:{before['type']}" in OLD_NAMES[name]
    assert f"{now['module']}:{now['type']}" == name
    monkeypatch.setitem(before, "module", before["module"])
    for row in (before, now):
        again = error_from_row(row)
        assert type(again) is kind
        assert again.args == error.args


# ---------------------------------------------------------------------- stores of earlier versions
async def worker(ctx, label="w"):
    while True:
        message = await ctx.receive()
        if message == "crash":
            raise ValueError("boom")
        await ctx.send(message["to"], [label, message["say"]])


async def manager(ctx):
    """Supervisors inside supervisors, a guarded child, a refused spawn, and a question that it waits for."""
    tree = [Child("a", worker, ("a",), name="a"), Child.supervisor("in", [Child("b", worker, ("b",), name="b")])]
    ctx.supervise(tree, name="tree")
    ctx.spawn(worker, "g", name="g", supervision={"max_restarts": 3})
    await ctx.sleep(0.01)
    heard = []
    for name in ("a", "b", "g"):
        await ctx.send(name, {"to": ctx.pid, "say": "first"})
        heard.append(await ctx.receive())
    await ctx.ask("go on?")
    for name in ("a", "b", "g"):
        await ctx.send(name, {"to": ctx.pid, "say": "second"})
        heard.append(await ctx.receive())
    return heard


async def until_it_asks(kernel):
    async with asyncio.timeout(20):
        while not kernel.interrupts.pending():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("snapshot", [False, True])
def test_supervisors_of_an_earlier_version_go_on(path, monkeypatch, snapshot):
    """Their plans, their rows and the digests of what was spawned have old names; nothing diverges, all restart."""

    async def first():
        async with Crash(Kernel(path, programs=[manager, worker])) as kernel:
            kernel.spawn(manager, pid="main")
            await until_it_asks(kernel)
            await kernel.durable()
            if snapshot:
                await kernel._snapshots.write()

    async def second():
        async with Kernel(path, programs=[manager, worker]) as kernel:
            assert kernel.supervisor("tree").alive
            await settle(kernel)
            for name in ("a", "b"):  # they come back, and are started again by supervisors that came back
                kernel.send(name, "crash")
                await settle(kernel)
            (question,) = kernel.interrupts.pending()
            await kernel.resolve_interrupt(question.id, {"approved": True})
            ended = await kernel.process("main").wait()
            assert ended.error is None, ended.error
            told = [["a", "first"], ["b", "first"], ["g", "first"], ["a", "second"], ["b", "second"], ["g", "second"]]
            assert ended.result == told

    with an_earlier_version(monkeypatch):
        run(first())
    assert b"lyra.kernel.supervisor:s" in paths_in(path)
    run(second())


def test_a_restart_of_an_old_plan_is_journaled_under_the_fixed_name(path, monkeypatch):
    """A supervisor whose plan has old names starts a nested supervisor again: the new rows have fixed names."""
    tree = [Child.supervisor("in", [Child("b", worker, ("b",), name="b")])]

    async def first():
        async with Crash(Kernel(path, programs=[worker])) as kernel:
            await kernel.supervise(tree, pid="sup")

    async def second():
        async with Kernel(path, programs=[worker]) as kernel:
            sup = await kernel.supervisor("sup")
            assert [child.program for child in sup.which_children()] == ["lyra:supervise"]
            seq = kernel.journal.seq
            await sup.terminate_child("in")
            await sup.restart_child("in")
            await kernel.durable()
            created = list(kernel.journal.store.read(after=seq, kind="process.created"))
            assert [b"lyra:supervise" in row.data for row in created] == [True, False]
            assert not any(MODULE_PATH.search(row.data) for row in created)
        async with Kernel(path, programs=[worker]) as kernel:
            sup = await kernel.supervisor("sup")
            assert [child.state for child in sup.which_children()] == ["running"]

    with an_earlier_version(monkeypatch):
        run(first())
    run(second())


PIPELINE = {
    "name": "two",
    "agents": [
        {"name": "one", "default_next": "two"},
        {"name": "two"},
    ],
}


def test_a_pipeline_of_an_earlier_version_goes_on(path, monkeypatch):
    asked: list[str] = []
    held = asyncio.Event

    async def first():
        async with Crash(Kernel(path)) as kernel:
            never = held()

            async def first_stage(envelope):
                asked.append("one")
                return {"text": "1"}

            async def second_stage(envelope):
                await never.wait()

            kernel.register_agent("one", first_stage)
            kernel.register_agent("two", second_stage, idempotent=True)

            async def listen():
                async for _ in kernel.execute_pipeline(PIPELINE, {"raw_input": "x"}, pid="line"):
                    pass

            task = asyncio.ensure_future(listen())
            async with asyncio.timeout(20):
                while not asked or kernel.core.in_flight == 0:
                    await asyncio.sleep(0.01)
            await kernel.durable()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def second():
        async with Kernel(path) as kernel:

            async def second_stage(envelope):
                asked.append("two")
                return {"text": "2"}

            kernel.register_agent("one", second_stage)
            kernel.register_agent("two", second_stage, idempotent=True)
            ended = await kernel.process("line").wait()
            assert ended.error is None, ended.error

    with an_earlier_version(monkeypatch):
        run(first())
    assert b"lyra.kernel.pipeline_runner:r" in paths_in(path)
    run(second())
    assert asked == ["one", "two"]


async def dispatches(ctx):
    await ctx.do(_kernels[-1].dispatch, "echo", {"metadata": {"text": "hello"}})
    await ctx.ask("go on?")


_kernels: list[Any] = []


def test_an_effect_of_an_earlier_version_is_answered_from_its_journal(path, monkeypatch):
    """A function of Lyra that a program handed to `ctx.do`: the old name in the row is the same request."""
    served: list[Any] = []

    async def echo(request):
        served.append(request)
        return {"metadata": request.metadata}

    def opened() -> Kernel:
        kernel = Kernel(path, programs=[dispatches])
        _kernels.append(kernel)
        return kernel

    async def first():
        async with Crash(opened()) as kernel:
            kernel.register_service(ServiceInfo("echo"))
            kernel.register_handler("echo", echo)
            kernel.spawn(dispatches, pid="main")
            await until_it_asks(kernel)
            await kernel.durable()

    async def second():
        async with opened() as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending()
            await kernel.resolve_interrupt(question.id, {"approved": True})
            ended = await kernel.process("main").wait()
            assert ended.error is None, ended.error

    with an_earlier_version(monkeypatch):
        run(first())
    assert any(row_path.startswith(b"lyra.kernel.requests:R") for row_path in paths_in(path))
    run(second())
    assert len(served) == 1


VEGA = """
agent A { model "sim/script" }
fn worker(main, n) { while true { receive { x => { main <- x + n; } } } }
supervisor Team { child w = fn worker(process::whereis("main"), 7) child b = A }
let a = spawn A;
print(a <- "one");
let p = spawn fn worker(process::self(), 5);
let s = spawn Team;
spawn fn worker(process::self(), 9) supervised by { strategy restart };
p <- 1;
receive { r => { print(r); } }
process::register("main");
print("there");
receive { "go on" => {} }
p <- 2;
receive { r => { print(r); } }
print(a <- "again");
"""


class VegaLife:
    """One life of a kernel with a Vega program."""

    def __init__(self, path: Any, source: str) -> None:
        from lyra.models.client import LLMClient
        from lyra.models.sim import SimProvider

        self.lines: list[str] = []
        self.kernel = Kernel(path, programs=[vega_process, agent_front])
        client = LLMClient()
        client.register("sim", SimProvider(script=lambda request: request.messages[-1].text))
        self.kernel.parts["models"] = client
        options = RunOptions(write=self.lines.append, warn=self.lines.append)
        self.world = World(self.kernel, vega.compile(source), options, "run", programs=PROGRAMS)


async def vega_first(path):
    life = VegaLife(path, VEGA)
    await life.kernel.start()
    life.kernel.spawn(vega_process, "run", None, pid="main", grant=life.world.rights.grant)
    async with asyncio.timeout(20):
        while "there" not in life.lines:
            assert life.kernel.process("main").alive, life.lines
            await asyncio.sleep(0.01)
    await life.kernel.close(drain_s=0.0)
    assert life.lines == ["one", "6", "there"]


async def vega_second(path):
    life = VegaLife(path, VEGA)
    await life.kernel.start()
    life.kernel.send("main", "go on")
    ended = await life.kernel.process("main").wait()
    await life.kernel.close()
    assert ended.error is None, ended.error
    assert life.lines == ["7", "again"]


def test_vega_processes_and_agents_of_an_earlier_version_go_on(path, monkeypatch):
    with an_earlier_version(monkeypatch):
        run(vega_first(path))
    assert {b"lyra.vega.runtime.driver:v", b"lyra.vega.runtime.agents:a"} <= paths_in(path)
    run(vega_second(path))


# ---------------------------------------------------------------------- what is written from now on
@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_no_path_of_lyra_is_written(tmp_path):
    """Supervisors, guards, pipelines, agents with tools, effects, Vega: no row, snapshot or blob has a module path."""
    store = str(tmp_path / "kernel.db")

    async def everything():
        agent = Agent("helper", model=says(calls("add", a=1, b=2), "three"), tools=[add])
        async with Kernel(store, programs=[manager, worker, agent]) as kernel:
            _kernels.append(kernel)

            async def stage(envelope):
                return {"text": "1"}

            async def echo(request):
                return {"metadata": request.metadata}

            kernel.register_agent("one", stage)
            kernel.register_agent("two", stage)
            kernel.register_service(ServiceInfo("echo"))
            kernel.register_handler("echo", echo)
            async for _ in kernel.execute_pipeline(PIPELINE, {"raw_input": "x"}, pid="line"):
                pass
            process = await kernel.spawn(agent, supervision={"max_restarts": 1})
            assert await process.send("1 + 2?") == "three"
            kernel.spawn(dispatches)
            kernel.spawn(manager)
            async with asyncio.timeout(20):
                while len(kernel.interrupts.pending()) < 2:
                    await asyncio.sleep(0.01)
            await kernel.durable()
            await kernel._snapshots.write()

    run(everything())
    run(vega_first(tmp_path / "vega.db"))
    names = b"".join(data_of(store) + data_of(str(tmp_path / "vega.db")))
    for name in (
        b"lyra:supervise",
        b"lyra:pipeline",
        b"lyra:Kernel.dispatch",
        b"lyra:vega.process",
        b"lyra:vega.agent",
    ):
        assert name in names, name
    assert paths_in(store) | paths_in(str(tmp_path / "vega.db")) == set()


def test_the_source_has_each_old_name_once():
    """Old names stand in the table and nowhere else."""
    sources = Path(lyra.__path__[0]).rglob("*.py")
    table = Path(naming.__file__)
    olds = [old for names in OLD_NAMES.values() for old in names]
    assert [path for path in sources if path != table and any(f'"{old}"' in path.read_text() for old in olds)] == []


def test_an_old_store_is_opened_read_only_by_its_readers(path, monkeypatch):
    """What reads a store without a kernel has fixed names as well."""
    with an_earlier_version(monkeypatch):
        run(_one_supervisor(path))
    store = open_store(path)
    fold = Fold()
    fold.add_all(store.read())
    store.close()
    assert {state.created.program for state in fold.processes.values()} == {"lyra:supervise", f"{__name__}:worker"}


async def _one_supervisor(path):
    async with Crash(Kernel(path, programs=[worker])) as kernel:
        await kernel.supervise([Child("a", worker)], pid="sup")
