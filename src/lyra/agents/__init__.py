"""Agents: a declaration, a process that runs it, and the ways to ask it."""

from lyra.agents.agent import Agent
from lyra.agents.content import Image
from lyra.agents.execution import AgentExecution, AgentState
from lyra.agents.process import AgentProcess
from lyra.agents.replies import Pending, Reply, Stream
from lyra.agents.sdk import budget, run, stream

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
