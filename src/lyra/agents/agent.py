"""Agent: the declaration together with what it is spawned as: its program, its handle, and itself as a tool.

    assistant = Agent("assistant", model="anthropic/claude-sonnet-4-5", system="Be brief.", budget="$0.50")

The settings and their checks are in `lyra.agents.declaration.agent`. This class only says how the kernel runs them: by
`lyra.agents.turn`, behind an AgentProcess; and how another agent uses it, as a helper. Sessions and the kernel are
loaded when an agent is first spawned, so a program that declares agents starts in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from lyra.agents.declaration.agent import AgentDeclaration, ToolValue
from lyra.core.hints import Out_co
from lyra.core.tool import Tool

if TYPE_CHECKING:
    from typing import Required, TypedDict, Unpack

    from lyra.agents.declaration.hooks import AgentHooks, ContextPolicy
    from lyra.agents.declaration.memory import Memory
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.replies import Reply
    from lyra.core.budgets.budget import Limits
    from lyra.core.policies.policy import CircuitBreaker, RateLimit, Retry, Supervision
    from lyra.kernel.process.process import Process
    from lyra.models.provider import LLMProvider
    from lyra.models.settings import Timeouts
    from lyra.tools.permissions.decision import Permissions
    from lyra.tools.source import ToolSource

    class Settings(TypedDict, total=False):
        """The settings of an Agent besides its name and its output, as type checkers read them."""

        model: Required[str | LLMProvider]
        system: str | Callable[..., Any]
        tools: Iterable[ToolValue] | ToolSource | None
        budget: Limits | None
        retry: Retry | int | Mapping[str, Any] | None
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None
        rate_limit: RateLimit | Mapping[str, Any] | None
        fallback: str | LLMProvider | Iterable[str | LLMProvider] | None
        temperature: float | None
        top_p: float | None
        max_tokens: int | None
        min_tokens: int
        fit_budget: bool
        thinking_tokens: int | None
        output_retries: int
        memory: Memory | Mapping[str, Any] | str | bool | None
        context: ContextPolicy | Mapping[str, Any] | str | None
        permissions: Permissions | Mapping[str, Any] | None
        hooks: AgentHooks | None
        supervision: Supervision | Mapping[str, Any] | str | None
        timeouts: Timeouts | Mapping[str, float | None] | None
        max_iterations: int
        max_parallel_tools: int
        description: str


T = TypeVar("T")


class Agent(AgentDeclaration, Generic[Out_co]):
    """An agent whose answers are each an `Out_co`: its `output` type, or a Reply where it has none.

    `system` is text, or a function (sync or async) that gives it for each message, of the session or of nothing."""

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Agent[Reply], name: str = ..., *, output: None = None, **settings: Unpack[Settings]
        ) -> None: ...
        @overload
        def __init__(self: Agent[T], name: str = ..., *, output: type[T], **settings: Unpack[Settings]) -> None: ...
        @overload
        def __init__(self: Agent[Any], name: str = ..., *, output: Any, **settings: Unpack[Settings]) -> None: ...
        def __init__(self, name: str = "agent", **settings: Any) -> None: ...

        @property
        def __lyra_handle__(self) -> Callable[[Any, Process], AgentProcess[Out_co]]: ...

    else:

        @property
        def __lyra_handle__(self):
            from lyra.agents.session.agent_process import AgentProcess

            output = self.output
            return AgentProcess if output is None else partial(AgentProcess, read_answer=output.read_result)

    @property
    def __lyra_program__(self) -> Callable[..., Any]:
        from lyra.agents.turn.program import agent_program

        return agent_program(self)

    def __lyra_tool__(self) -> Tool:
        """Return the tool by which another agent has this one do a piece of work."""
        from lyra.agents.helpers.task import delegate

        return delegate(self)

    def __lyra_stage__(
        self, name: str, *, prompts: Mapping[str, Any] | None = None, models: Mapping[str, Any] | None = None
    ) -> Callable[..., Any]:
        """Return the program by which a kernel runs this agent as a stage of pipelines, where it is registered as
        `name`."""
        from lyra.agents.helpers.stage import stage_program

        return stage_program(self, name, prompts=prompts, models=models)

    def _tools_of_settings(self) -> tuple[Tool, ...]:
        if self.memory is None or not self.memory.tools:
            return ()
        from lyra.agents.turn.memory import memory_tools

        return memory_tools(self.memory)
