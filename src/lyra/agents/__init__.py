"""Agents: a declaration, a process that runs it, and the ways to ask it.

Start with `agent`, then `sdk` (`lyra.run`, `lyra.stream`); `turn.loop` is what an agent's process does.
"""

from lyra.agents.agent import Agent
from lyra.agents.declaration.output import Image
from lyra.agents.sdk import budget, run, stream
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.execution import AgentExecution, AgentState
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
