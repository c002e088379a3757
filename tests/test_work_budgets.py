"""What an operation does, in counts that no machine changes: calls of Lyra's functions, source files that they are in,
rows, commits, bytes, files that are opened.

`work_budgets.toml` holds the figures. A figure that rises by more than 2 % fails here, and so does one that falls by
more than 5 %: the new number is then written there, a higher one with its reason in a comment. Timings are in
`benchmarks/`.

An allocation is a block that Python's objects ask for (`tests/allocations.py`). A call is a frame of `lyra`, also one
that is resumed; those of the standard library are not counted, nor those of comprehensions, which have no frame of
their own from Python 3.12 on. Each operation is made several times and the least counts: a busy machine only adds.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import lyra
from lyra import Agent, Kernel, tool, vesper
from lyra.models.sim import SimProvider
from tests.allocations import counting

BUDGETS: Final[dict[str, dict[str, int]]] = tomllib.loads(Path(__file__).with_name("work_budgets.toml").read_text())
RISE_MAX, FALL_MAX = 0.02, 0.05
ALLOCATIONS_RISE_MAX = 0.05  # tables of the standard library grow now and then
MEASURED_ON: Final = (3, 11)  # allocations are those of this Python; others make their objects otherwise
WARM, TIMES = 6, 9
SOURCE: Final = str(Path(lyra.__file__).parent) + os.sep
WITHOUT_FRAME: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})

Figures = dict[str, int]
Step = Callable[[], Any]


class Operation(NamedTuple):
    """What is done again and again, the kernel whose journal it writes to, what is done before it, uncounted, and how
    often: uncounted ones first. A long one that does the same each time needs few."""

    step: Step
    kernel: Kernel | None = None
    prepare: Callable[[], Awaitable[None]] | None = None
    warm: int = WARM
    times: int = TIMES


class CallCounter:
    """A profile function that counts calls of Lyra's functions, and the source files that they are in."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()

    def figures(self) -> Figures:
        return {"python_calls": self.calls, "source_files": len(self.files)}

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(SOURCE) and code.co_name not in WITHOUT_FRAME:
                self.calls += 1
                self.files.add(code.co_filename)


async def finish(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


async def allocations(operation: Operation) -> int:
    """Count without the profile function, whose own objects would be among them."""
    if operation.prepare is not None:
        await operation.prepare()
    with counting() as counter:
        await finish(operation.step())
    return counter.number


async def once(operation: Operation) -> Figures:
    journal = operation.kernel.journal if operation.kernel is not None else None
    rows, commits = (journal.seq, journal.commits) if journal is not None else (0, 0)
    counter = CallCounter()
    if operation.prepare is not None:
        await operation.prepare()
    sys.setprofile(counter)
    try:
        await finish(operation.step())
    finally:
        sys.setprofile(None)
    figures = counter.figures()
    if operation.kernel is not None and journal is not None:
        await operation.kernel.durable()
        figures["journal_rows"] = journal.seq - rows
        figures["commits"] = journal.commits - commits
        figures["bytes_written"] = sum(len(row.data) for row in journal.store.read(after=rows))
    return figures


async def least(operation: Operation) -> Figures:
    for _ in range(operation.warm):
        await once(operation)
    gc.collect()
    gc.disable()
    try:
        measured = [await once(operation) for _ in range(operation.times)]
        blocks = [await allocations(operation) for _ in range(operation.times)]
    finally:
        gc.enable()
    return {name: min(figures[name] for figures in measured) for name in measured[0]} | {"allocations": min(blocks)}


def compare(name: str, measured: Figures) -> None:
    """Fail with a sentence for each figure that is not what the file says."""
    faults = []
    budget = dict(BUDGETS[name])
    if sys.version_info[:2] != MEASURED_ON:
        budget.pop("allocations", None)
        measured = {figure: now for figure, now in measured.items() if figure != "allocations"}
    for figure, now in measured.items():
        known = budget.get(figure)
        if known is None:
            faults.append(f"{figure} is {now}, and has no number yet")
        elif now > known * (1 + (ALLOCATIONS_RISE_MAX if figure == "allocations" else RISE_MAX)):
            faults.append(f"{figure} rose from {known} to {now}: save the work, or write {now} with its reason")
        elif now < known * (1 - FALL_MAX):
            faults.append(f"{figure} fell from {known} to {now}: lower the number")
    faults += [f"{figure} is not measured any more" for figure in budget.keys() - measured.keys()]
    assert not faults, f"[{name}] in tests/work_budgets.toml: {'; '.join(faults)}"


# ---------------------------------------------------------------- the operations


def echo() -> Agent[Any]:
    return Agent("echo", model="sim/echo", system="Say it again.")


@asynccontextmanager
async def kernel_run(_: Path) -> AsyncIterator[Operation]:
    agent = echo()
    async with Kernel() as kernel:
        yield Operation(lambda: kernel.run(agent, "hello"))


@asynccontextmanager
async def send_in_memory(_: Path) -> AsyncIterator[Operation]:
    async with Kernel() as kernel:
        process = kernel.spawn(echo())
        yield Operation(lambda: process.send("hello"))


@asynccontextmanager
async def send_on_sqlite(folder: Path) -> AsyncIterator[Operation]:
    async with Kernel(folder / "run.db") as kernel:
        process = kernel.spawn(echo())
        yield Operation(lambda: process.send("hello"), kernel)


@tool
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@asynccontextmanager
async def tool_turn(_: Path) -> AsyncIterator[Operation]:
    asks = {"tool_calls": [{"name": "add", "arguments": {"left": 20, "right": 22}}]}
    model = SimProvider(script={"replies": [{"tool": "add", "text": "42"}, asks]})
    agent = Agent("adder", model=model, tools=[add])
    async with Kernel() as kernel:
        yield Operation(lambda: kernel.run(agent, "add them"))


async def idle(ctx: Any) -> None:
    await ctx.receive()


@asynccontextmanager
async def spawn_and_kill(_: Path) -> AsyncIterator[Operation]:
    async with Kernel() as kernel:

        async def step() -> None:
            process = kernel.spawn(idle)
            await asyncio.sleep(0)
            process.kill()
            await process.wait()

        yield Operation(step)


async def nothing() -> int:
    return 1


@asynccontextmanager
async def durable_step(folder: Path) -> AsyncIterator[Operation]:
    is_done = asyncio.Event()

    async def steps(ctx: Any) -> None:
        while True:
            await ctx.receive()
            await ctx.do(nothing)
            is_done.set()

    async with Kernel(folder / "run.db") as kernel:
        process = kernel.spawn(steps)
        await process

        async def step() -> None:
            is_done.clear()
            await process.send("go")
            await is_done.wait()
            await kernel.durable()

        yield Operation(step, kernel)


NODE: Final = """\
node_id: discount_v1
type: function
intent: lower the price of an order by its discount
inputs:
  price: {type: decimal, scale: 2, constraints: [positive]}
  percent: {type: integer, constraints: [{min: 0}, {max: 90}]}
outputs:
  success:
    total: {type: decimal, scale: 2}
    saved: {type: decimal, scale: 2}
  error: {error_code: "enum[too_much]", message: string}
contracts:
  postconditions: ["success => total + saved == price"]
flow:
  - {step: find_discount, operation: arithmetic, expression: "price * percent / 100", scale: 2, output: saved}
  - {step: find_total, operation: arithmetic, expression: "price - saved", output: total}
"""


@asynccontextmanager
async def vesper_execute(_: Path) -> AsyncIterator[Operation]:
    node = vesper.load(NODE)
    with vesper.Runtime() as runtime:
        yield Operation(lambda: runtime.execute(node, {"price": "10.00", "percent": 10}))


@asynccontextmanager
async def vesper_compare(_: Path) -> AsyncIterator[Operation]:
    """`vesper verify` with 2 000 inputs: drawing them, both paths, and what is learned from some of them."""
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.evidence.differential import test

    program = program_of(vesper.load(NODE))
    yield Operation(lambda: test(program, 2_000, 1), warm=1, times=2)


@asynccontextmanager
async def list_processes(_: Path) -> AsyncIterator[Operation]:
    from tests.server.http.support import serving

    async with serving(echo()) as served:
        for _number in range(3):
            served.kernel.spawn(idle)
        yield Operation(lambda: served.operator.get("/api/processes"))


@asynccontextmanager
async def create_process(_: Path) -> AsyncIterator[Operation]:
    from tests.server.grpc.client import serving

    async with serving() as (_kernel, client):
        pids = iter(f"made-{number:03}" for number in range(1000))
        yield Operation(lambda: client("KernelService/CreateProcess", pid=next(pids), user_id="ada"))


@asynccontextmanager
async def gateway_call(_: Path) -> AsyncIterator[Operation]:
    from tests.server.gateway.support import serving_gateway

    async with serving_gateway() as served, served.client(await served.key()) as client:
        body = {"model": "openai/gpt-5", "messages": [{"role": "user", "content": "hello"}]}

        async def step() -> None:
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text

        yield Operation(step)


@asynccontextmanager
async def sage_turn(folder: Path) -> AsyncIterator[Operation]:
    """A turn of a session of Sage in which the model reads a file and changes it."""
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.config import Config
    from lyra.sage.agent.live import LiveSession, SessionStart

    work, script = folder / "work", folder / "script.json"
    work.mkdir()
    (work / "a.txt").write_text("one\n")
    edit = {"file_path": "a.txt", "old_string": "one", "new_string": "one"}
    replies = [
        {"tool": "Edit", "text": "done"},
        {"tool": "Read", "tool_calls": [{"name": "Edit", "arguments": {**edit, "new_string": "two"}}]},
        {"user": "go", "tool_calls": [{"name": "Read", "arguments": {"file_path": "a.txt"}}]},
    ]
    script.write_text(json.dumps({"replies": replies}))
    options = HeadlessOptions(model=f"sim/script:{script}", folder=str(work), mode="bypass")
    async with LiveSession(options, Config.load(work), start=SessionStart(root=str(folder / "sessions"))) as session:

        async def prepare() -> None:
            (work / "a.txt").write_text("one\n")
            await session.clear()

        async def step() -> None:
            lines = [line async for line in session.send("go")]
            assert [line["is_error"] for line in lines if line["type"] == "tool_end"] == [False, False], lines

        yield Operation(step, prepare=prepare)


OPERATIONS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Operation]]]] = {
    "kernel_run": kernel_run,
    "send_in_memory": send_in_memory,
    "send_on_sqlite": send_on_sqlite,
    "tool_turn": tool_turn,
    "spawn_and_kill": spawn_and_kill,
    "durable_step": durable_step,
    "vesper_execute": vesper_execute,
    "vesper_compare": vesper_compare,
    "sage_turn": sage_turn,
    "list_processes": list_processes,
    "create_process": create_process,
    "gateway_call": gateway_call,
}


async def measure(name: str, folder: Path) -> Figures:
    async with OPERATIONS[name](folder) as operation:
        return await least(operation)


def measure_lyra_run() -> Figures:
    """Count `lyra.run` with a kernel and a loop of its own, which it makes and closes."""
    agent = echo()
    for _ in range(WARM):
        lyra.run(agent, "hello")
    counts: list[Figures] = []
    for _ in range(TIMES):
        counter = CallCounter()
        sys.setprofile(counter)
        try:
            lyra.run(agent, "hello")
        finally:
            sys.setprofile(None)
        counts.append(counter.figures())
    blocks = []
    for _ in range(TIMES):
        with counting() as allocated:
            lyra.run(agent, "hello")
        blocks.append(allocated.number)
    return {name: min(count[name] for count in counts) for name in counts[0]} | {"allocations": min(blocks)}


def measure_all() -> dict[str, Figures]:
    figures = {"lyra_run": measure_lyra_run()}
    for name in OPERATIONS:
        with tempfile.TemporaryDirectory(dir="/tmp") as path:
            os.chdir(path)
            figures[name] = asyncio.run(measure(name, Path(path)))
            os.chdir("/")
    return figures


@pytest.fixture
def folder() -> Iterator[Path]:
    """A home without settings of the user, which would be work of their own, and near the root: Lyra looks for settings
    in each folder above."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def measured() -> dict[str, Figures]:
    """The figures of a process of its own: what other tests have loaded and registered would count, too."""
    root, source = Path(__file__).parents[1], Path(lyra.__file__).parents[1]
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        env = {"HOME": path, "PATH": os.environ["PATH"], "PYTHONPATH": f"{source}:{root}"}
        command = [sys.executable, "-m", "tests.test_work_budgets"]
        done = subprocess.run(command, env=env, cwd=path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Figures] = json.loads(done.stdout.splitlines()[-1])
    return figures


@pytest.mark.parametrize("name", ["lyra_run", *OPERATIONS])
def test_an_operation_does_no_more_work_than_its_budget(name: str, measured: dict[str, Figures]) -> None:
    compare(name, measured[name])


SAGE_PRINTS: Final = """\
import os, sys, threading
source, without_frame = sys.argv[1], ("<listcomp>", "<dictcomp>", "<setcomp>")
calls = files = 0

def count(frame, event, _):
    global calls
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(source) and code.co_name not in without_frame:
            calls += 1
            if code.co_name == "stream" and code.co_filename.endswith("sim.py"):
                threading.setprofile(None)
                sys.setprofile(None)
                print(calls, files, file=sys.stderr, flush=True)
                os._exit(0)

def opened(event, arguments):
    global files
    # What Python compiles is no file of Sage's, also where it cannot be kept.
    if event == "open" and ".py" not in (name := str(arguments[0])) and not name.endswith(".so"):
        files += 1

sys.addaudithook(opened)
threading.setprofile(count)
sys.setprofile(count)
from lyra.cli.main import sage
sage(["-p", "hello", "--model", "sim/echo"])
"""


def test_sage_prints_with_no_more_work_than_its_budget(folder: Path) -> None:
    """`sage -p`, from the start of the process until its model is asked, with all that it imports."""
    env = {"HOME": str(folder), "PATH": os.environ["PATH"], "XDG_DATA_HOME": str(folder / "data")}
    env["PYTHONPATH"] = str(Path(lyra.__file__).parents[1])
    counted = []
    for _ in range(4):  # the first makes folders, and what Python compiles
        command = [sys.executable, "-c", SAGE_PRINTS, SOURCE]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        counted.append([int(word) for word in done.stderr.split()[-2:]])
    calls, files = map(min, zip(*counted, strict=True))
    compare("sage_print", {"python_calls": calls, "files_opened": files})


def test_every_figure_belongs_to_an_operation() -> None:
    assert BUDGETS.keys() == {*OPERATIONS, "lyra_run", "sage_print"}


if __name__ == "__main__":
    print(json.dumps(measure_all()))
