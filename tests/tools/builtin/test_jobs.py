"""Commands in the background: told piece by piece, ended by hand, and with their process or kernel at the latest."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.core.tool import Tool, caller, ending, job_log
from lyra.errors import ToolError
from lyra.sandbox import examine
from lyra.tools.builtin import builtin_tools
from lyra.tools.builtin.bash import JOBS_MAX
from tests.agents.support import calls, says

WORKING = [state.name for state in asyncio.run(examine()) if state.works]
pytestmark = pytest.mark.skipif(not WORKING, reason="no sandbox works here")
ALLOWED = {"allow": ["Bash"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


class Shell:
    """The three tools, called as by one process; `end` is what happens when that process ends."""

    def __init__(self, root: Path) -> None:
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools(str(root))}
        self.ends: list[Callable[[], Any]] = []

    async def call(self, name: str, **arguments: Any) -> str:
        ending.set(self.ends.append)
        run = self.tools[name].run
        assert run is not None
        return str(await run(**arguments))

    async def start(self, command: str) -> str:
        output = await self.call("Bash", command=command, run_in_background=True)
        match = re.search(r"as (bash_\d+);", output)
        assert match is not None
        return match[1]

    async def until(self, bash_id: str, word: str) -> str:
        """Look until a word has come; everything that was told on the way."""
        told = ""
        async with asyncio.timeout(10):
            while word not in told:
                told += await self.call("BashOutput", bash_id=bash_id)
                await asyncio.sleep(0.01)
        return told

    async def end(self) -> None:
        for end in self.ends:
            await asyncio.gather(*end())


def in_shell(root: Path, scene: Callable[[Shell], Any]) -> None:
    async def main() -> None:
        shell = Shell(root)
        try:
            await scene(shell)
        finally:
            await shell.end()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_each_look_tells_what_is_new(root: Path):
    async def scene(shell: Shell) -> None:
        name = await shell.start("echo one; while ! [ -e go ]; do sleep 0.02; done; echo two; exit 4")
        first = await shell.until(name, "one")
        assert "two" not in first
        again = await shell.call("BashOutput", bash_id=name)
        assert "one" not in again
        assert again.startswith(f"(nothing new)\n[{name} is running, for ")
        (root / "go").touch()
        last = await shell.until(name, "has ended")
        assert last.count("two") == 1
        assert "one" not in last
        assert f"[{name} has ended: exit code 4 · " in last
        assert "sandbox " in last

    in_shell(root, scene)


def test_starting_does_not_wait_and_the_agent_goes_on(root: Path):
    async def scene(shell: Shell) -> None:
        began = time.monotonic()
        first, second = await shell.start("sleep 30"), await shell.start("sleep 30")
        assert (first, second) == ("bash_1", "bash_2")
        assert "ok" in await shell.call("Bash", command="echo ok")
        assert time.monotonic() - began < 10

    in_shell(root, scene)


def test_a_job_is_ended_with_all_it_started(root: Path):
    async def scene(shell: Shell) -> None:
        name = await shell.start("echo begun; (sleep 1; echo late > late) & sleep 60")
        await shell.until(name, "begun")
        assert await shell.call("KillShell", bash_id=name) == f"{name} was ended"
        assert "has ended: exit code 137" in await shell.call("BashOutput", bash_id=name)
        assert "had ended before" in await shell.call("KillShell", bash_id=name)
        await asyncio.sleep(1.2)
        assert not (root / "late").exists()

    in_shell(root, scene)


def test_long_output_is_told_head_and_tail_and_kept(root: Path):
    async def scene(shell: Shell) -> None:
        name = await shell.start("seq 1 30000; while ! [ -e go ]; do sleep 0.02; done; seq 1 30000")
        await asyncio.sleep(0.3)
        told = await shell.call("BashOutput", bash_id=name)
        assert told.startswith("1\n2\n")
        assert "\n30000\n" in told
        assert len(told) < 31_000
        file = told.partition("all of it is in ")[2].split()[0]
        assert "29999" in await asyncio.to_thread(Path(file).read_text)
        (root / "go").touch()
        assert "30000" in await shell.until(name, "has ended")

    in_shell(root, scene)


def test_no_process_sees_the_jobs_of_another(root: Path):
    async def scene(shell: Shell) -> None:
        name = await shell.start("sleep 30")
        token = caller.set("another")
        for tool in ("BashOutput", "KillShell"):
            with pytest.raises(ToolError) as caught:
                await shell.call(tool, bash_id=name)
            assert caught.value.reason == "not_found"
        caller.reset(token)
        assert "is running" in await shell.call("BashOutput", bash_id=name)

    in_shell(root, scene)


def test_there_are_not_too_many(root: Path):
    async def scene(shell: Shell) -> None:
        for _ in range(JOBS_MAX):
            await shell.start("sleep 30")
        with pytest.raises(ToolError, match="jobs are running already"):
            await shell.start("sleep 30")
        await shell.call("KillShell", bash_id="bash_1")
        await shell.start("sleep 30")

    in_shell(root, scene)


def test_a_job_belongs_to_a_process(root: Path):
    """Outside of a process it would never be ended: it is not started."""
    run = {tool.name: tool for tool in builtin_tools(str(root))}["Bash"].run
    assert run is not None
    with pytest.raises(ToolError, match="belongs to an agent's process"):
        asyncio.run(run(command="sleep 30", run_in_background=True))


# ---------------------------------------------------------------- with a kernel
def agent_of(root: Path, *replies: Any, **options: Any) -> Agent:
    return Agent("worker", model=says(*replies), tools=builtin_tools(str(root), **options), permissions=ALLOWED)


def alive(file: Path) -> bool:
    """Whether the process still beats that writes the time into a file."""
    before = file.read_text() if file.exists() else ""
    time.sleep(0.3)
    return (file.read_text() if file.exists() else "") != before


BEAT = "echo started; while true; do date +%s%N > beat; sleep 0.05; done"


async def started(kernel: Kernel, root: Path, **options: Any) -> Any:
    begin = calls("Bash", command=BEAT, run_in_background=True)
    process = await kernel.spawn(agent_of(root, begin, "{result}", **options))
    assert "started in the background as bash_1" in str(await process.send("go"))
    while not (root / "beat").exists():
        await asyncio.sleep(0.01)
    return process


def test_jobs_end_with_their_process(root: Path):
    async def main() -> None:
        async with Kernel() as kernel:
            process = await started(kernel, root)
            assert await asyncio.to_thread(alive, root / "beat")
            await process.stop()
            await asyncio.sleep(0.3)
            assert not await asyncio.to_thread(alive, root / "beat")

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_command_ends_with_the_process_that_waits_for_it(root: Path):
    """A process that is stopped in the middle of a call, not only its jobs."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent_of(root, calls("Bash", command=BEAT), "{result}"))
            process.send_async("go")
            while not (root / "beat").exists():
                await asyncio.sleep(0.01)
            await process.stop()
            await asyncio.sleep(0.3)
            assert not await asyncio.to_thread(alive, root / "beat")

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("store", ["", "run.db"])
def test_jobs_end_with_their_kernel(root: Path, tmp_path: Path, store: str):
    """Also where processes are kept in a store and go on in the next life: their jobs do not."""

    async def main() -> None:
        async with Kernel(str(tmp_path / store)) if store else Kernel() as kernel:
            await started(kernel, root)
        assert not alive(root / "beat")

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("tier", WORKING)
def test_jobs_end_when_the_program_is_killed(root: Path, tier: str):
    """SIGKILL: only the operating system is left to end them."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom lyra import Kernel\n"
        "from lyra.sandbox import Sandbox\nfrom tests.tools.builtin.test_jobs import started\n"
        "async def main():\n"
        "    async with Kernel() as kernel:\n"
        "        await started(kernel, Path(sys.argv[1]), sandbox=Sandbox(tiers=(sys.argv[2],)))\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    top = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", script, str(root), tier]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=top, env={**os.environ, "PYTHONPATH": top, "TMPDIR": str(root.parent)}
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        assert alive(root / "beat")
        program.kill()
    ends = time.monotonic() + 10  # on a busy machine
    while alive(root / "beat"):
        assert time.monotonic() < ends


def test_an_agent_reads_what_its_command_spilled(root: Path):
    """With rules that allow no more than Bash, and without a person: its own output needs no further answer."""
    from lyra.models.sim import SimProvider
    from lyra.tools.permissions import Layer, permissions_of

    def answer(request: Any) -> Any:
        results = [result for message in request.messages for result in message.tool_results]
        if not results:
            return calls("Bash", command="seq 1 20000")
        if len(results) == 1:
            file = str(results[0].output).partition("all of it is in ")[2].split()[0]
            return calls("Read", file_path=file, offset=12_344, limit=1)
        return {"text": str(results[-1].output)}

    rules = permissions_of([Layer("user", ALLOWED)], workspace=str(root), attended=False)
    agent = Agent("worker", model=SimProvider(answer), tools=builtin_tools(str(root)), permissions=rules)
    grant = ["model.use", "tool.use", f"fs.read:{root}/**", f"fs.write:{root}/**", "process.exec"]

    async def main() -> str:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent, grant=grant)
            return str(await process.send("go"))

    assert asyncio.run(asyncio.wait_for(main(), 20)).split()[:2] == ["12345", "12345"]


class Log:
    """A JobLog that writes down what it is told, and knows one job from before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[tuple[Any, ...]] = []
        self.stops: list[Callable[[], None]] = []

    def last(self, pid: str) -> int:
        return 4

    def copy_for(self, pid: str, number: int) -> str:
        return str(self.folder / f"{number}.txt")

    def on_started(self, pid: str, number: int, command: str, stop: Callable[[], None]) -> None:
        self.told.append((pid, number, command))
        self.stops.append(stop)

    def on_ended(self, pid: str, number: int, status: str, how: str) -> None:
        self.told.append((number, status, how.partition(" ·")[0]))

    def earlier(self, pid: str, number: int) -> str | None:
        return f"the {number}th of {pid}" if number == 2 else None


def test_a_log_is_told_of_jobs(root: Path, tmp_path: Path):
    """When one starts and how it ended; numbers go on after those it knows, whose end BashOutput and KillShell tell."""
    log = Log(tmp_path)

    async def main() -> list[str]:
        caller.set("p1")
        job_log.set(log)
        shell = Shell(root)
        names = [await shell.start("echo fine"), await shell.start("exit 3"), await shell.start("sleep 60")]
        names.append(await shell.start("sleep 61"))
        for name, word in ((names[0], "has ended"), (names[1], "has ended")):
            await shell.until(name, word)
        await shell.call("KillShell", bash_id=names[2])
        log.stops[3]()
        await shell.until(names[3], "has ended")
        told = [await shell.call(tool, bash_id="bash_2") for tool in ("BashOutput", "KillShell")]
        for unknown in ("bash_3", "bash_x", "2"):
            with pytest.raises(ToolError, match="there is no job"):
                await shell.call("BashOutput", bash_id=unknown)
        return [*names, *told]

    run = asyncio.run(asyncio.wait_for(main(), 20))
    assert run == ["bash_5", "bash_6", "bash_7", "bash_8", "the 2th of p1", "the 2th of p1"]
    assert [told for told in log.told if told[0] == "p1"] == [
        ("p1", 5, "echo fine"),
        ("p1", 6, "exit 3"),
        ("p1", 7, "sleep 60"),
        ("p1", 8, "sleep 61"),
    ]
    ends = {told[0]: told[1:] for told in log.told if told[0] != "p1"}
    assert ends == {
        5: ("done", "exit code 0"),
        6: ("failed", "exit code 3"),
        7: ("stopped", "exit code 137"),
        8: ("stopped", "exit code 137"),
    }
    assert (tmp_path / "5.txt").read_text() == "fine\n"
