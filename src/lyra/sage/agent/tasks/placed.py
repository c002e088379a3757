"""Sub-agents that a cluster runs: which ones it may, what its hosts are told, and their turns as this session has them.

A sub-agent in the background keeps its process in the session (the stand-in), with its requests, notices and figures;
where it is placed, each of its turns is one effect: the agent on the cluster is asked, under the key of the effect, and
answers once, whichever side is killed meanwhile. It has no more than it would have here: its model, the rights and the
permissions of its caller, and a budget that lies inside what the session has left. No person answers its
questions, so a call that needs an answer is denied. The session knows the cluster as a `Placer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.agents.declaration.agent import AgentDeclaration
from lyra.agents.session.events import AgentEvent, AnswerDone, AnswerFailed, ToolEnded, UsageTold
from lyra.agents.session.records import begin_turn, new_span
from lyra.core.budgets.budget import Budget, Reservation, Usage
from lyra.core.effect import Charged, Effect
from lyra.core.event import ModelCalled
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.kernel.journal.rows import error_from_row
from lyra.tools.permissions.decision import Permissions
from lyra.tools.permissions.rules import Rule

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession
    from lyra.agents.turn.turn import Turn
    from lyra.kernel.process.process import Process
    from lyra.sage.agent.tasks.sub_agents import TaskSpec

ANYWHERE: Final = frozenset({"WebFetch", "TodoWrite"})  # tools that need nothing of this machine
_LENT: Final = 4  # a sub-agent without a budget of its own gets this part of what is left of the session's


class Placer(Protocol):
    """A cluster, as a session uses it."""

    async def place(self, task_id: str, told: dict[str, Any]) -> str:
        """Begin a sub-agent, or find the one of this id; gives its address."""
        ...

    async def ask(
        self, address: str, content: Any, *, key: str, marked: bool, tell: Callable[[AgentEvent], object]
    ) -> dict[str, Any]:
        """Return an answer as it travels, the same for each question under a key; `tell` gets its events."""
        ...

    async def give_up(self, address: str, key: str) -> None: ...

    async def end(self, address: str) -> None: ...


def find_obstacle(spec: TaskSpec, tools: Sequence[Tool], caller: AgentDeclaration, session: AgentSession | None) -> str:
    """Return why a sub-agent with these tools cannot run on a cluster; empty where it can."""
    files = [tool.name for tool in tools if tool.folders]
    if files:
        return f"it works on files of this machine ({', '.join(files[:3])}{', …' if len(files) > 3 else ''})"
    own = [tool.name for tool in tools if tool.name not in ANYWHERE or not tool.builtin]
    if own or (spec.tools is None and caller.sources):
        return f"it has tools of this session ({', '.join(own[:3]) or 'of servers'})"
    if not spec.model:
        return "its model is no name that a host could look up"
    if session is not None and (session.hooks is not None or session.enclosing):
        return "hooks and limits of this session hold on this machine alone"
    return ""


def limits_for(spec: TaskSpec, process: Process, scopes: Sequence[Budget]) -> dict[str, Any]:
    """Return the limits of a placed sub-agent: its own, inside what its caller has left.

    Where that is limited and it has no limit of its own, it gets a part of it, so that others can spend beside it.
    """
    limits: dict[str, Any] = dict(Budget.of(spec.budget).to_data()["limits"])
    for dimension in ("usd", "input_tokens", "output_tokens", "llm_calls"):
        left = [scope.remaining(dimension) for scope in (process.budget, *scopes)]
        least = min((int(amount) for amount in left if amount is not None), default=None)
        if least is not None:
            own = limits.get(dimension)
            limits[dimension] = max(least // _LENT, 0) if own is None else min(int(own), least)
    return limits


def tell_host(
    spec: TaskSpec,
    tools: Sequence[Tool],
    caller: AgentDeclaration,
    permissions: Permissions | None,
    grant: Any,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a host has to know of a sub-agent."""
    names = [tool.name for tool in tools]
    rules = []
    if permissions is not None:
        kept = (*permissions.rules, *permissions.answers)
        rules = [[rule.text, rule.effect, rule.source] for rule in kept if any(map(rule.covers_tool, names))]
    return {
        "name": spec.type,
        "description": spec.description,
        "system": spec.system,
        "model": spec.model,
        "tools": names,
        "only": None if spec.tools is None else list(spec.tools),
        "rules": rules,
        "mode": spec.mode or ("default" if permissions is None else permissions.mode),
        "max_turns": spec.max_turns or caller.max_iterations,
        "max_tokens": caller.max_tokens,
        "temperature": caller.temperature,
        "grant": grant.to_data(),
        "limits": dict(limits),
    }


def make_placed_agent(told: Mapping[str, Any]) -> AgentDeclaration:
    """Return the agent of a sub-agent on the host that runs it."""
    from lyra.tools.builtin.ask_user import todo_tools
    from lyra.tools.builtin.web_fetch import follows, web_tools

    permissions = Permissions(
        [Rule(text, effect, source=source) for text, effect, source in told["rules"]],
        mode=told["mode"],
        attended=False,
        only=None if told["only"] is None else [Rule(text, "allow", source="agent") for text in told["only"]],
    )
    known = [tool.mark_builtin() for tool in (*web_tools(follow=follows(permissions)), *todo_tools())]
    return AgentDeclaration(
        f"sage.{told['name']}",
        model=told["model"],
        system=told["system"],
        tools=[tool for tool in known if tool.name in told["tools"]],
        permissions=permissions,
        max_iterations=told["max_turns"],
        max_tokens=told["max_tokens"],
        temperature=told["temperature"],
        description=told["description"],
    )


class PlacedTurns:
    """The turns of one placed sub-agent, made in its stand-in."""

    def __init__(self, placer: Placer | None, spec: TaskSpec) -> None:
        self._placer = placer
        self._spec = spec

    async def answer(self, turn: Turn) -> str:
        """Have the agent on the cluster answer the last message; gives its text."""
        placer, process = self._placer, turn.process
        if placer is None:
            raise ConfigError(
                f"the sub-agent {self._spec.id} runs on a cluster, and this session has none",
                hint="sage.cluster names it",
                key="sage.cluster",
            )
        before, scopes = process.spent, () if turn.pending is None else turn.pending.scopes
        most = Usage.of({name: max(limit - before[name], 0) for name, limit in self._spec.limits.items()})
        began_s = process.core.clock.monotonic()

        async def ask(content: Any, *, idempotency_key: str) -> Charged[dict[str, Any]]:
            reservations: list[tuple[Budget, Reservation]] = []
            spent = Usage()
            try:
                for scope in scopes:  # those before a refusal are settled, too
                    reservations.append((scope, scope.reserve(most)))  # noqa: PERF401
                told = await self._ask(turn, placer, content, idempotency_key)
                spent = _usage_since(told, before)
                if told.get("error") is not None:
                    error = error_from_row(told["error"])
                    vars(error)["usage"] = spent
                    raise error
                text = bytes(told["text"]).decode()
                value = {"text": text, "marked": "mark" in told, "usage": spent.to_data()}
                return Charged({**value, "unpriced": told.get("cost_usd", 0) is None}, spent)
            except asyncio.CancelledError:  # stopped while it worked: what it had spent by then is not known
                spent = Usage() if process.core.stopping else most  # a kernel that stops asks again under the key
                raise
            finally:
                for scope, reservation in reservations:
                    scope.settle(reservation, spent)

        effect: Any = Effect(ask, name="sage:placed", idempotent=True)
        told = await turn.ctx.do(effect, turn.session.messages[-1].content, cost=most.to_data() or None)
        self._count(turn, told, began_s)
        return str(told["text"])

    async def _ask(self, turn: Turn, placer: Placer, content: Any, key: str) -> dict[str, Any]:
        sink, process = turn.sink, turn.process

        def tell(event: AgentEvent) -> None:
            if isinstance(event, ToolEnded):
                turn.session.metrics.tool_calls += 1
            if sink is not None and not isinstance(event, (AnswerDone, AnswerFailed)):
                sink.put(event)

        try:
            marked = process.pid in process.core.taint.state.pids
            return await placer.ask(self._spec.placed, content, key=key, marked=marked, tell=tell)
        except asyncio.CancelledError:
            if not process.core.stopping:
                process.core.tasks.start(placer.give_up(self._spec.placed, key), name=f"lyra-give-up {process.pid}")
            raise

    def _count(self, turn: Turn, told: Mapping[str, Any], began_s: float) -> None:
        process, metrics = turn.process, turn.session.metrics
        core, usage = process.core, Usage.of(told["usage"])
        if told["marked"]:
            core.taint.mark(process.pid, f"an answer of {self._spec.placed}")
        metrics.calls += usage["llm_calls"]
        metrics.input_tokens += usage["input_tokens"]
        metrics.output_tokens += usage["output_tokens"]
        metrics.cost_micro_usd += int(usage.usd)
        metrics.unpriced_calls += told["unpriced"]
        cost_usd = None if told["unpriced"] else int(usage.usd) / 1_000_000
        if turn.sink is not None:
            turn.sink.put(UsageTold(usage["input_tokens"], usage["output_tokens"], 0, cost_usd))
        if process.replay is None and "model.called" in core.agents_heard:
            if not turn.session.turn_span:
                begin_turn(turn.runtime.kernel, turn.session)
            record = ModelCalled(
                trace_id=turn.session.trace_id,
                span_id=new_span(turn.runtime.kernel),
                agent=turn.agent.name,
                model=self._spec.model,
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                cost_usd=cost_usd,
                latency_ms=int((core.clock.monotonic() - began_s) * 1000),
                status="ok",
                retries=0,
                parent_span=turn.session.turn_span,
            )
            core.publish(process.pid, "model.called", record.to_data())


def _usage_since(told: Mapping[str, Any], before: Usage) -> Usage:
    """Return what an answer has cost: what the agent has spent in all, without what was settled here before."""
    all_spent = Usage.of(told.get("spent") or {})
    names = ("usd", "input_tokens", "output_tokens", "llm_calls", "tool_calls")
    return Usage.of({name: max(int(all_spent[name]) - int(before[name]), 0) for name in names})
