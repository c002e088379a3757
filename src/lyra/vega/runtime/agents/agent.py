"""The process of an agent: it lives, crashes and is restarted as supervision says.

Calls do not run in it. Without memory each call is a process of its own, so calls may overlap; with memory one process
holds the conversation.
"""

from __future__ import annotations

from typing import Any

from lyra.core.naming import VEGA_AGENT, named
from lyra.errors import AgentFailed
from lyra.kernel.programs.context import Context, OwnContext
from lyra.vega.runtime.agents.setting_versions import plan_of_call
from lyra.vega.runtime.agents.slot import CRASH
from lyra.vega.runtime.world import world_of


@named(VEGA_AGENT)
async def agent_front(ctx: Context, run_id: str, name: str, settings: Any) -> None:
    """The process of an agent. It waits to be told that a call failed, and crashes with it."""
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
