"""Agents in a rough world: seeded runs with tools, helpers, cuts, cancellations and kernels that die at any moment.

What must hold: no replay diverges, what was acknowledged is in the transcript in order, a tool that must not run twice
runs once for each call unless it was declared repeatable, and the agent answers at the end.
"""

from __future__ import annotations

import asyncio
import random
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import LyraError, ProcessError
from lyra.models.provider import Request
from lyra.models.sim import SimProvider
from tests.agents.support import clock_here, virtual
from tests.cases import cases
from tests.kernel.conftest import crash

CONTEXTS: list[Any] = [
    None,
    {"kind": "window", "tokens": 400},
    {"kind": "sliding", "turns": 3},
    {"kind": "compact", "tokens": 400},
]


class World:
    """One seed: its agent, and what happened out there."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = random.Random(seed)
        self.store = str(path / f"{seed}.db")
        self.ran: dict[str, int] = {}
        self.retried = 0
        self.answers: list[str] = []
        self.diverged: list[str] = []
        self.agent = self._agent(seed)

    def _agent(self, seed: int) -> Agent:
        @tool
        async def pay(n: str) -> str:
            """Must not happen twice."""
            self.ran[n] = self.ran.get(n, 0) + 1
            await asyncio.sleep(len(n) % 3)
            return f"paid {n} " + "x " * 40

        @tool(idempotent=True)
        async def look(n: str) -> str:
            """May happen twice."""
            await asyncio.sleep(len(n) % 2)
            if n.endswith("3"):
                raise ValueError(n)
            return f"saw {n} " + "y " * 40

        @tool
        async def wander(ctx: Any, n: str) -> str:
            """A part of the program."""
            await ctx.sleep(1)
            return f"{n} {ctx.random.randrange(100)} {await ctx.do(_double, 4)}"

        helper = Agent("helper", model=SimProvider(_helper))
        settings: dict[str, Any] = {
            "context": CONTEXTS[seed % 4],
            "memory": seed % 3 == 0,
            "max_parallel_tools": 1 + seed % 3,
        }
        if seed % 5 == 0:
            settings["supervision"] = {"strategy": "restart"}
        return Agent("agent", model=SimProvider(_model), tools=[pay, look, wander, helper], **settings)


async def _double(n: int) -> int:
    return 2 * n


def _helper(request: Request) -> Any:
    return {"text": f"helped with {request.messages[0].text.split()[0]}", "first_s": 0.5}


def _model(request: Request) -> Any:
    """The same answer to the same conversation in every life."""
    if request.system.startswith("You shorten"):
        return "a summary"
    last = request.messages[-1]
    content = last.text + "".join(str(result.output) for result in last.tool_results)
    draw = random.Random(blake2b(content.encode(), digest_size=8).digest())
    wait_s = draw.choice([0, 0, 1, 2])
    kind = draw.random()
    if kind < 0.1:
        return {"error": {"kind": draw.choice(["auth", "bad_request"])}, "first_s": wait_s}
    if kind < 0.55 and (last.role == "user" or draw.random() < 0.3):
        named = [draw.choice(["pay", "look", "wander", "helper"]) for _ in range(draw.choice([1, 1, 2, 4]))]
        calls = [
            {"name": name, "arguments": {"task" if name == "helper" else "n": f"{draw.randrange(10**6)}"}}
            for name in named
        ]
        return {"tool_calls": calls, "first_s": wait_s}
    return {"text": f"answer {draw.randrange(10**6)}", "first_s": wait_s}


async def life(world: World, number: int, *, last: bool) -> None:
    """One life of the kernel: messages, some given up, until it dies or is closed."""
    kernel = Kernel(world.store, clock=clock_here(), programs=[world.agent], seed=world.rng.randrange(10**6))
    await kernel.start()
    kernel.on_event(lambda event: _hear(world, kernel, event))
    for question in kernel.interrupts.pending():
        _resolve(world, kernel, question.id)
    process = kernel.spawn(world.agent, pid="agent")
    deadline = asyncio.get_running_loop().time() + (10**6 if last else world.rng.choice([0.5, 3, 10, 40]))
    for turn in range(4):
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            break
        pending = process.send_async(f"message {number}.{turn} {world.rng.randrange(10**6)}")
        patience_s = world.rng.choice([0.2, 1.5, 10**5, 10**5])
        try:
            async with asyncio.timeout(min(patience_s, left_s)):
                world.answers.append(await pending)
        except (TimeoutError, LyraError):
            pass
    if last:
        world.answers.append(await _final(process))
        answers = iter([message.text for message in process.messages if message.role == "assistant"])
        assert all(answer in answers for answer in world.answers)  # in this order, others in between
        await kernel.close()
    elif world.rng.random() < 0.6:
        crash(kernel)
    else:
        await kernel.close(drain_s=world.rng.choice([0.0, 5.0]))


async def _final(process: Any) -> str:
    """An answer, whatever it takes: some messages meet an error by the script."""
    failures: list[str] = []
    for attempt in range(20):
        try:
            return str(await process.send(f"the end {attempt}", timeout=10**3))
        except ProcessError:
            raise
        except LyraError as error:
            failures.append(repr(error))
    raise AssertionError(f"twenty messages without an answer: {failures[-3:]}")


def _hear(world: World, kernel: Kernel, event: Any) -> None:
    if event.kind == "process.diverged":
        world.diverged.append(str(event.data))
    elif event.kind == "interrupt.created":
        _resolve(world, kernel, event.data["id"])


def _resolve(world: World, kernel: Kernel, interrupt_id: str) -> None:
    decision = world.rng.choice(["retry", "skip", "fail"])
    world.retried += decision == "retry"
    kernel.resolve_interrupt(interrupt_id, {"decision": decision, "data": "unknown", "text": decision})


async def _world(world: World) -> None:
    lives = world.rng.randrange(2, 6)
    for number in range(lives):
        await life(world, number, last=number == lives - 1)


@pytest.mark.parametrize("seed", range(cases(60)))
def test_a_rough_world(seed, tmp_path):
    """Seeded; `pytest -k 'rough_world and 17'` runs one again."""
    world = World(seed, tmp_path)
    virtual(_world(world))
    assert world.diverged == []
    assert world.answers
    again = sum(count - 1 for count in world.ran.values())
    assert again <= world.retried
