"""Other systems' steps: DBOS and LangGraph on SQLite, LangGraph in memory, each in a process of its own.

They run in whatever interpreter has them: this one, or the one that LYRA_BENCH_PYTHON names. A step is the difference
between a run with ten steps and one with none (a graph of eleven nodes and one of one), divided by ten: what they do
once a run is not counted against them. Each keeps its own SQLite settings, so compare CPU time, not wall time.
In memory it is a whole run of a graph of ten nodes, divided by ten.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from benchmarks.measure import Size

STEPS = 10
MISSING = "not installed: pip install 'lyra-agents[bench]'"


class Peer(NamedTuple):
    """µs a step; None and a problem when it could not be measured."""

    name: str
    cpu_us: float | None
    wall_us: float | None
    problem: str


def measured(size: Size, folder: Path, keys: tuple[str, ...] = ("dbos", "langgraph", "langgraph_async")) -> list[Peer]:
    return [_measure(key, TITLES[key], size, folder) for key in keys]


def _measure(key: str, title: str, size: Size, folder: Path) -> Peer:
    interpreters = [os.environ.get("LYRA_BENCH_PYTHON", ""), sys.executable]
    root = Path(__file__).parent.parent
    for interpreter in filter(None, interpreters):
        command = [interpreter, "-m", "benchmarks.peers", key, str(folder), str(size.of(20, 1)), str(size.of(5, 1))]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            figures = json.loads(done.stdout.splitlines()[-1])
            return Peer(f"{title} {figures['version']}", figures["cpu_us"], figures["wall_us"], "")
        if "ModuleNotFoundError" not in done.stderr:
            raise RuntimeError(f"{title} failed:\n{done.stderr}")
    return Peer(title, None, None, MISSING)


# ---------------------------------------------------------------- in the other interpreter


def _best(run: Callable[[int], object], runs: int, repeats: int) -> tuple[float, float]:
    """µs of CPU and of wall a step: runs of ten steps and of none in turn, the best of each."""
    best = {STEPS: (float("inf"), float("inf")), 0: (float("inf"), float("inf"))}
    for _ in range(repeats):
        for steps in best:
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(runs):
                run(steps)
            cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
            best[steps] = (min(best[steps][0], cpu_s), min(best[steps][1], wall_s))
    scale = 1e6 / runs / STEPS
    return (best[STEPS][0] - best[0][0]) * scale, (best[STEPS][1] - best[0][1]) * scale


def dbos(folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    from dbos import DBOS

    @DBOS.step()  # type: ignore[untyped-decorator,unused-ignore]
    def act() -> int:
        return 1

    @DBOS.workflow()  # type: ignore[untyped-decorator,unused-ignore]
    def workflow(steps: int) -> None:
        for _ in range(steps):
            act()

    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{folder}/dbos.sqlite",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    workflow(1)
    best = _best(workflow, runs, repeats)
    DBOS.destroy()
    return best


def _graph(steps: int, saver: Any, *, asynchronous: bool) -> Any:
    from langgraph.graph import END, START, StateGraph

    def act(state: dict[str, int]) -> dict[str, int]:
        return {"value": 1}

    async def act_async(state: dict[str, int]) -> dict[str, int]:
        return {"value": 1}

    builder: Any = StateGraph(_State)
    names = [f"n{index}" for index in range(max(steps, 1))]
    for name in names:
        builder.add_node(name, act_async if asynchronous else act)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


class _State(TypedDict):
    """A state with one value that each node replaces."""

    value: int


def _thread(count: list[int]) -> dict[str, dict[str, str]]:
    count[0] += 1
    return {"configurable": {"thread_id": str(count[0])}}


def langgraph(folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(f"{folder}/langgraph.sqlite") as saver:
        # A graph needs a node: eleven nodes against one, so ten steps are the difference.
        graphs = {steps: _graph(steps + 1, saver, asynchronous=False) for steps in (0, STEPS)}
        count = [0]

        def run(steps: int) -> None:
            graphs[steps].invoke({"value": 0}, _thread(count), durability="sync")

        run(STEPS)
        return _best(run, runs, repeats)


def langgraph_async(folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def everything() -> tuple[float, float]:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph-async.sqlite") as saver:
            graphs = {steps: _graph(steps + 1, saver, asynchronous=True) for steps in (0, STEPS)}
            count = [0]
            best = {STEPS: (float("inf"), float("inf")), 0: (float("inf"), float("inf"))}
            await graphs[STEPS].ainvoke({"value": 0}, _thread(count), durability="sync")
            for _ in range(repeats):
                for steps in best:
                    wall, cpu = time.perf_counter(), time.process_time()
                    for _ in range(runs):
                        await graphs[steps].ainvoke({"value": 0}, _thread(count), durability="sync")
                    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
                    best[steps] = (min(best[steps][0], cpu_s), min(best[steps][1], wall_s))
            scale = 1e6 / runs / STEPS
            return (best[STEPS][0] - best[0][0]) * scale, (best[STEPS][1] - best[0][1]) * scale

    return asyncio.run(everything())


async def _whole(graph: Any, runs: int, count: list[int], *, stream: bool) -> tuple[float, float]:
    """Seconds of CPU and of wall of so many runs."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(runs):
        if stream:
            async for _update in graph.astream({"value": 0}, _thread(count), stream_mode="updates"):
                pass
        else:
            await graph.ainvoke({"value": 0}, _thread(count))
    return time.process_time() - cpu, time.perf_counter() - wall


def _line(saver: Any, runs: int, repeats: int, *, stream: bool = False) -> tuple[float, float]:
    """A graph of ten nodes in a line; µs of the best whole run, divided by ten."""

    async def everything() -> tuple[float, float]:
        graph, count = _graph(STEPS, saver, asynchronous=True), [0]
        await _whole(graph, 1, count, stream=stream)
        measured = [await _whole(graph, runs, count, stream=stream) for _ in range(repeats)]
        scale = 1e6 / runs / STEPS
        return min(cpu for cpu, _ in measured) * scale, min(wall for _, wall in measured) * scale

    return asyncio.run(everything())


def langgraph_line(_folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    return _line(None, runs, repeats)


def langgraph_stream(_folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    return _line(None, runs, repeats, stream=True)


def langgraph_memory(_folder: Path, runs: int, repeats: int) -> tuple[float, float]:
    from langgraph.checkpoint.memory import InMemorySaver

    return _line(InMemorySaver(), runs, repeats)


TITLES = {
    "dbos": "DBOS, a step on SQLite",
    "langgraph": "LangGraph, a node, SqliteSaver, durability=sync",
    "langgraph_async": "LangGraph, a node, AsyncSqliteSaver, durability=sync",
    "langgraph_line": "LangGraph, a node, ainvoke, no checkpointer",
    "langgraph_stream": "LangGraph, a node, astream, no checkpointer",
    "langgraph_memory": "LangGraph, a node, ainvoke, InMemorySaver",
}
_RUN: dict[str, Callable[[Path, int, int], tuple[float, float]]] = {
    "dbos": dbos,
    "langgraph": langgraph,
    "langgraph_async": langgraph_async,
    "langgraph_line": langgraph_line,
    "langgraph_stream": langgraph_stream,
    "langgraph_memory": langgraph_memory,
}


def main() -> None:
    from importlib.metadata import version

    key, folder, runs, repeats = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    cpu_us, wall_us = _RUN[key](folder, runs, repeats)
    print(json.dumps({"version": version(key.partition("_")[0]), "cpu_us": cpu_us, "wall_us": wall_us}), flush=True)
    os._exit(0)  # their threads may outlive them


if __name__ == "__main__":
    main()
