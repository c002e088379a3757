"""Lyra, an operating system for AI agents: the public SDK.

    from lyra import Kernel, effect

Every name below is looked up when it is first used, so `import lyra` costs next to nothing. `_HOMES` is the
table of public names and the modules they live in; a test pins it. All errors are in `lyra.errors`, the
values in `lyra.core`, the kernel in `lyra.kernel`, stores in `lyra.store`, test tools in `lyra.testing`. What is
neither named here nor in the `__all__` of those packages may change without notice.
"""

from lyra._version import __version__

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing, which costs more than this module
if TYPE_CHECKING:
    from typing import Any

    from lyra import errors
    from lyra.agents.agent import Agent
    from lyra.agents.content import Image
    from lyra.agents.delegate import delegate, team
    from lyra.agents.execution import AgentExecution, AgentState
    from lyra.agents.memory import Memory
    from lyra.agents.orchestrate import batch, fan_in, fan_out, map_reduce, parallel, pipeline, router
    from lyra.agents.process import AgentProcess
    from lyra.agents.replies import Reply, Stream
    from lyra.agents.sdk import budget, run, stream
    from lyra.config import Config
    from lyra.core.budget import Budget, Usage
    from lyra.core.capability import Capability, Grant
    from lyra.core.effect import Charged, Effect, effect
    from lyra.core.event import Event
    from lyra.core.message import Message
    from lyra.core.money import Money
    from lyra.core.policy import Backoff, CircuitBreaker, Policy, RateLimit, Retry, Supervision
    from lyra.core.tool import Tool, ToolCall, ToolResult
    from lyra.errors import LyraError
    from lyra.kernel.context import Context
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process import Exit
    from lyra.models.client import LLMClient
    from lyra.models.http import Timeouts
    from lyra.models.provider import LLMProvider
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
    "AgentExecution": "lyra.agents.execution",
    "AgentProcess": "lyra.agents.process",
    "AgentState": "lyra.agents.execution",
    "Backoff": "lyra.core.policy",
    "Budget": "lyra.core.budget",
    "Capability": "lyra.core.capability",
    "Charged": "lyra.core.effect",
    "CircuitBreaker": "lyra.core.policy",
    "Config": "lyra.config",
    "Context": "lyra.kernel.context",
    "Effect": "lyra.core.effect",
    "Event": "lyra.core.event",
    "Exit": "lyra.kernel.process",
    "Grant": "lyra.core.capability",
    "Image": "lyra.agents.content",
    "Kernel": "lyra.kernel.kernel",
    "LLMClient": "lyra.models.client",
    "LLMProvider": "lyra.models.provider",
    "LyraError": "lyra.errors",
    "Memory": "lyra.agents.memory",
    "Message": "lyra.core.message",
    "Money": "lyra.core.money",
    "Policy": "lyra.core.policy",
    "RateLimit": "lyra.core.policy",
    "Reply": "lyra.agents.replies",
    "Retry": "lyra.core.policy",
    "Stream": "lyra.agents.replies",
    "Supervision": "lyra.core.policy",
    "Timeouts": "lyra.models.http",
    "Tool": "lyra.core.tool",
    "ToolCall": "lyra.core.tool",
    "ToolRegistry": "lyra.tools.registry",
    "ToolResult": "lyra.core.tool",
    "Usage": "lyra.core.budget",
    "batch": "lyra.agents.orchestrate",
    "budget": "lyra.agents.sdk",
    "delegate": "lyra.agents.delegate",
    "effect": "lyra.core.effect",
    "errors": "lyra.errors",
    "fan_in": "lyra.agents.orchestrate",
    "fan_out": "lyra.agents.orchestrate",
    "map_reduce": "lyra.agents.orchestrate",
    "parallel": "lyra.agents.orchestrate",
    "pipeline": "lyra.agents.orchestrate",
    "router": "lyra.agents.orchestrate",
    "run": "lyra.agents.sdk",
    "stream": "lyra.agents.sdk",
    "team": "lyra.agents.delegate",
    "tool": "lyra.tools.function",
}


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
