"""The program that every Vega process runs as in the kernel: step the fiber, answer its effects, again.

An effect's handler is a function of the Job and the effect's arguments; what it gives (or, of a coroutine, what that
gives) is the effect's value, what it raises is an error that a `catch` sees. A fiber whose fuel is used up, or that has
done many things or long ones without waiting, lets the others have a turn.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core.budgets.early_calls import NO_ROOM
from lyra.core.limits import TICK_S
from lyra.core.naming import VEGA_AGENT, VEGA_PROCESS, give_name
from lyra.errors import AgentFailed, Divergence, VegaError
from lyra.kernel.programs.context import Context, OwnContext
from lyra.vega.machine.fiber import WAIT, Done, Fiber, OutOfFuel, VmEffect
from lyra.vega.machine.vm import run
from lyra.vega.runtime.agents.plan import plan_of_call
from lyra.vega.runtime.agents.slot import CRASH
from lyra.vega.runtime.agents.undeclared_tools import ProcessPrograms
from lyra.vega.runtime.early_calls import give_up
from lyra.vega.runtime.handlers import HANDLERS, handler
from lyra.vega.runtime.job import ProcessSaver, VegaJob
from lyra.vega.runtime.light_processes import FUEL, ScheduledFiber
from lyra.vega.runtime.world import run_of, world_of
from lyra.vega.values.values import fault_of

if TYPE_CHECKING:
    from collections.abc import Sequence


# ---------------- The process of an agent: it lives, crashes and is restarted as supervision says
# Calls do not run in it. Without memory each call is its own process; with memory one process holds the
# conversation.


@give_name(VEGA_AGENT)
async def agent_front(ctx: Context, run_id: str, name: str, settings: Any) -> None:
    """Run the process of an agent. It waits to be told that a call failed, and crashes with it."""
    world = world_of(ctx, run_id)
    plan = world.plan(name, world.read(settings))
    slot = world.slot(ctx.pid, plan)
    session = None
    if plan.keeps:
        session = ctx.spawn(plan_of_call(ctx.own_process, plan).program)
    slot.up(ctx.own_process, None if session is None else session._look_up())
    if world.picture is not None:
        world.picture.agent(ctx.own_process, slot)
    while True:
        message = await ctx.receive()
        if isinstance(message, dict) and CRASH in message:
            if session is not None:
                OwnContext(ctx.own_process).stop(session, grace_s=1.0)
            raise AgentFailed(str(message[CRASH]), status="crashed")


agent_front.__lyra_spawns__ = lambda _kernel, args: ((args[1],),)  # type: ignore[attr-defined]  # the agent's name


EFFECTS_A_TURN: Final = 256  # without waiting once


@give_name(VEGA_PROCESS)
async def vega_process(ctx: Context, run_id: str, seed: Any, asked: VmEffect | Done | None = None) -> Any:
    """Run a process of the run: `seed` is what it begins with, None for the main one; `asked` what a fiber that has run
    already wants first."""
    world = world_of(ctx, run_id)
    job = VegaJob(world, ctx, world.fiber(seed))
    if seed is None:
        world.begin(job)
        scopes.set((world.budget,))
    elif type(seed) is dict and world.is_durable:
        if world.barrier is not None:
            await world.barrier.wait_for_caller(ctx.own_process)
        world.enter_sessions(seed.get("sessions", ()))
        job.fiber.depth = int(seed.get("depth", 0))
        if ctx.pid in world.early:
            scopes.set((world.early[ctx.pid].scope,))
    if world.picture is not None:
        world.picture.began(job, is_main=seed is None)
    if world.light_processes is None:
        saver = None if world.start_saving is None else world.start_saving(job)
        return await _run_to_end(job, asked, saver, is_main=seed is None)
    world.light_processes.attach(job)
    try:
        return await _run_to_end(job, asked, None, is_main=seed is None)
    finally:
        world.light_processes.detach(job)


def _spawns(kernel: Any, args: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the function that a process begins with, by its name; the main process is started by the caller of the
    run."""
    run_id, seed = args[:2]
    if seed is None:
        return ()
    if isinstance(seed, Fiber):
        return ((seed.code.function.name,),)
    world = run_of(kernel, run_id)
    function = (world.read(seed) if isinstance(seed, dict) else seed)[0]
    return ((world.linked.program.functions[function.function].name,),)


vega_process.__lyra_spawns__ = _spawns  # type: ignore[attr-defined]


async def _run_to_end(job: VegaJob, asked: VmEffect | Done | None, saver: ProcessSaver | None, *, is_main: bool) -> Any:
    """All steps of a process; one that is ended from outside gives up what it has asked ahead of its turn."""
    try:
        return await _steps(job, asked, saver, is_main=is_main)
    except asyncio.CancelledError:
        if job.has_state and job.state.ahead:
            await give_up(job)
        raise


async def _steps(job: VegaJob, asked: VmEffect | Done | None, saver: ProcessSaver | None, *, is_main: bool) -> Any:
    fiber, light_processes, time = job.fiber, job.world.light_processes, job.world.kernel.loop.time
    left, until = EFFECTS_A_TURN, time() + TICK_S
    outcome: VmEffect | Done | OutOfFuel | None = asked
    while True:
        if outcome is None:
            if saver is not None and saver.is_due():
                await saver.save()
            outcome = run(fiber, FUEL)
        if outcome is WAIT and light_processes is not None:
            outcome = await job
            left -= 1
            if left and time() < until:
                continue
        elif type(outcome) is VmEffect:
            if job.world.barrier is not None and outcome is not WAIT:
                await job.world.barrier.hold(job, outcome.kind)
            await _answer(job, outcome)
            outcome = None
            left -= 1
            if left and fiber.ticks >= 0 and time() < until:
                continue
        elif type(outcome) is Done:
            if outcome.error is not None:
                raise _uncaught(job, outcome, is_main=is_main)
            return job.world.to_row(outcome.value)
        else:
            outcome = None
        left = EFFECTS_A_TURN
        if not (is_main and saver is not None and job.ctx.replaying):  # the others of a run that comes back follow it
            await asyncio.sleep(0)
            until = time() + TICK_S


async def _answer(job: VegaJob, effect: VmEffect) -> None:
    """Do what the fiber asks for."""
    fiber = job.fiber
    if effect is WAIT:  # with a journal
        job.take(await job.ctx.receive())
        return
    try:
        answer = HANDLERS.get(effect.kind) or handler(effect.kind)
        value = answer(job, *effect.arguments)
        if type(value) is CoroutineType:
            value = await value
    except Divergence:
        raise  # not the program's to catch: its journal says something else
    except Exception as error:  # noqa: BLE001 - whatever goes wrong outside, a program may catch
        fault = fault_of(error)
        fiber.throw(fault.name, fault.text)
    else:
        fiber.resume(value)
    if type(fiber) is ScheduledFiber:
        fiber.origin = None  # the sessions and spans around it may be others now


def _uncaught(job: VegaJob, outcome: Done, *, is_main: bool) -> VegaError:
    assert outcome.error is not None
    error = VegaError.of(outcome.error)
    early = job.world.early.get(job.ctx.pid)
    if early is not None and early.scope.was_refused:
        error.fields[NO_ROOM] = True  # so that a replay knows that the call was refused early
    is_heard = early is not None or job.ctx.pid in job.world.awaited  # the caller reports the error
    if not is_main and not is_heard and not job.world.is_over:  # one stopped at the end of the run did not fail
        job.world.options.warn(f"process {job.fiber.begun_as} ended: {error.render()}")
    return error


PROGRAMS: Final = ProcessPrograms(process=vega_process, agent=agent_front)
