"""AgentExecution: the record of one run of an agent, from a message to its answer; AgentState: where the run is.

    initializing → ready → thinking ⇄ executing_tools ⇄ waiting_permission
                              ↓ (from any of them)
                   completed | cancelled | error

`MOVES` is the table. A run that has ended does not move again. The record costs next to nothing while the agent works:
steps and usage are computed when they are read.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import InvalidTransition, LyraError
from lyra.kernel.journal.error_rows import error_from_row

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession, Metrics


class AgentState(StrEnum):
    INITIALIZING = "initializing"
    READY = "ready"
    THINKING = "thinking"
    EXECUTING_TOOLS = "executing_tools"
    WAITING_PERMISSION = "waiting_permission"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERROR = "error"


_INITIALIZING, _READY = AgentState.INITIALIZING, AgentState.READY
_THINKING, _TOOLS, _WAITING = AgentState.THINKING, AgentState.EXECUTING_TOOLS, AgentState.WAITING_PERMISSION
_ENDS: Final = frozenset({AgentState.COMPLETED, AgentState.CANCELLED, AgentState.ERROR})

MOVES: Final[dict[AgentState, frozenset[AgentState]]] = {
    _INITIALIZING: frozenset({_READY}) | _ENDS - {AgentState.COMPLETED},
    _READY: frozenset({_THINKING}) | _ENDS - {AgentState.COMPLETED},
    _THINKING: frozenset({_TOOLS}) | _ENDS,
    _TOOLS: frozenset({_THINKING, _WAITING}) | _ENDS - {AgentState.COMPLETED},
    _WAITING: frozenset({_TOOLS}) | _ENDS - {AgentState.COMPLETED},
    AgentState.COMPLETED: frozenset(),
    AgentState.CANCELLED: frozenset(),
    AgentState.ERROR: frozenset(),
}


class ExecutionStep(msgspec.Struct, frozen=True):
    """One answer of the model, and the results of the tools it called."""

    number: int
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()

    @property
    def failed(self) -> bool:
        return any(result.is_error for result in self.tool_results)

    def to_data(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "text": self.text,
            "tool_calls": [call.to_data() for call in self.tool_calls],
            "tool_results": [result.to_data() for result in self.tool_results],
        }


class AgentExecution:
    """The record of one run. `status` is `success`, or says why the answer was cut off or why there is none."""

    __slots__ = (
        "_after",
        "_kept",
        "_mark",
        "_session",
        "_status",
        "answer",
        "before",
        "ended_at",
        "error",
        "started_at",
        "state",
    )

    def __init__(self, session: AgentSession, mark: int, now: float, *, before: Metrics | None = None) -> None:
        self._session = session
        self._mark = mark  # the index of its first message
        self._kept: list[Message] | None = None  # the messages of a run that has ended
        # What the session had counted when the run began.
        self.before: Metrics = (session.metrics if before is None else before).copy()
        self._after: Metrics | None = None
        self._status = "success"  # of its answer
        self.state = _READY
        self.started_at = now
        self.ended_at: float | None = None
        self.answer: Any = None
        self.error: LyraError | None = None

    # ------------------------------------------------------------------ the loop's side

    def move(self, state: AgentState) -> None:
        if state not in MOVES[self.state]:
            raise InvalidTransition(f"an agent's run does not go from {self.state} to {state}", state=str(self.state))
        self.state = state

    def keep(self, messages: list[Message]) -> None:
        """Keep messages that the conversation is about to forget."""
        self._kept = messages

    def end(self, now: float, answer: Any, failure: BaseException | None, *, status: str = "success") -> None:
        """Close the record; `status` says whether the answer was cut off."""
        self._status = status
        self.ended_at = now
        if self._kept is None:
            self._kept = self._session.messages[self._mark :]
        self._after = self._session.metrics.copy()
        if failure is None:
            self.answer = answer
            self.move(AgentState.COMPLETED)
        elif isinstance(failure, (asyncio.CancelledError, GeneratorExit)):
            self.move(AgentState.CANCELLED)
        else:
            self.error = failure if isinstance(failure, LyraError) else None
            self.move(AgentState.ERROR)

    def restore(self, messages: list[Message], outcome: dict[str, Any]) -> None:
        """Take over how a run ended from its row in the journal."""
        self._after, self._kept = self._session.metrics.copy(), messages
        self.started_at, self.ended_at = outcome.get("ran") or [self._after.last_active_at] * 2
        self._status = str(outcome.get("status", "success"))
        if "error" not in outcome:
            self.answer, self.state = messages[-1].text, AgentState.COMPLETED
            return
        if outcome["error"].get("type") == asyncio.CancelledError.__name__:
            self.state = AgentState.CANCELLED
            return
        error = error_from_row(outcome["error"])
        self.error, self.state = error if isinstance(error, LyraError) else None, AgentState.ERROR

    # ------------------------------------------------------------------ the reader's side

    def before_data(self) -> dict[str, Any]:
        """Return what its session had counted when the run began, for a checkpoint."""
        return msgspec.structs.asdict(self.before)

    @property
    def agent(self) -> str:
        return self._session.agent.name

    @property
    def place(self) -> str:
        """Return where in its conversation it began, the same when it is replayed."""
        return f"{self._mark}:{self.before.turns}"

    @property
    def running(self) -> bool:
        return self.state not in _ENDS

    @property
    def is_success(self) -> bool:
        return self.state is AgentState.COMPLETED

    @property
    def status(self) -> str:
        """`running`, `success`, `cancelled`, `max_tokens` or `budget` for an answer that was cut off, or the word for
        what went wrong."""
        if self.error is not None:
            return str(self.error.fields.get("status") or self.error.fields.get("kind") or self.error.code)
        words = {AgentState.COMPLETED: self._status, AgentState.CANCELLED: "cancelled", AgentState.ERROR: "crashed"}
        return words.get(self.state, "running")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of this run, the question first."""
        return tuple(self._kept if self._kept is not None else self._session.messages[self._mark :])

    @property
    def steps(self) -> tuple[ExecutionStep, ...]:
        steps: list[ExecutionStep] = []
        for message in self.messages:
            if message.role == "assistant":
                steps.append(ExecutionStep(len(steps) + 1, message.text, message.tool_calls))
            elif message.role == "tool" and steps:
                steps[-1] = msgspec.structs.replace(steps[-1], tool_results=message.tool_results)
        return tuple(steps)

    @property
    def usage(self) -> dict[str, int]:
        """Tokens, micro-dollars and calls of this run."""
        after = self._after if self._after is not None else self._session.metrics
        return {name: getattr(after, name) - getattr(self.before, name) for name in _COUNTED}

    @property
    def cost_usd(self) -> float | None:
        """None where a call had no known price."""
        usage = self.usage
        return None if usage["unpriced_calls"] else usage["cost_micro_usd"] / 1_000_000

    def to_data(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "state": str(self.state),
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "steps": [step.to_data() for step in self.steps],
            "usage": self.usage,
            "cost_usd": self.cost_usd,
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
        }

    def __repr__(self) -> str:
        return f"<AgentExecution {self.agent} {self.status}, {len(self.steps)} steps>"


_COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cost_micro_usd",
    "unpriced_calls",
    "calls",
    "estimated_calls",
    "tool_calls",
    "tool_errors",
    "retries",
)
