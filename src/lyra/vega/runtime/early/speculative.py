"""Early calls of one process that are under way: what the host remembers of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core.budgets.budget import NOTHING, Usage
from lyra.core.budgets.early_budget import NO_ROOM
from lyra.errors import LyraError
from lyra.vega.runtime.agents.deadlines import now_s

if TYPE_CHECKING:
    import asyncio

    from lyra.vega.machine.early_calls import EarlyCall
    from lyra.vega.runtime.agents.slot import AgentSlot
    from lyra.vega.runtime.early.budget import EarlyCallBudget


class SpeculativeCall:
    """One early call under way: its task, which never raises but gives how the call ended, and its scope."""

    __slots__ = (
        "before",
        "began_s",
        "call",
        "crashes",
        "cut_off",
        "depth",
        "ended_s",
        "error",
        "idle_s",
        "is_taken",
        "pids",
        "scope",
        "task",
        "value",
        "won_s",
    )

    def __init__(self, call: EarlyCall, scope: EarlyCallBudget, depth: int = 1) -> None:
        self.call = call
        self.scope = scope
        self.depth = depth  # of early functions inside one another
        self.task: asyncio.Task[None] | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_taken = False
        self.pids: list[str] = []  # of the agents' processes that answer it
        self.crashes: list[tuple[AgentSlot, LyraError]] = []  # of agents, for when its turn comes
        self.began_s = now_s()
        self.ended_s = self.began_s
        self.idle_s = 0.0  # while it waited for others that were made early, and line by line would not have been there
        self.won_s = 0.0  # by calls that were made early inside it
        self.before: Usage = NOTHING  # what of it was spent before the restart
        self.cut_off: Usage = NOTHING  # the part of `before` for attempts that a restart cut off

    @property
    def took_s(self) -> float:
        """How long it would have taken line by line."""
        return self.ended_s - self.began_s - self.idle_s + self.won_s

    @property
    def was_refused(self) -> bool:
        """Whether its budget had no room for it, in this execution of the run or in an earlier one."""
        return self.scope.was_refused or (isinstance(self.error, LyraError) and NO_ROOM in self.error.fields)


class SpeculativeCalls:
    """The early calls of one group in this execution of the process, in the order they were started."""

    __slots__ = ("calls", "failed", "has_gap", "promised", "spawned", "under_way")

    def __init__(self) -> None:
        self.calls: dict[str, SpeculativeCall] = {}
        self.promised: dict[str, AgentSlot] = {}  # agents that the program has not come to spawn
        self.spawned: list[AgentSlot] = []  # agents that the program has spawned, whose processes may not have begun
        self.failed: list[SpeculativeCall] = []  # in the order of time
        self.has_gap = False  # a call was not made early: what it will cost is not known to those behind it
        self.under_way: set[asyncio.Task[None]] = set()

    def scopes_before(self, early: SpeculativeCall) -> list[EarlyCallBudget]:
        scopes: list[EarlyCallBudget] = []
        for call in self.calls.values():
            if call is early:
                break
            scopes.append(call.scope)
        return scopes
