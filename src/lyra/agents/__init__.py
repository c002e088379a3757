"""Agents: a declaration, a process that runs it, and the ways to ask it.

Start with `agent`, then `sdk` (`lyra.run`, `lyra.stream`); `turn.loop` is what an agent's process does.
"""

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.agents.agent import Agent
    from lyra.agents.declaration.output import Image
    from lyra.agents.sdk import budget, run, stream
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.model_call import AgentExecution, AgentState
    from lyra.agents.session.replies import Pending, Reply, Stream

__all__ = [
    "Agent",
    "AgentExecution",
    "AgentProcess",
    "AgentState",
    "Image",
    "Pending",
    "Reply",
    "Stream",
    "budget",
    "run",
    "stream",
]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "agent": "Agent",
            "declaration.output": "Image",
            "sdk": "budget run stream",
            "session.agent_process": "AgentProcess",
            "session.model_call": "AgentExecution AgentState",
            "session.replies": "Pending Reply Stream",
        },
    )
