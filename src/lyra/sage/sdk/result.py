"""ExecutionResult: how a run ended, and the whole trace of it.

`outcome` is one of OUTCOMES; `status` is the finer word of the `result` line. The trace is there whatever the outcome:
`events` as they came, `messages` of the turn, the tool calls and their results. Never raises by itself: a failed run is
a result, too, and `require()` raises its error.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.agents.session.events import AnyLine
from lyra.agents.session.execution import AgentExecution
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import AgentFailed, LyraError

OUTCOMES: Final[dict[str, str]] = {
    "success": "an answer",
    "failed": "an error ended the run",
    "interrupted": "the run was stopped",
    "max_steps_reached": "the model calls that were allowed are used up",
}
_WORDS: Final = {"success": "success", "interrupted": "interrupted", "max_turns": "max_steps_reached"}


class SageEvent(dict[str, Any]):
    """One event of a run, as on every surface: `event.type`, and its fields as attributes or keys."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an event of type {self.get('type')} has no {name}") from None


class SageNotice(SageEvent):
    """An event of type `notice`: words for the user that are no part of the answer."""

    @property
    def text(self) -> str:
        return str(self["text"])

    @property
    def level(self) -> str:
        """`info`, `warning`, or `status`: what a hook does at this moment."""
        return str(self["level"])

    @property
    def source(self) -> str:
        """`hook`, `task` (a sub-agent or command in the background), or `extensions`."""
        return str(self.get("source", "hook"))

    @property
    def task(self) -> dict[str, Any] | None:
        """The record of the task in the background, with its `id`, `state` and `text`."""
        return self.get("task")


def event_of(line: AnyLine) -> SageEvent:
    return SageNotice(line) if line["type"] == "notice" else SageEvent(line)


class ExecutionResult(msgspec.Struct, kw_only=True):
    status: str
    final_result: str
    session_id: str
    events: list[SageEvent]
    messages: tuple[Message, ...] = ()
    output: Any = None  # the answer in the type that was asked for
    cost_usd: float | None = None
    duration_ms: int = 0
    usage: dict[str, int] = {}
    steps: int = 0  # calls of the model
    error: LyraError | None = None
    execution: AgentExecution | None = None

    @property
    def outcome(self) -> str:
        return _WORDS.get(self.status, "failed")

    @property
    def is_success(self) -> bool:
        return self.outcome == "success"

    @property
    def is_failed(self) -> bool:
        return self.outcome not in ("success", "interrupted")

    @property
    def is_interrupted(self) -> bool:
        return self.outcome == "interrupted"

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [call for message in self.messages for call in message.tool_calls]

    @property
    def tool_results(self) -> list[ToolResult]:
        return [result for message in self.messages for result in message.tool_results]

    @property
    def error_steps(self) -> list[ToolResult]:
        """The calls that failed."""
        return [result for result in self.tool_results if result.is_error]

    @property
    def statistics(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "tool_calls": len(self.tool_calls),
            "tool_errors": len(self.error_steps),
            "cost_usd": self.cost_usd,
            "duration_ms": self.duration_ms,
            **self.usage,
        }

    @property
    def summary(self) -> str:
        """One line: the outcome, the steps, the tools, the cost."""
        cost = "unknown cost" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return f"{self.outcome}: {self.steps} steps, {len(self.tool_calls)} tool calls, {cost}, {self.duration_ms} ms"

    def require(self) -> ExecutionResult:
        """The result itself; raises its error unless it is a success."""
        if self.error is not None:
            raise self.error
        if not self.is_success:
            raise AgentFailed(f"the run ended without an answer: {self.status}", status=self.status)
        return self
