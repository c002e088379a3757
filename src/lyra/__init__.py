"""Lyra, an operating system for AI agents: the public SDK.

    from lyra import Kernel, effect

Every name below is looked up when it is first used, so `import lyra` costs next to nothing. `_HOMES` is the
table of public names and the modules they live in; a test pins it. All errors are in `lyra.errors`, the
values in `lyra.core`, the kernel in `lyra.kernel`, stores in `lyra.store`, test tools in `lyra.testing`. What is
neither named here nor in the `__all__` of those packages may change without notice.
"""

from lyra._old_paths import install as _install_old_paths
from lyra._version import __version__

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing, which costs more than this module
if TYPE_CHECKING:
    from typing import Any

    from lyra import errors
    from lyra.agents.agent import Agent
    from lyra.agents.declaration.memory import Memory
    from lyra.agents.declaration.output import Image
    from lyra.agents.helpers.delegate import delegate, team
    from lyra.agents.sdk import budget, run, stream
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.execution import AgentExecution, AgentState
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
    from lyra.sage.sdk.sdk import SageAgentSDK
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
    "Agent": "lyra.agents.agent",
    "AgentExecution": "lyra.agents.session.execution",
    "AgentProcess": "lyra.agents.session.agent_process",
    "AgentState": "lyra.agents.session.execution",
    "Backoff": "lyra.core.policies.policy",
    "Budget": "lyra.core.budgets.budget",
    "Capability": "lyra.core.rights.capability",
    "Charged": "lyra.core.effect",
    "CircuitBreaker": "lyra.core.policies.policy",
    "Config": "lyra.config",
    "Context": "lyra.kernel.programs.context",
    "Effect": "lyra.core.effect",
    "Event": "lyra.core.event",
    "Exit": "lyra.kernel.process.process",
    "Grant": "lyra.core.rights.capability",
    "Image": "lyra.agents.declaration.output",
    "Kernel": "lyra.kernel.kernel",
    "LLMClient": "lyra.models.client",
    "LLMProvider": "lyra.models.provider",
    "LyraError": "lyra.errors",
    "Memory": "lyra.agents.declaration.memory",
    "Message": "lyra.core.message",
    "Money": "lyra.core.budgets.money",
    "Policy": "lyra.core.policies.policy",
    "RateLimit": "lyra.core.policies.policy",
    "Reply": "lyra.agents.session.replies",
    "Retry": "lyra.core.policies.policy",
    "SageAgentSDK": "lyra.sage.sdk.sdk",
    "Stream": "lyra.agents.session.replies",
    "Supervision": "lyra.core.policies.policy",
    "Timeouts": "lyra.models.settings",
    "Tool": "lyra.core.tool",
    "ToolCall": "lyra.core.tool",
    "ToolRegistry": "lyra.tools.registry",
    "ToolResult": "lyra.core.tool",
    "Usage": "lyra.core.budgets.budget",
    "batch": "lyra.agents.teams",
    "budget": "lyra.agents.sdk",
    "connect": "lyra.server.client.remote",
    "delegate": "lyra.agents.helpers.delegate",
    "effect": "lyra.core.effect",
    "errors": "lyra.errors",
    "fan_in": "lyra.agents.teams",
    "fan_out": "lyra.agents.teams",
    "map_reduce": "lyra.agents.teams",
    "parallel": "lyra.agents.teams",
    "pipeline": "lyra.agents.teams",
    "router": "lyra.agents.teams",
    "run": "lyra.agents.sdk",
    "stream": "lyra.agents.sdk",
    "team": "lyra.agents.helpers.delegate",
    "tool": "lyra.tools.function",
}

_install_old_paths()


def _look_up(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # type checkers read the imports above, and so find a name that is not there
    __getattr__ = _look_up


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
