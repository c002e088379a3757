"""Killing pipelines that wait for an answer: real processes, real SIGKILL, and each life in a process of its own.

A forked child opens a store, goes on with three pipelines (a line with a loop and a question, a fork with a join and a
question, two stages that buy until their budgets end) and with a supervisor whose child crashes by itself, and is
killed: at random moments (`run`), or at the first, a middle and the last visit of the points that only these parts pass
(`point_kills`). Most kernels answer no questions, so they are killed while pipelines wait; the last one answers. Every
call of an agent is a line in a file that only grows (`act PID#RUN AGENT`), every report that became durable another
(`seen PID#RUN`). Compared with an undisturbed run: same results, every run of a stage once, none after its report was
seen, each question asked once, and never more bought, over all lives, than the budget of a stage and the quota of its
pipeline allow.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core import codec, faultpoint
from lyra.core.clock import SystemClock
from lyra.core.effect import Effect
from lyra.core.ids import make_random
from lyra.errors import BudgetExceeded
from lyra.kernel import Child, Kernel
from lyra.kernel.journal import rows
from lyra.store.sqlite import SqliteStore
from verify.crash import crash
from verify.crash.workload import COST_MICRO_USD, World
from verify.simulation.scenes import POINTS_OF_PARTS

__all__ = ["POINTS", "Flows", "live", "point_kills", "run", "verify"]

POINTS: Final = POINTS_OF_PARTS
PIPELINES: Final[dict[str, dict[str, Any]]] = {
    "review": {
        "name": "review",
        "agents": [
            {"name": "draft", "default_next": "check"},
            {
                "name": "check",
                "routing_rules": [{"condition": "again", "value": True, "target": "draft"}],
                "default_next": "confirmation",
            },
            {"name": "publish"},
        ],
        "edge_limits": [{"from": "check", "to": "draft", "max_count": 3}],
        "confirmation_resume_stage": "publish",
    },
    "survey": {
        "name": "survey",
        "agents": [
            {"name": "plan", "default_next": "spread"},
            {"name": "spread", "node_kind": "fork", "branches": ["left", "right"], "default_next": "sum"},
            {"name": "left", "max_retries": 1},
            {"name": "right"},
            {"name": "sum", "default_next": "clarification"},
            {"name": "tell"},
        ],
        "clarification_resume_stage": "tell",
    },
    "shop": {"name": "shop", "agents": [{"name": "money", "default_next": "rest"}, {"name": "rest"}]},
}
QUOTA: Final = 10  # purchases of the shop, over both stages
LIMITS: Final[dict[str, dict[str, int] | None]] = {"money": {"usd": 6 * COST_MICRO_USD}, "rest": None}
PURCHASES_MAX: Final = {"money": 6, "rest": QUOTA}
_IDEMPOTENT: Final = ("check", "left", "buy")  # these may be called once more in each life
_KILLS_A_STORE: Final = 4
_DELAY_S: Final = 0.003
_ANSWER: Final = {"text": "go on", "approved": True}


class Flows(NamedTuple):
    kills: int
    lives: int
    acts: int
    failures: list[str]


# ---------------------------------------------------------------------- one life


def _output(pid: str, stage: str, run: int) -> dict[str, Any]:
    """What an agent gives: a function of its run, so that everybody can work it out again."""
    return {"said": f"{pid} {stage} {run}", "again": stage == "check" and run < 4}


def _agent(kernel: Kernel, world: World, pid: str, stage: str) -> Callable[[Any], Any]:
    async def call(_envelope: Any) -> dict[str, Any]:
        run = _run(kernel, pid, stage)
        world.note("act", f"{pid}#{run}", stage)
        await asyncio.sleep(_DELAY_S)
        return _output(pid, stage, run)

    return call


class Buyer:
    """An agent whose stages are processes that buy until the budget ends. What a kill cut off is bought, and paid for,
    again."""

    def __init__(self, world: World, stage: str) -> None:
        self.budget = LIMITS[stage]
        self._world, self._stage = world, stage

    def __lyra_stage__(self, name: str, **_: Any) -> Callable[..., Any]:
        async def buy(item: int) -> int:
            self._world.note("act", f"{self._stage}.{item}", "buy")
            await asyncio.sleep(_DELAY_S)
            return item

        purchase = Effect(buy, name="buy", cost={"usd": COST_MICRO_USD, "tool_calls": 1}, idempotent=True)

        async def buys(ctx: Any, *_: Any) -> dict[str, Any]:
            bought = 0
            try:
                while True:
                    await ctx.do(purchase, bought)
                    bought += 1
            except BudgetExceeded:
                return {"output": {"said": "nothing left"}, "metrics": {"tool_calls": bought}}

        buys.__qualname__ = f"{name}:buys"
        return buys


def _run(kernel: Kernel, pid: str, stage: str) -> int:
    token = kernel.orchestrator.state.sessions[pid].running(agent=stage)
    assert token is not None, stage
    return token.run


async def ticker(ctx: Any) -> None:
    """A supervised child with bad days."""
    for _ in range(3):
        await ctx.sleep(0.01)
    raise RuntimeError("a bad day")


def _decide(kernel: Kernel, world: World, interrupt: Any, *, answers: bool) -> None:
    """A person: questions of pipelines are answered or left; whether an agent was called is looked up."""
    if interrupt.kind != "in_doubt":
        if answers:
            ack = kernel.resolve_interrupt(interrupt.id, _ANSWER)
            kernel.tasks.start(_acknowledged(world, ack, interrupt.id), name="answer")
        return
    stage = interrupt.message.partition("(pipeline:")[2].partition(")")[0]
    run = _run(kernel, interrupt.pid, stage)
    if world.performed(f"{interrupt.pid}#{run}"):
        data = {"output": _output(interrupt.pid, stage, run), "metrics": {}}
        kernel.resolve_interrupt(interrupt.id, {"decision": "skip", "data": data})
    else:
        kernel.resolve_interrupt(interrupt.id, {"decision": "retry"})


async def _acknowledged(world: World, ack: Any, interrupt_id: str) -> None:
    await ack
    world.note("ack", "answer", interrupt_id)


async def live(store: Path, world_file: Path, *, answers: bool) -> dict[str, Any]:
    """Open the store, go on with everything in it, and give what the pipelines came to."""
    world = World(world_file)
    began = time.process_time()
    kernel = Kernel(str(store), programs=[ticker], snapshot_every_events=40, lease_s=2.0)
    async with kernel:
        world.note("open", f"{time.process_time() - began:.4f}")

        def hear(event: Any) -> None:
            if event.kind == "pipeline.reported":
                world.note("seen", f"{event.pid}#{event.data['run_id']}", event.data["agent_name"])
            elif event.kind == "interrupt.created":
                asked(kernel.interrupts.get(event.data["id"]))

        def asked(interrupt: Any) -> None:
            kernel.loop.call_later(_DELAY_S, lambda: _decide(kernel, world, interrupt, answers=answers))

        kernel.on_event(hear)
        for interrupt in kernel.interrupts.pending():
            asked(interrupt)
        if "shop" not in kernel.orchestrator.state.sessions:
            kernel.initialize_orchestration("shop", PIPELINES["shop"], {"raw_input": "shop"})
        kernel.adjust_quota("shop", {"max_tool_calls": QUOTA})
        for stage in LIMITS:
            kernel.register_agent(stage, Buyer(world, stage))
        for pid, config in PIPELINES.items():
            for stage in config["agents"] if pid != "shop" else ():
                kernel.register_agent(
                    stage["name"], _agent(kernel, world, pid, stage["name"]), idempotent=stage["name"] in _IDEMPOTENT
                )
        tree = kernel.supervise([Child("ticker", ticker)], max_restarts=-1, pid="tree")
        await asyncio.gather(*[_follow(kernel, world, pid) for pid in PIPELINES])
        if tree.alive:  # an earlier life may have come this far and stopped it
            if len(await tree.which_children()) != 1:
                raise AssertionError("the tree is not whole")
            await tree.stop()
        return {pid: _came_to(kernel, pid) for pid in PIPELINES}


async def _follow(kernel: Kernel, world: World, pid: str) -> None:
    async for event in kernel.execute_pipeline(PIPELINES[pid], {"raw_input": pid}, pid=pid):
        world.note("told", pid, event.type)


def _came_to(kernel: Kernel, pid: str) -> list[Any]:
    """Everything about a pipeline's end that does not depend on when it came."""
    session = kernel.orchestrator.state.sessions[pid]
    outputs = {name: session.envelope.outputs[name] for name in sorted(session.envelope.outputs)}
    return [str(session.terminal_reason), outputs, session.runs, dict(sorted(session.edge_traversals.items()))]


def _fork(folder: Any, hook: Callable[[str], None] | None, *, answers: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if hook is not None:
            faultpoint.arm(hook)
        results = asyncio.run(live(folder.store, folder.world, answers=answers))
        folder.result.write_bytes(codec.encode(results))
        status = 0
    except BaseException:  # noqa: BLE001 - whatever ended it, the parent is told by the status
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


# ---------------------------------------------------------------------- kills


def calm() -> crash.Calm:
    """Run once undisturbed, with all questions answered."""
    with crash._folder() as folder:
        visits: Counter[str] = Counter()
        counted = folder.store.with_name("points")

        def count(name: str) -> None:
            visits[name] += 1
            if name in POINTS:
                counted.write_bytes(codec.encode(dict(visits)))

        began = SystemClock().monotonic()
        ended = crash._end_of(_fork(folder, count, answers=True), kill_after_s=None)
        if ended != "done":
            raise AssertionError(f"the undisturbed pipelines failed: {ended}")
        seconds = SystemClock().monotonic() - began
        return crash.Calm(codec.decode(folder.result.read_bytes()), seconds, codec.decode(counted.read_bytes()))


def run(kills: int, seed: int = 1) -> Flows:
    """Kill at random moments, mostly while questions are left open; then answer them."""
    peace = calm()
    rng = make_random(seed)
    failures: list[str] = []
    done = lives = acts = 0
    while done < kills:
        with crash._folder() as folder:
            for _ in range(min(_KILLS_A_STORE, kills - done)):
                child = _fork(folder, None, answers=rng.random() < 0.25)
                ended = crash._end_of(child, kill_after_s=rng.uniform(0.02, 1.5 * peace.seconds))
                lives += 1
                if ended == "done":
                    break
                done += 1
                if ended != "killed":
                    failures.append(f"kill {done} of seed {seed}: {ended}")
            problems, count = _last_life(folder, peace)
            failures += [f"kill {done} of seed {seed}: {problem}" for problem in problems]
            lives += 1
            acts += count
    return Flows(done, lives, acts, failures)


def point_kills(points: tuple[str, ...] = POINTS) -> Flows:
    """Kill at the first, a middle and the last visit of each point; the life after answers what is asked."""
    peace = calm()
    failures = [f"the pipelines never pass {name}" for name in points if not peace.visits.get(name)]
    places = [
        (name, visit)
        for name in points
        for visit in sorted({1, max(1, peace.visits.get(name, 1) // 2), peace.visits.get(name, 1)})
    ]
    acts = 0
    for name, visit in places:
        with crash._folder() as folder:
            ended = crash._end_of(_fork(folder, crash._die_at(name, visit), answers=True), kill_after_s=None)
            if ended not in ("killed", "done"):  # the last visit may have come a moment later than in peace
                failures.append(f"{name} visit {visit}: {ended}")
                continue
            problems, count = _last_life(folder, peace)
            failures += [f"{name} visit {visit}: {problem}" for problem in problems]
            acts += count
    return Flows(len(places), 2 * len(places), acts, failures)


def _last_life(folder: Any, peace: crash.Calm) -> tuple[list[str], int]:
    ended = crash._end_of(_fork(folder, None, answers=True), kill_after_s=None)
    if ended != "done":
        return [ended], 0
    results = codec.decode(folder.result.read_bytes())
    return verify(folder.store, folder.world, results, peace.results)


# ---------------------------------------------------------------------- the verdict


def verify(
    store_file: Path, world_file: Path, results: dict[str, Any], expected: dict[str, Any]
) -> tuple[list[str], int]:
    """Everything wrong with what finished pipelines left behind, and how many calls of agents there were."""
    store = SqliteStore(store_file)
    try:
        journal = list(store.read())
        problems = store.check()
    finally:
        store.close()
    lines = world_file.read_text().splitlines()
    problems += [*_repeated(lines), *_kept(journal, lines), *_asked(journal), *_over_budget(lines)]
    if results != expected:
        problems.append(f"the results differ: {results} instead of {expected}")
    slowest = max(float(line.split()[1]) for line in lines if line.startswith("open "))
    if slowest > crash.OPEN_S_MAX:
        problems.append(f"an opening took {slowest:.1f} s of CPU")
    return problems, sum(line.startswith("act ") and not line.endswith(" buy") for line in lines)


def _repeated(lines: list[str]) -> list[str]:
    """Runs that must be performed once were; none was performed after its report had been seen."""
    lives = sum(line.startswith("open ") for line in lines)
    acts: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    problems = []
    for line in lines:
        word, key, *rest = line.split()
        if word == "seen":
            seen.add(key)
        elif word == "act":
            acts[key, rest[0]] += 1
            if key in seen:
                problems.append(f"{key} ({rest[0]}) was performed after its report had been seen")
    for (key, stage), count in acts.items():
        if count > (lives if stage in _IDEMPOTENT else 1):
            problems.append(f"{key} ({stage}) was performed {count} times in {lives} lives")
    return problems


def _kept(journal: list[Any], lines: list[str]) -> list[str]:
    """Every answer that was acknowledged is there; every report that was seen is there, once."""
    answered = {
        rows.DECODERS[record.kind].decode(record.data).id for record in journal if record.kind == "interrupt.resolved"
    }
    reported = Counter(
        f"{record.pid}#{codec.decode(record.data)['run_id']}"
        for record in journal
        if record.kind == "pipeline.reported"
    )
    problems = [f"{key} is reported {count} times" for key, count in reported.items() if count > 1]
    for line in lines:
        word, *rest = line.split()
        if word == "ack" and rest[1] not in answered:
            problems.append(f"the answer to {rest[1]} was acknowledged and is lost")
        elif word == "seen" and not reported[rest[0]]:
            problems.append(f"the report of {rest[0]} was told and is lost")
    return problems


def _over_budget(lines: list[str]) -> list[str]:
    """No stage has bought more, over all lives, than its budget allows, nor both together than their quota."""
    bought = Counter(line.split()[1].partition(".")[0] for line in lines if line.endswith(" buy"))
    allowed = {**PURCHASES_MAX, "shop": QUOTA}
    bought["shop"] = sum(bought[stage] for stage in PURCHASES_MAX)
    return [
        f"{name} has bought {bought[name]} times, its budget allows {most}"
        for name, most in allowed.items()
        if bought[name] > most
    ]


def _asked(journal: list[Any]) -> list[str]:
    raised = [
        rows.DECODERS[record.kind].decode(record.data) for record in journal if record.kind == "interrupt.created"
    ]
    asked = Counter(row.kind for row in raised if row.kind != "in_doubt")
    return [f"{count} questions of kind {kind} were asked, not one" for kind, count in asked.items() if count != 1]
