"""Turn: one message to an agent on the way to its answer.

Every step of a turn (the system prompt, the model calls, the tool calls, a question to a person) takes a Turn and finds
in it the process that runs it, the session it belongs to and the caller who waits. It does nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.kernel.process.call_keys import upcoming

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.replies import Pending, Sink
    from lyra.agents.session.session import AgentSession
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.budgets.budget import Budget
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.context import Context


class Turn:
    """`pending` is the answer that a caller waits for; None for a message without a caller."""

    __slots__ = ("agent", "ctx", "ended_by", "pending", "process", "refusals", "runtime", "session", "status", "system")

    def __init__(self, ctx: Context, runtime: AgentRuntime, session: AgentSession, pending: Pending | None) -> None:
        self.ctx = ctx
        self.process: Process = ctx.own_process
        self.runtime = runtime
        self.session = session
        self.agent: AgentDeclaration = session.agent
        self.pending = pending
        self.status = "success"  # of the answer: "max_tokens" or "budget" where it was cut
        self.system = ""  # the system prompt, once it is made
        self.ended_by = ""  # why a hook ends the turn, once one does
        self.refusals = 0  # how often hooks had the model go on after an answer

    @property
    def sink(self) -> Sink | None:
        """The stream of events that the caller reads, if it does."""
        return self.pending.sink if self.pending is not None else None

    @property
    def scopes(self) -> tuple[Budget, ...]:
        """The budgets that the caller has opened around its question."""
        return self.pending.scopes if self.pending is not None else ()

    @property
    def has_hooks(self) -> bool:
        """Whether hooks may run next: the agent has some, or the journal of a replay has their outcome."""
        if self.session.hooks is not None:
            return True
        if self.process.replay is None:
            return False
        entry = upcoming(self.process)
        return entry is not None and entry.name.startswith("hook:")

    def hook_event(self, own: str, of_subagent: str) -> str:
        """The name of a moment: it differs between the agent of a session and a sub-agent."""
        return of_subagent if self.session.subagent_type else own
