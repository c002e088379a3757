"""Lyra, an operating system for AI agents: the public SDK.

    from lyra import Kernel, effect

Every name below is looked up when it is first used, so `import lyra` costs next to nothing. `_HOMES` is the
table of public names and the modules they live in; a test pins it. All errors are in `lyra.errors`, the
values in `lyra.core`, the kernel in `lyra.kernel`, stores in `lyra.store`, test tools in `lyra.testing`. What is
neither named here nor in the `__all__` of those packages may change without notice.
"""

from lyra._imports import install as _install_old_paths
from lyra._imports import on_first_use as _on_first_use
from lyra._version import __version__

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing, which costs more than this module
if TYPE_CHECKING:
    from lyra import errors
    from lyra.agents.agent import Agent
    from lyra.agents.declaration.memory import Memory
    from lyra.agents.declaration.output import Image
    from lyra.agents.helpers.task import delegate, team
    from lyra.agents.sdk import budget, run, stream
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.model_call import AgentExecution, AgentState
    from lyra.agents.session.replies import Reply, Stream
    from lyra.agents.teams import batch, fan_in, fan_out, map_reduce, parallel, pipeline, router
    from lyra.config import Config
    from lyra.core.budgets.budget import Budget, Usage
    from lyra.core.budgets.money import Money
    from lyra.core.effect import Charged, Effect, effect
    from lyra.core.event import Event
    from lyra.core.message import Message
    from lyra.core.policies.policy import Backoff, CircuitBreaker, Policy, RateLimit, Retry, Supervision
    from lyra.core.rights.capability import Capability, Grant
    from lyra.core.tool import Tool, ToolCall, ToolResult
    from lyra.errors import LyraError
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Exit
    from lyra.kernel.programs.context import Context
    from lyra.models.client import LLMClient
    from lyra.models.provider import LLMProvider
    from lyra.models.settings import Timeouts
    from lyra.sage.sdk import SageAgentSDK
    from lyra.server.client.remote import connect
    from lyra.tools.function import tool
    from lyra.tools.registry import ToolRegistry

__all__ = [
    "Agent",
    "AgentExecution",
    "AgentProcess",
    "AgentState",
    "Backoff",
    "Budget",
    "Capability",
    "Charged",
    "CircuitBreaker",
    "Config",
    "Context",
    "Effect",
    "Event",
    "Exit",
    "Grant",
    "Image",
    "Kernel",
    "LLMClient",
    "LLMProvider",
    "LyraError",
    "Memory",
    "Message",
    "Money",
    "Policy",
    "RateLimit",
    "Reply",
    "Retry",
    "SageAgentSDK",
    "Stream",
    "Supervision",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "ToolResult",
    "Usage",
    "__version__",
    "batch",
    "budget",
    "connect",
    "delegate",
    "effect",
    "errors",
    "fan_in",
    "fan_out",
    "map_reduce",
    "parallel",
    "pipeline",
    "router",
    "run",
    "stream",
    "team",
    "tool",
]

_HOMES = {
    "agents.agent": "Agent",
    "agents.session.model_call": "AgentExecution AgentState",
    "agents.session.agent_process": "AgentProcess",
    "core.policies.policy": "Backoff CircuitBreaker Policy RateLimit Retry Supervision",
    "core.budgets.budget": "Budget Usage",
    "core.rights.capability": "Capability Grant",
    "core.effect": "Charged Effect effect",
    "config": "Config",
    "kernel.programs.context": "Context",
    "core.event": "Event",
    "kernel.process.process": "Exit",
    "agents.declaration.output": "Image",
    "kernel.kernel": "Kernel",
    "models.client": "LLMClient",
    "models.provider": "LLMProvider",
    "agents.declaration.memory": "Memory",
    "core.message": "Message",
    "core.budgets.money": "Money",
    "agents.session.replies": "Reply Stream",
    "sage.sdk": "SageAgentSDK",
    "models.settings": "Timeouts",
    "core.tool": "Tool ToolCall ToolResult",
    "tools.registry": "ToolRegistry",
    "agents.teams": "batch fan_in fan_out map_reduce parallel pipeline router",
    "agents.sdk": "budget run stream",
    "server.client.remote": "connect",
    "agents.helpers.task": "delegate team",
    "tools.function": "tool",
    "errors": "LyraError errors",
}

_install_old_paths()


if not TYPE_CHECKING:  # type checkers read the imports above, and so find a name that is not there
    __getattr__ = _on_first_use("lyra", _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
