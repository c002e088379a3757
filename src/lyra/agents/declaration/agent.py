"""AgentDeclaration: the settings of an agent, checked: its model, its tools, and how far it may go.

Nothing runs here and nothing is cached here. A declaration is checked when it is made, does not change afterwards, and
may be spawned any number of times; its processes share its rate limit and its circuit breakers. Users make an
`lyra.agents.agent.Agent`, which adds what the kernel spawns.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from lyra.agents.declaration.hooks import HOOK_METHODS, AgentHooks, ContextPolicy
from lyra.agents.declaration.memory import Memory
from lyra.agents.declaration.output import AnswerType
from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import check_integer, real, short_text
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.policies.policy import Backoff, CircuitBreaker, RateLimit, Retry, Supervision
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.models.provider import LLMProvider
from lyra.models.settings import Timeouts
from lyra.tools.function import tool_of
from lyra.tools.registry import ToolRegistry
from lyra.tools.source import ToolSource, is_source

if TYPE_CHECKING:
    from lyra.tools.permissions.decision import Permissions


class _UsableAsTool(Protocol):
    def __lyra_tool__(self) -> Tool: ...


ToolValue: TypeAlias = "Tool | Callable[..., Any] | ToolSource | _UsableAsTool"  # one of the list `tools`

ITERATIONS_MAX: Final = 20  # model calls for one message
PARALLEL_TOOLS: Final = 8
MAX_TOKENS: Final = 4096  # of one answer, unless the agent says otherwise
CONTINUATIONS: Final = 8  # of answers that were cut off at the longest, for one message
MIN_TOKENS: Final = 256  # a budget that cannot pay for so long an answer refuses the call

_RETRY: Final = Retry(max_attempts=3, backoff=Backoff(initial_s=0.5, max_s=30.0, jitter=0.2))


class AgentDeclaration:
    """`system` is text, or a function (sync or async) that gives it for each message, of the session or of nothing."""

    __slots__ = (
        "__weakref__",
        "budget",
        "circuit_breaker",
        "context",
        "continuations",
        "description",
        "elsewhere",
        "fallback",
        "fit_budget",
        "hooks",
        "max_iterations",
        "max_parallel_tools",
        "max_tokens",
        "memory",
        "min_tokens",
        "model",
        "models",
        "name",
        "output",
        "output_retries",
        "permissions",
        "rate_limit",
        "retry",
        "sampling",
        "sources",
        "supervision",
        "system",
        "temperature",
        "thinking_tokens",
        "timeouts",
        "toolbox",
        "tools",
        "top_p",
    )

    def __init__(
        self,
        name: str = "agent",
        *,
        model: str | LLMProvider = "",
        system: str | Callable[..., Any] = "",
        tools: Iterable[Any] | ToolSource | None = (),
        budget: Any = None,
        retry: Any = _RETRY,
        circuit_breaker: Any = None,
        rate_limit: Any = None,
        fallback: str | LLMProvider | Iterable[str | LLMProvider] | None = (),
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = MAX_TOKENS,
        min_tokens: int = MIN_TOKENS,
        fit_budget: bool = False,
        thinking_tokens: int | None = None,
        output: Any = None,
        output_retries: int = 2,
        memory: Any = None,
        context: Any = None,
        permissions: Permissions | Mapping[str, Any] | None = None,
        hooks: AgentHooks | None = None,
        supervision: Any = None,
        timeouts: Timeouts | Mapping[str, float | None] | None = None,
        max_iterations: int = ITERATIONS_MAX,
        max_parallel_tools: int = PARALLEL_TOOLS,
        description: str = "",
    ) -> None:
        self.name = short_text(name, "an agent's name", most=NAME_LENGTH_MAX)
        if not self.name:
            raise ConfigError("an agent has a name", key="name")
        self.model = _model(model, self.name)
        self.fallback = tuple(_model(other, self.name) for other in _list(fallback))
        self.system = system if isinstance(system, str) else _system(system)
        self.tools: dict[str, Tool] = {}
        self.sources: tuple[Any, ...] = ()  # of tools that may change: looked at again with each message
        self.memory = Memory.of(memory, agent=self.name)
        for value in (*_tools(tools), *self._tools_of_settings()):
            if is_source(value):
                self.sources = (*self.sources, value)
                continue
            tool = tool_of(value)
            if tool.name in self.tools:
                raise ConfigError(f"agent {self.name!r} has two tools named {tool.name!r}", key="tools")
            self.tools[tool.name] = tool
        self.toolbox = tuple(self.tools.values())
        self.permissions = None if permissions is None else _permissions(permissions, self.folders)
        self.hooks = None if hooks is None else _hooks(hooks)
        self.models = (self.model, *self.fallback)
        self.budget = None if budget is None else Budget.of(budget)
        self.retry = Retry.of(retry)
        self.circuit_breaker = None if circuit_breaker is None else CircuitBreaker.of(circuit_breaker)
        self.rate_limit = None if rate_limit is None else RateLimit.of(rate_limit)
        self.temperature = None if temperature is None else real(temperature, "temperature", least=0.0, most=2.0)
        self.top_p = None if top_p is None else real(top_p, "top_p", least=0.0, most=1.0)
        self.sampling: dict[str, Any] = {}  # further fields of its Requests, set where it runs as a stage of a pipeline
        # None is the longest answer of the model; one that is cut there goes on, so often for one message.
        self.max_tokens = None if max_tokens is None else check_integer(max_tokens, "max_tokens", least=1, most=10**7)
        self.continuations = CONTINUATIONS if max_tokens is None else 0
        self.elsewhere: Callable[[Any], Awaitable[str]] | None = None  # answers a turn in place of its model and tools
        self.min_tokens = check_integer(min_tokens, "min_tokens", least=1, most=10**7)
        if not isinstance(fit_budget, bool):
            raise ConfigError(f"fit_budget is True or False, not {fit_budget!r}", key="fit_budget")
        self.fit_budget = fit_budget  # takes an answer that its budget cut; otherwise that is BudgetExceeded
        self.thinking_tokens = (
            None if thinking_tokens is None else check_integer(thinking_tokens, "thinking_tokens", least=1, most=10**7)
        )
        self.output = None if output is None else AnswerType.from_value(output)
        self.output_retries = check_integer(output_retries, "output_retries", most=100)
        self.context = None if context is None else ContextPolicy.from_value(context)
        self.supervision = None if supervision is None else Supervision.of(supervision)
        self.timeouts = None if timeouts is None else Timeouts.of(timeouts)
        self.max_iterations = check_integer(max_iterations, "max_iterations", least=1, most=10**6)
        self.max_parallel_tools = check_integer(max_parallel_tools, "max_parallel_tools", least=1, most=10**4)
        self.description = description

    def _tools_of_settings(self) -> tuple[Tool, ...]:
        """Tools that other settings bring along; `Agent` adds those of its memory."""
        return ()

    @property
    def counts_tokens(self) -> bool:
        """Whether its rate limit counts tokens, so that each call has to be estimated."""
        return self.rate_limit is not None and self.rate_limit.tokens_per_minute is not None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that its tools work in, the first one first."""
        return tuple(dict.fromkeys(folder for tool in self.toolbox for folder in tool.folders))

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, model={self.model!r})"


def _model(value: Any, agent: str) -> str | LLMProvider:
    if isinstance(value, LLMProvider) and not isinstance(value.name, str):
        raise ConfigError(f"the name of a provider is text, not {value.name!r}", key="model")
    if isinstance(value, LLMProvider) or (isinstance(value, str) and value):
        return value
    raise ConfigError(
        f"agent {agent!r} has no model" if not value else f"{value!r} is not a model",
        hint="say model='provider/name', such as 'anthropic/claude-sonnet-4-5' or 'sim/echo'",
        key="model",
    )


def _list(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, LLMProvider)):
        return (value,)
    if value is not None and not isinstance(value, Iterable):
        raise ConfigError(f"fallback is a model or a list of models, not {value!r}", key="fallback")
    return tuple(value or ())


def _tools(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if is_source(value):
        return (value,)
    if isinstance(value, ToolRegistry):
        return value.parts()
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise ConfigError(f"tools is a list of tools, not {value!r}", hint="tools=[weather]", key="tools")
    return tuple(value)


def _system(value: Callable[..., Any]) -> Callable[..., Any]:
    """Check a system function; the result takes the session, also where the function itself takes no argument."""
    if not callable(value):
        raise ConfigError(f"system is text or a function that gives it, not {value!r}", key="system")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a builtin without a signature
        return value
    if _takes(signature, 1):
        return value
    if _takes(signature, 0):
        return lambda _session: value()
    raise ConfigError(
        f"the function system{signature} takes the agent's session, or nothing", hint="lambda session: …", key="system"
    )


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        return False
    return True


def _hooks(value: Any) -> AgentHooks:
    if not all(callable(getattr(value, name, None)) for name in HOOK_METHODS):
        raise ConfigError(
            f"hooks are an object with {' and '.join(HOOK_METHODS)}, not {value!r}",
            hint="hooks=Hooks([Hook('PreToolUse', check)])",
            key="hooks",
        )
    hooks: AgentHooks = value
    return hooks


def _permissions(value: Any, folders: tuple[str, ...]) -> Permissions:
    """Read the setting: Permissions, or a mapping of rules and a mode, for tools that work in these folders."""
    from lyra.tools.permissions.decision import Permissions
    from lyra.tools.permissions.settings import build_permissions

    if isinstance(value, Permissions):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"permissions are a Permissions or a mapping, not {value!r}",
            hint="permissions={'allow': ['Bash(git *)'], 'mode': 'accept-edits'}",
            key="permissions",
        )
    return build_permissions(value, folders)
