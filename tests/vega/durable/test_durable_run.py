"""A program on a kernel with a journal: stopped in the middle, it goes on where it was, and does nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra import Kernel, vega
from lyra.kernel.process.process import Exit
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.sim import SimProvider
from lyra.vega.runtime.driver import PROGRAMS, agent_front, vega_process
from lyra.vega.runtime.world import RunOptions, World

SOURCE = """
agent A { model "sim/script" }
agent M { model "sim/script" memory conversation }
fn worker(main, xs) { while true { receive { [n, f] => { main <- [n + xs[0], f(2)]; } } } }
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
let before = math::random();
process::register("main");
print(process::whereis("main") == process::self());
receive { "go on" => {} }
process::sleep(10ms);
p <- [2, |x| x + k];
receive { r => { print(r); } }
print(a <- "again");
print(m <- "more");
"""


class Life:
    """One life of the kernel: what it printed and asked."""

    def __init__(self, path: Any) -> None:
        self.lines: list[str] = []
        self.asked: list[str] = []
        self.kernel = Kernel(path, programs=[vega_process, agent_front])
        client = LLMClient()
        client.register("sim", SimProvider(script=self._answer))
        self.kernel.parts["models"] = client
        options = RunOptions(write=self.lines.append, warn=self.lines.append)
        self.world = World(self.kernel, vega.compile(SOURCE), options, "run", programs=PROGRAMS)

    def _answer(self, request: Request) -> str:
        self.asked.append(" ".join(message.text for message in request.messages))
        return request.messages[-1].text


def test_a_run_goes_on_after_its_kernel_was_stopped(tmp_path):
    async def first() -> Life:
        life = Life(tmp_path / "run.db")
        await life.kernel.start()
        life.kernel.spawn(vega_process, "run", None, pid="main", grant=life.world.rights.grant)
        async with asyncio.timeout(30):
            while "true" not in life.lines:
                assert life.kernel.process("main").alive, life.lines
                await asyncio.sleep(0.01)
        await life.kernel.close(drain_s=0.0)
        return life

    async def second() -> tuple[Life, Exit]:
        life = Life(tmp_path / "run.db")
        await life.kernel.start()
        life.kernel.send("main", "go on")
        ended = await asyncio.wait_for(life.kernel.process("main").wait(), 30)
        await life.kernel.close()
        return life, ended

    before = asyncio.run(first())
    assert before.lines == ["one", "two", "[6, 20]", "xy", "three ", "four", "true"]
    assert sorted(before.asked) == ["one", "three four", "two", "x", "y"]
    after, ended = asyncio.run(second())
    assert ended.ok
    assert after.lines == ["[7, 12]", "again", "more"]
    assert after.asked == ["again", "two two more"]
