"""Pipelines of every shape, run as durable processes or driven step by step, with questions in the middle.

`draw_pipeline` draws a declaration: a line, a loop with limits, gates, a fork with a join, or a parallel graph; with
error routes, retries, time-outs, bounds and questions. Every agent is called through the world's provider, so it may be
slow, hang, fail or crash, and the provider counts its calls by run. Half of the sessions are run by `execute_pipeline`,
half by a worker outside who asks for instructions, may ask twice, may report twice, and waits until what it reported is
durable before it goes on. Some workers have names and leases, are silent for too long, or die with a stage in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.ids import ProcessRandom
from lyra.errors import InvalidTransition, LyraError
from lyra.kernel import AgentResult
from verify.simulation.scenes import Scene

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from verify.simulation.world import Life, World

__all__ = ["SHAPES", "Pipelines", "draw_pipeline"]

_VERDICTS: Final = ("good", "good", "again", "odd")
_QUESTIONS: Final = ("clarification", "confirmation", "agent_review")
_TTL_S: Final = 200.0  # of every kind, so that some questions expire within a life
_REST_S: Final = 900.0


# ---------------------------------------------------------------------- drawing


def _agent(rng: ProcessRandom, name: str, **keys: Any) -> dict[str, Any]:
    """A stage that runs, with what every stage may have."""
    stage: dict[str, Any] = {"name": name, "timeout_seconds": rng.choice([5.0, 30.0]), **keys}
    if rng.random() < 0.3:
        stage["max_retries"] = rng.randint(1, 2)
        stage["retry_policy"] = {"initial_ms": 200.0, "max_ms": 2_000.0}
    if rng.random() < 0.3:
        stage["max_visits"] = rng.randint(1, 3)
    return stage


def _line(rng: ProcessRandom) -> dict[str, Any]:
    """One after the other; some failures have somewhere to go, some stages ask."""
    names = [f"s{number}" for number in range(rng.randint(2, 5))]
    stages = []
    for number, name in enumerate(names):
        follows = names[number + 1] if number + 1 < len(names) else "end"
        stage = _agent(rng, name, default_next=rng.choice([follows, follows, follows, "confirmation", "clarification"]))
        if rng.random() < 0.5:
            stage["error_next"] = rng.choice([follows, "end"])
        stages.append(stage)
    return {"agents": stages, "confirmation_resume_stage": rng.choice(["", names[-1]])}


def _loop(rng: ProcessRandom) -> dict[str, Any]:
    """Back to the beginning until the verdict is good, or a limit says stop."""
    rules = [{"condition": "verdict", "value": "again", "target": "draft"}]
    if rng.random() < 0.4:
        rules.append({"condition": "verdict", "value": "odd", "target": "clarification"})
    return {
        "agents": [
            _agent(rng, "draft", default_next="check"),
            _agent(rng, "check", routing_rules=rules, default_next="end", error_next="draft"),
        ],
        "edge_limits": [{"from": "check", "to": "draft", "max_count": rng.randint(1, 3)}] if rng.random() < 0.6 else [],
        "max_iterations": rng.randint(1, 4),
        "clarification_resume_stage": rng.choice(["", "draft"]),
    }


def _gates(rng: ProcessRandom) -> dict[str, Any]:
    rules = [
        {"condition": "verdict", "value": "again", "target": "first"},
        {"condition": "verdict", "value": "odd", "target": "other"},
    ]
    return {
        "agents": [
            _agent(rng, "first", default_next="gate"),
            {"name": "gate", "node_kind": "gate", "routing_rules": rules, "default_next": "last"},
            _agent(rng, "other", default_next="last"),
            _agent(rng, "last"),
        ],
    }


def _fork(rng: ProcessRandom) -> dict[str, Any]:
    branches = [f"b{number}" for number in range(rng.randint(2, 3))]
    fork: dict[str, Any] = {
        "name": "fork",
        "node_kind": "fork",
        "branches": branches,
        "join_strategy": rng.choice(["all", "any"]),
        "default_next": "join",
    }
    if rng.random() < 0.5:
        fork["error_next"] = "join"
    middle = [_agent(rng, name, default_next=rng.choice(["join", "end", f"{name}x"])) for name in branches]
    further = [_agent(rng, f"{stage['name']}x", default_next="join") for stage in middle]
    return {"agents": [_agent(rng, "first", default_next="fork"), fork, *middle, *further, _agent(rng, "join")]}


def _graph(rng: ProcessRandom) -> dict[str, Any]:
    """Parallel mode: each stage needs some of those before it."""
    names = [f"n{number}" for number in range(rng.randint(3, 6))]
    stages = []
    for number, name in enumerate(names):
        before = names[:number]
        stage = _agent(rng, name)
        stage.pop("max_visits", None)
        if before:
            stage["requires"] = rng.sample(before, rng.randint(0, min(2, len(before))))
            stage["after"] = rng.sample(before, 1) if rng.random() < 0.3 else []
            stage["join_strategy"] = rng.choice(["all", "all", "any"])
        stages.append(stage)
    return {"agents": stages, "default_run_mode": "parallel"}


SHAPES: Final[dict[str, Callable[[ProcessRandom], dict[str, Any]]]] = {
    "line": _line,
    "loop": _loop,
    "gates": _gates,
    "fork": _fork,
    "graph": _graph,
}


def draw_pipeline(rng: ProcessRandom, pid: str) -> dict[str, Any]:
    """A declaration; its agents have names of their own, so that a call says whose it is."""
    shape = rng.choice(list(SHAPES))
    config: dict[str, Any] = {"name": f"{shape}-{pid}", **SHAPES[shape](rng)}
    for stage in config["agents"]:
        if stage.get("node_kind", "agent") == "agent":
            stage["agent"] = f"{pid}.{stage['name']}"
    config["max_agent_hops"] = rng.choice([3, 6, 21])
    if rng.random() < 0.3:
        config["state_schema"] = {"verdict": rng.choice(["replace", "append"])}
    return config


# ---------------------------------------------------------------------- the scene


class Pipelines(Scene):
    def __init__(self, world: World, rng: ProcessRandom) -> None:
        super().__init__(world, rng)
        self.run = {f"f{number}": draw_pipeline(rng, f"f{number}") for number in range(rng.randint(1, 3))}
        self.driven = {f"d{number}": draw_pipeline(rng, f"d{number}") for number in range(rng.randint(0, 2))}
        self.repeatable = {
            name: rng.random() < 0.3 for config in (self.run | self.driven).values() for name in _agents(config)
        }
        self.calls: dict[str, int] = {}  # by agent, over all lives
        self.late = False
        self.trouble = {self._watch: 2, self._drive: 2, self._interfere: 1}

    # ------------------------------------------------------------------ agents

    def furnish(self, life: Life) -> None:
        for kind in ("clarification", "confirmation", "agent_review", "checkpoint"):
            life.kernel.interrupts.set_config(kind, {"default_ttl": _TTL_S})
        self.late = life.rng.random() < 0.2
        if not self.late:
            self._register(life)

    def _register(self, life: Life) -> None:
        for pid, config in self.run.items():
            for name in _agents(config):
                life.kernel.register_agent(name, self._agent(life, pid, name), idempotent=self.repeatable[name])

    def _agent(self, life: Life, pid: str, name: str) -> Callable[[Any], Any]:
        config = next(stage for stage in self.run[pid]["agents"] if stage.get("agent") == name)
        idempotent = self.repeatable[name] or bool(config.get("max_retries"))

        async def call(envelope: Any) -> Any:
            session = life.kernel.orchestrator.state.sessions[pid]
            token = session.running(agent=name)
            run = token.run if token is not None else 0
            self.calls[name] = self.calls.get(name, 0) + 1
            request = {
                "kind": "stage",
                "pid": pid,
                "stage": envelope.current_stage,
                "agent": name,
                "run": run,
                "calls": self.calls[name],
                "idempotent": idempotent,
                "micro_usd": 0,
            }
            answer = await self.world.provider.perform(request, f"{pid}#{run}")
            return self._result(life, run, answer)

        return call

    def _result(self, life: Life, run: int, answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer  # with a bill; it has no output of its own
        output = {"run": run, "verdict": life.rng.choice(_VERDICTS)}
        output |= {key: answer[key] for key in ("object", "text") if key in answer}
        if life.rng.random() < 0.1:
            kind = life.rng.choice(_QUESTIONS)
            return AgentResult(output=output, interrupt={"kind": kind, "question": f"run {run}?"})
        return AgentResult(output=output, break_loop=life.rng.random() < 0.02, metrics={"llm_calls": 1})

    # ------------------------------------------------------------------ running them

    async def begin(self, world: World, life: Life) -> None:
        kernel = life.kernel
        if self.late:  # stages of an earlier life wait for their agents
            await asyncio.sleep(life.rng.choice([0.0, 1.0, 20.0]))
            self._register(life)
        for pid, config in self.run.items():
            if pid not in kernel.orchestrator.state.sessions and pid not in kernel.processes:
                kernel.initialize_orchestration(pid, config)
        for pid, config in self.driven.items():
            kernel.submit(pid, user_id="driver")
            if pid not in kernel.orchestrator.state.sessions:
                kernel.initialize_orchestration(pid, config)
        await kernel.durable()
        for pid in (*self.run, *self.driven):
            if pid not in world.ledger.parts.pipelines.sessions:
                world.violate("acknowledged", f"the pipeline {pid} was acknowledged and is not in the journal")

    async def finish(self, _world: World, life: Life) -> None:
        """Questions of sessions that a worker drives are answered; the rest ends or is ended."""
        await asyncio.sleep(_REST_S * life.rng.random())
        kernel = life.kernel
        for pid in (*self.run, *self.driven):
            session = kernel.orchestrator.state.sessions.get(pid)
            if session is not None and not session.terminated and life.rng.random() < 0.5:
                kernel.orchestrator.terminate_session(pid, "user_cancelled", "it is late")
            if pid in self.driven and not kernel.get_process(pid).terminal:
                kernel.terminate(pid, "it is late", force=True)

    async def _watch(self, world: World, life: Life) -> None:
        """Follow a pipeline's events: what a listener is told is durable, and an end is told once."""
        await asyncio.sleep(life.rng.choice([0.0, 0.1, 5.0]))
        pid = life.rng.choice(list(self.run))
        ends = 0
        async for event in life.kernel.execute_pipeline(self.run[pid], pid=pid):
            if event.data.get("seq", 0) > len(world.ledger.rows):
                world.violate(
                    "acknowledged", f"{pid}: {event.type} was told before row {event.data['seq']} was durable"
                )
            ends += event.type == "pipeline_completed"
        if ends != 1:
            world.violate("ends", f"{pid} told {ends} ends")

    async def _drive(self, world: World, life: Life) -> None:
        """A worker outside: takes the entry, does what it is told, reports, and is told what comes next."""
        if not self.driven:
            return
        kernel, rng = life.kernel, life.rng
        await asyncio.sleep(rng.choice([0.0, 1.0, 10.0]))
        pid = rng.choice(list(self.driven))
        worker = rng.choice([None, None, "w1", "w2"])
        lease_s = None if worker is None else rng.choice([2.0, 10.0, 60.0])
        for _ in range(30):
            session = kernel.orchestrator.state.sessions.get(pid)
            if session is None or session.terminated:
                return
            instruction = kernel.get_next_instruction(pid, worker, lease_s)
            if rng.random() < 0.3:
                again = kernel.get_next_instruction(pid, worker, lease_s)
                if (again.kind, again.run_id) != (instruction.kind, instruction.run_id):
                    world.violate("stage_once", f"{pid}: asked twice, {instruction.kind} became {again.kind}")
            if instruction.kind == "terminate":
                return
            await asyncio.sleep(rng.choice([0.1, 3.0, 20.0]) * rng.random())
            if worker is not None and rng.random() < 0.1:
                return  # it died, perhaps with a stage in hand
            if instruction.kind == "run_agent":
                await self._report(kernel, rng, pid, instruction, worker)

    async def _report(self, kernel: Kernel, rng: ProcessRandom, pid: str, instruction: Any, worker: str | None) -> None:
        good = rng.random() < 0.8
        result = {
            "agent_name": instruction.agent_name,
            "run_id": instruction.run_id,
            "output": {"verdict": rng.choice(_VERDICTS), "run": instruction.run_id} if good else {},
            "success": good,
            "error": None if good else "it went wrong",
        }
        try:
            kernel.report_agent_result(pid, result, worker)
            if rng.random() < 0.3:
                kernel.report_agent_result(pid, result, worker)
        except InvalidTransition:
            return  # the other worker was quicker
        await kernel.durable()

    async def _interfere(self, _world: World, life: Life) -> None:
        """Questions from outside about a pipeline under way, taken back or left; pipelines ended by an operator."""
        kernel, rng = life.kernel, life.rng
        await asyncio.sleep(rng.choice([0.5, 10.0, 100.0]) * rng.random())
        pid = rng.choice([*self.run, *self.driven])
        session = kernel.orchestrator.state.sessions.get(pid)
        if session is None or session.terminated:
            return
        word = rng.choice(["ask", "ask", "end", "checkpoint"])
        try:
            if word == "ask":
                asked = kernel.create_interrupt(pid, "checkpoint", question="stop for a moment?", ttl_s=20.0)
                await asyncio.sleep(rng.choice([1.0, 30.0]))
                if kernel.interrupts.get_status(asked.id) == "pending":
                    kernel.interrupts.cancel_interrupt(asked.id)
            elif word == "end" and rng.random() < 0.5:
                await kernel.orchestrator.terminate_session(pid, "user_cancelled")
            else:
                kernel.orchestrator.checkpoint(pid)
        except LyraError as refusal:
            if refusal.code == "conflict":
                raise


def _agents(config: dict[str, Any]) -> list[str]:
    return [stage["agent"] for stage in config["agents"] if "agent" in stage]
