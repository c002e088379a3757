"""Agent: the declaration together with what it is spawned as: its program, its handle, and itself as a tool.

    assistant = Agent("assistant", model="anthropic/claude-sonnet-4-5", system="Be brief.", budget="$0.50")

The settings and their checks are in `lyra.agents.declaration.agent`. This class only says how the kernel runs them: by
`lyra.agents.turn`, behind an AgentProcess; and how another agent uses it, as a helper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lyra.agents.declaration.agent import AgentDeclaration
from lyra.agents.helpers.delegate import delegate
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.turn.program import agent_program
from lyra.core.tool import Tool

__all__ = ["Agent"]


class Agent(AgentDeclaration):
    """`system` is text, or a function (sync or async) that gives it for each message, of the session or of nothing."""

    __slots__ = ()

    __lyra_handle__ = AgentProcess

    @property
    def __lyra_program__(self) -> Callable[..., Any]:
        return agent_program(self)

    def __lyra_tool__(self) -> Tool:
        """The tool by which another agent has this one do a piece of work."""
        return delegate(self)

    def _tools_of_settings(self) -> tuple[Tool, ...]:
        if self.memory is None or not self.memory.tools:
            return ()
        from lyra.agents.turn.memory import memory_tools

        return memory_tools(self.memory)
