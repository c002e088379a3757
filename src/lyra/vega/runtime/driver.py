"""The program that every Vega process runs as in the kernel: step the fiber, answer its effects, again.

An effect's handler is a function of the Job and the effect's arguments; what it gives (or, of a coroutine, what that
gives) is the effect's value, what it raises is an error that a `catch` sees. A fiber whose fuel is used up, or that has
done many things without waiting, lets the others have a turn.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.runtime import scopes
from lyra.errors import Divergence
from lyra.vega.fiber import Done, VmEffect
from lyra.vega.runtime.errors import VegaError, fault_of
from lyra.vega.runtime.handlers import HANDLERS, handler
from lyra.vega.runtime.job import Job
from lyra.vega.runtime.world import world_of
from lyra.vega.vm import run

if TYPE_CHECKING:
    from lyra.kernel.context import Context

__all__ = ["vega_process"]

FUEL: Final = 4_096  # calls and loop turns; about a millisecond
EFFECTS_A_TURN: Final = 256  # without waiting once


async def vega_process(ctx: Context, run_id: str, seed: Any) -> Any:
    """A process of the run: `seed` is what it begins with, None for the main one."""
    world = world_of(ctx, run_id)
    fiber = world.fiber(seed)
    job = Job(world, ctx, fiber)
    if seed is None:
        world.begin(job)
        scopes.set((world.budget,))
    elif type(seed) is dict and world.is_durable:
        world.enter_sessions(seed.get("sessions", ()))
    if world.picture is not None:
        world.picture.began(job, is_main=seed is None)
    is_durable = world.is_durable
    saver = world.saver(job) if world.record is not None else None
    fiber = job.fiber
    left = EFFECTS_A_TURN
    while True:
        if saver is not None and saver.is_due():
            await saver.save()
        outcome = run(fiber, FUEL)
        if type(outcome) is VmEffect:
            if outcome.kind == "receive" and outcome.arguments[0] is None:
                # Without a journal a message needs no key: the process itself is what `ctx.receive()` gives.
                message = await ctx.receive() if is_durable else await ctx._process
                if type(message) is tuple:
                    fiber.deliver(message[0])
                else:
                    job.take(message)
            else:
                try:
                    answer = HANDLERS.get(outcome.kind) or handler(outcome.kind)
                    value = answer(job, *outcome.arguments)
                    if type(value) is CoroutineType:
                        value = await value
                except Divergence:
                    raise  # not the program's to catch: its journal says something else
                except Exception as error:  # noqa: BLE001 - whatever goes wrong outside, a program may catch
                    fault = fault_of(error)
                    fiber.throw(fault.name, fault.text)
                else:
                    fiber.resume(value)
            left -= 1
            if left:
                continue
        elif type(outcome) is Done:
            if outcome.error is not None:
                raise _uncaught(job, outcome, is_main=seed is None)
            return world.kept(outcome.value)
        left = EFFECTS_A_TURN
        await asyncio.sleep(0)


def _uncaught(job: Job, outcome: Done, *, is_main: bool) -> VegaError:
    assert outcome.error is not None
    error = VegaError.of(outcome.error)
    if not is_main and not job.world.is_over:  # one that is stopped at the end of the run did not fail
        job.world.options.warn(f"process {job.ctx.pid} ended: {error.render()}")
    return error
