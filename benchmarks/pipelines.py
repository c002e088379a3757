"""A stage of a pipeline, against a node of a LangGraph graph of the same shape: ten in a line, each gives one value.

Whole runs divided by ten, on both sides: beginning a session, ending it and forgetting it count; declaring the
pipeline and compiling the graph do not. The goal is held against a graph without a checkpointer, which keeps nothing:
our sessions can be asked about, stopped and interrupted between any two stages, as theirs can with a saver in memory.
On SQLite both can go on after a crash; there theirs is, as in `durable`, only what a node adds.
"""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import Figure, Goal, Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.kernel import Kernel
from lyra.kernel.pipelines.declaration import PipelineConfig

NAMES = [f"n{index}" for index in range(peers.STEPS)]
OUTPUT = {"value": 1}
FIVE_TIMES_LESS = ratio_at_most(0.2)


def line() -> PipelineConfig:
    stages: list[dict[str, Any]] = [{"name": name, "default_next": after} for name, after in pairwise(NAMES)]
    return PipelineConfig.of({"name": "line", "agents": [*stages, {"name": NAMES[-1]}]})


async def act(_envelope: Any) -> dict[str, int]:
    return OUTPUT


async def by_step_calls(target: str, runs: int) -> Timing:
    """A worker drives the pipeline: it asks what is next, and reports."""
    config = line()
    async with Kernel(target, snapshot_every_events=10**9) as kernel:
        with Stopwatch(runs * len(NAMES)) as watch:
            for _ in range(runs):
                kernel.initialize_orchestration("bench", config)
                told = kernel.get_next_instruction("bench")
                while told.kind == "run_agent":
                    report = {"agent_name": told.agent_name, "run_id": told.run_id, "output": await act(told.envelope)}
                    told = kernel.report_agent_result("bench", report)
                assert told.terminal_reason == "completed"
                assert kernel.orchestrator.cleanup_session("bench")
            await kernel.durable()
    return watch.timing


async def by_execution(target: str, runs: int) -> Timing:
    """The kernel drives it as a durable process, each run through the door, and tells what happens."""
    config = line()
    async with Kernel(target, snapshot_every_events=10**9) as kernel:
        for name in NAMES:
            kernel.register_agent(name, act)
        with Stopwatch(runs * len(NAMES)) as watch:
            for number in range(runs):
                pid, last = f"bench-{number}", None
                async for event in kernel.execute_pipeline(config, pid=pid):
                    last = event
                assert last is not None
                assert last.type == "pipeline_completed"
                assert kernel.orchestrator.cleanup_session(pid)
            await kernel.durable()
    return watch.timing


def run(size: Size) -> list[Row]:
    runs = size.of(200, 2)
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as name:
        folder = Path(name)
        numbers = iter(range(10**6))

        def fresh() -> str:
            return str(folder / f"{next(numbers)}.db")

        best = interleave(
            {
                "steps": lambda: asyncio.run(by_step_calls("memory", runs)),
                "executed": lambda: asyncio.run(by_execution("memory", runs)),
                "steps on SQLite": lambda: asyncio.run(by_step_calls(fresh(), runs)),
                "executed on SQLite": lambda: asyncio.run(by_execution(fresh(), runs)),
            },
            size.repeats,
        )
        keys = ("langgraph_line", "langgraph_stream", "langgraph_memory", "langgraph_async")
        invoked, streamed, remembered, kept = peers.measured(size, folder, keys)
    return [
        _row("next instruction, report; in memory", best["steps"], invoked, FIVE_TIMES_LESS),
        _row("next instruction, report; in memory", best["steps"], remembered),
        _row("execute_pipeline, in memory", best["executed"], streamed, FIVE_TIMES_LESS),
        _row("execute_pipeline, in memory", best["executed"], remembered),
        _row("next instruction, report; on SQLite", best["steps on SQLite"], kept),
        _row("execute_pipeline, on SQLite", best["executed on SQLite"], kept),
    ]


def _row(title: str, ours: Figure, peer: peers.Peer, *goals: Goal) -> Row:
    theirs = None if peer.cpu_us is None else Figure(peer.cpu_us, "µs", peer.wall_us)
    assert ours.wall is not None
    note = f"{1e6 / ours.wall:.0f} stages a second" + (f"; {peer.problem}" if peer.problem else "")
    return Row(title, ours, peer.name, theirs, goals, note)
