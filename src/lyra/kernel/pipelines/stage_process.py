"""A run of a stage as a process of its own: a child of the pipeline's process, with a budget of its own.

The child runs the program that an Agent brings along. Its model and tool calls are effects of the child, so after a
crash it goes on where it was, and only an effect that was in flight is in doubt. Its time limit is the stage's, its
other limits are the Agent's own and what is left of the pipeline's quota. The arguments name the run: the child reads
the envelope itself (`Runner.work_of`), as a journaled reading, so that a replay has the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.core.budgets.budget import Budget
from lyra.errors import AgentFailed
from lyra.kernel.programs.context import Context, OwnContext

if TYPE_CHECKING:
    from lyra.kernel.pipelines.agents import RegisteredAgent
    from lyra.kernel.pipelines.declaration import AgentConfig
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.programs.child_handle import ChildHandle


# Metric of a run → dimension of the usage that it was charged.
SPENT: Final = {
    "llm_calls": "llm_calls",
    "tool_calls": "tool_calls",
    "tokens_in": "input_tokens",
    "tokens_out": "output_tokens",
}


async def run_stage_process(
    ctx: Context, orchestrator: Orchestrator, agent: RegisteredAgent, stage: AgentConfig, run: int
) -> dict[str, Any]:
    """The report of a run, tried again as the stage says; the last error is raised, with what the try has used."""
    retry, attempt = stage.retry, 1
    program: Any = agent.program
    while True:
        child = ctx.spawn(program, ctx.pid, run, stage.name, budget=_budget(orchestrator, ctx.pid, agent, stage, run))
        try:
            return await _outcome(ctx, child, stage)
        except Exception as error:
            if retry is None or not retry.should_retry(error, attempt) or ctx.own_process.out_of_time:
                raise
            await ctx.sleep(retry.delay(attempt, lambda: 0.5, error))
            attempt += 1


async def _outcome(ctx: Context, child: ChildHandle[Any], stage: AgentConfig) -> dict[str, Any]:
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        OwnContext(ctx.own_process).stop(child)
        raise
    error = ended.error
    if error is None and ended.reason != "normal":
        error = AgentFailed(f"agent {stage.agent_name} ended: {ended.reason}", status=ended.reason, pid=child.pid)
    process = child._look_up()
    if error is not None:
        if process is not None:
            error.usage = process.budget.usage  # type: ignore[attr-defined]  # for the report's metrics
        raise error
    result: dict[str, Any] = ended.result
    if process is not None:  # calls that a crash cut off are charged, and the program does not know of them
        counted = result["metrics"]
        charged = {name: max(counted.get(name) or 0, process.spent[dimension]) for name, dimension in SPENT.items()}
        result = {**result, "metrics": {**counted, **{name: used for name, used in charged.items() if used}}}
    wrong = stage.wrong_with(result["output"])
    if wrong is not None:
        raise AgentFailed(f"the output of {stage.agent_name} {wrong}")
    return result


def _budget(orchestrator: Orchestrator, pid: str, agent: RegisteredAgent, stage: AgentConfig, run: int) -> Budget:
    """The limits of one run: the agent's own, the stage's time, and what is left of the pipeline's quota."""
    session = orchestrator.state.sessions.get(pid)
    default_s = session.pipeline_config.default_timeout_seconds if session is not None else None
    limits: dict[str, Any] = {"name": f"{stage.name} run {run}", **orchestrator.quota_left(pid)}
    seconds = [value for value in (stage.timeout_seconds or default_s, limits.get("seconds")) if value is not None]
    if seconds:
        limits["seconds"] = min(seconds)
    return Budget.of(agent.budget).child(limits).within_parent()
