"""AgentCall: which agent a call asks, and whether that may happen early.

An agent may be asked early if the order of its calls cannot be observed: it does nothing but answer, has no memory, and
no limit that calls share.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, Final

from lyra.agents.agent import Agent
from lyra.agents.declaration.agent import AgentDeclaration
from lyra.agents.parallel.pending_values import OwnContainer, PendingValue, calls_of, resolve
from lyra.agents.parallel.safe_values import is_plain, is_same_value
from lyra.agents.sdk import run
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.session import AgentSession
from lyra.agents.session.shared import runtime_of
from lyra.core.budgets.early_calls import more_than_reading, why_ordered
from lyra.core.tool import Tool
from lyra.kernel.kernel import Kernel
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import Context
from lyra.models.provider import LLMProvider

RUN_OPTIONS: Final = frozenset({"timeout", "budget", "on", "clock", "seed"})
_OBJECTS: Final = frozenset({"on", "clock"})  # options that are objects; all others have to be plain values


class AgentCall:
    """An agent call: `process.send(…)` or `lyra.run(agent, …)`; its arguments may be pending values."""

    __slots__ = ("args", "keywords", "process", "work")

    def __init__(self, work: Any, process: AgentProcess | None, args: list[Any], keywords: dict[str, Any]) -> None:
        self.work = work
        self.process = process
        self.args = args
        self.keywords = keywords

    @classmethod
    def from_call(cls, work: Any, args: list[Any], keywords: dict[str, Any]) -> AgentCall | None:
        """Return the agent call that a function and its arguments make; None if they ask no agent, or that is not
        known."""
        if work is run:
            return cls(work, None, args, keywords)
        if type(work) is tuple:
            process, name = work
            return cls(None, process, args, keywords) if type(process) is AgentProcess and name == "send" else None
        process = getattr(work, "__self__", None) if type(work) is _METHOD else None
        is_send = type(process) is AgentProcess and work.__func__ is AgentProcess.send
        return cls(work, process, args, keywords) if is_send else None

    @property
    def agent(self) -> AgentDeclaration | None:
        if self.process is not None:
            session = session_of(self.process)
            return None if session is None else session.agent
        first = self.args[0] if self.args else None
        return first if type(first) is Agent else None

    @property
    def program(self) -> Process | None:
        """The process of the program that asks by its `ctx`."""
        place = self.keywords.get("on")
        return place.own_process if self.process is None and type(place) is Context else None

    @property
    def calls(self) -> tuple[Any, ...]:
        """The calls whose answers its arguments need."""
        return tuple(dict.fromkeys(call for value in (*self.args, *self.keywords.values()) for call in calls_of(value)))

    def is_same_conversation(self, other: AgentCall) -> bool:
        """Return whether both are messages of one conversation."""
        mine, theirs = self.process, other.process
        return mine is not None and theirs is not None and mine._process is theirs._process

    def is_same(self, other: AgentCall) -> bool:
        """Return whether another call, with real arguments, asks the same agent the same question."""
        if self.process is not other.process or len(self.args) != len(other.args):
            return False
        if list(self.keywords) != list(other.keywords):
            return False
        values = [*self.args, *self.keywords.values()]
        return all(
            is_same_value(resolve(value), other_value)
            for value, other_value in zip(values, [*other.args, *other.keywords.values()], strict=True)
        )

    def ask(self) -> Any:
        """Make the call: gives an awaitable."""
        args, keywords = (
            [resolve(value) for value in self.args],
            {name: resolve(value) for name, value in self.keywords.items()},
        )
        return self.process.send(*args, **keywords) if self.process is not None else run(*args, **keywords)

    def why_not(self, *, is_due: bool = False) -> str:
        """Return why the call has to wait for its turn; "" if it may be early, or is due and others may run beside
        it."""
        agent = self.agent
        why = self._why_not_with(is_due=is_due)
        if why:
            return why
        place = self.keywords.get("on")
        if self.process is not None:
            session = session_of(self.process)
            if session is None or agent is None:
                return f"agent process {self.process.pid} is not at work"
            if session.durable:
                return f"a journal keeps the conversation of agent process {self.process.pid} and cannot take it back"
        elif agent is None:
            return "whom it asks is no agent"
        elif type(place) is Kernel and place.journal is not None:
            return "the kernel that `on=` names keeps a journal, and could not forget the call"
        elif place is not None and type(place) not in (Kernel, Context):
            return "`on=` names no kernel and no program"
        return _does_more(agent) or self._why_models(agent)

    def _why_models(self, agent: AgentDeclaration) -> str:
        place = self.keywords.get("on")
        kernel = self.process.kernel if self.process is not None else self.program.kernel if self.program else place
        if kernel is not None:
            return runtime_of(kernel).models.why_in_turn(agent, timed="timeout" in self.keywords)
        # A kernel of its own, with models of its own unless the agent holds a provider.
        is_ordered = any(isinstance(model, LLMProvider) and model.answers_in_order("") for model in agent.models)
        return f"a model of agent {agent.name} answers by the order of its questions" if is_ordered else ""

    def _why_not_with(self, *, is_due: bool) -> str:
        for name, value in self.keywords.items():
            if self.process is None and name not in RUN_OPTIONS:
                return f"`{name}=` says how its kernel is made, which is then made in its turn"
            if not (is_due or name in _OBJECTS or _is_fit(value)):
                return f"`{name}=` is not plain"
        for value in self.args[self.process is None :]:
            if not is_due and not _is_fit(value):
                return "its question is neither text nor plain values"
        return ""


_METHOD: Final = MethodType


def _is_fit(value: Any) -> bool:
    if isinstance(value, OwnContainer):
        return all(map(_is_fit, value.values))
    return isinstance(value, PendingValue) or is_plain(value)


def session_of(process: Any) -> AgentSession | None:
    if process is None:
        return None
    return runtime_of(process.kernel).sessions.get(process.pid)


def _does_more(agent: AgentDeclaration) -> str:
    """Return what an agent does besides answering; "" if nothing."""
    why = why_ordered(
        f"agent {agent.name}", remembers=agent.memory is not None, has_breaker=agent.circuit_breaker is not None
    )
    if why:
        return why
    if agent.rate_limit is not None:
        return f"agent {agent.name} has a rate limit, which counts its calls in their order"
    if callable(agent.system):
        return f"the system prompt of agent {agent.name} is made anew for each call"
    if agent.sources:
        return f"the tools of agent {agent.name} may change"
    tool = next((tool for tool in agent.toolbox if not _reads(tool)), None)
    return "" if tool is None else f"tool {tool.name} of agent {agent.name} does more than read"


def _reads(tool: Tool) -> bool:
    """Return whether a tool only reads: all its needs are rights to read; one without needs has to be idempotent."""
    if tool.needs_of is not None:
        return False
    needs = [need.name for need in tool.needs]
    return more_than_reading(needs) is None if needs else tool.idempotent
