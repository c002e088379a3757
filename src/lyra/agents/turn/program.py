"""The program that an agent's processes run: a conversation, or one task.

`Kernel.spawn` wants an async function that a journal can find again by its name. That of an agent is `agent:NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration


# By `id` of the agent. A program holds its agent, so the id belongs to no other agent as long as the program is here.
_programs: Final[WeakValueDictionary[int, Callable[..., Any]]] = WeakValueDictionary()


def agent_program(agent: AgentDeclaration) -> Callable[..., Any]:
    """Return the program of an agent: the same function each time, as long as a kernel knows it."""
    program = _programs.get(id(agent))
    if program is None:
        program = _programs[id(agent)] = _program(agent)
    return program


def _program(agent: AgentDeclaration) -> Callable[..., Any]:
    from lyra.agents.turn import loop  # not before an agent is spawned: it brings all that a turn needs

    async def serve(ctx: Any, *task: Any) -> Any:
        """Without a task a conversation; with one, that alone: its result is the answer."""
        return await loop.once(ctx, agent, task[0]) if task else await loop.serve(ctx, agent)

    from lyra.agents.session.agent_process import AgentProcess

    vars(serve)["__lyra_handle__"] = getattr(agent, "__lyra_handle__", AgentProcess)  # by which `kernel.agent` finds it
    if agent.output is not None:
        vars(serve)["__lyra_read_result__"] = agent.output.read_result  # for `ctx.spawn`
    vars(serve)["__lyra_agent__"] = agent  # by which a server finds the agents that a kernel knows
    serve.__module__, serve.__qualname__ = "agent", agent.name
    return serve
