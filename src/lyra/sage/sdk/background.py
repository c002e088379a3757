"""Background: what happens in an SDK's session beside the run: its notices, and questions of its background tasks.

Notices wait for the events of a run, and a callback is told of them at once. A task that asks is answered by the
permission callback, also while no run is under way; without one nothing asks, because the session is not attended.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from lyra.agents.session.events import AnyLine, NoticeLine, QuestionLine
from lyra.agents.session.model_call import AgentExecution
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import AgentFailed, LyraError
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.session_notices import SessionNotices

# ---------------------------------------------------------------- result

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
    """How a run ended, and the whole trace of it."""

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
        cost = "?" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return f"{self.outcome}: {self.steps} steps, {len(self.tool_calls)} tool calls, {cost}, {self.duration_ms} ms"

    def require(self) -> ExecutionResult:
        """Return the result itself; raises its error unless it is a success."""
        if self.error is not None:
            raise self.error
        if not self.is_success:
            raise AgentFailed(f"the run ended without an answer: {self.status}", status=self.status)
        return self


NoticeCallback = Callable[[SageNotice], object]
_log: Final = logging.getLogger("lyra.sage")


class Background:
    """For a session from when it is opened to its end."""

    def __init__(self, live: LiveSession, ask: PermissionCallback | None, notice: NoticeCallback | None) -> None:
        self._live = live
        self._ask = ask
        self._tell = notice
        self._asking: set[str] = set()  # ids of tasks whose question the callback has
        self._notices = SessionNotices(live, self._on_notice)
        self._notices.look()
        self._answer_tasks()

    def take(self) -> list[SageNotice]:
        """Return the notices since the last call."""
        return [SageNotice(notice) for notice in self._notices.take()]

    def look(self) -> None:
        """Look whether files of extensions have changed."""
        self._notices.look()

    def tell(self, notice: SageNotice) -> None:
        """Tell the callback; what it raises does not end the run."""
        if self._tell is None:
            return
        try:
            self._tell(notice)
        except Exception:  # noqa: BLE001 - of the caller's function
            _log.exception("the notice callback failed")

    def _on_notice(self, notice: NoticeLine) -> None:
        self.tell(SageNotice(notice))
        if notice.get("source") == "task":
            self._answer_tasks()

    def _answer_tasks(self) -> None:
        if self._ask is None or not self._live.options.attended:
            return
        for task_id in self._notices.asking():
            if task_id not in self._asking:
                self._asking.add(task_id)
                self._live.kernel.tasks.start(self._answer(task_id, self._ask), name="lyra-sdk-question")

    async def _answer(self, task_id: str, ask: PermissionCallback) -> None:
        try:
            while (line := self._notices.question_of(task_id)) is not None:
                await answer_question(self._live, line, ask)
        except LyraError:  # the task is over, or an answer does not fit: `session.tasks.answer` can still answer it
            _log.warning("the question of the task %s was not answered", task_id, exc_info=True)
        finally:
            self._asking.discard(task_id)


# ---------------------------------------------------------------- questions

_DECISIONS: Final = ("allow", "always", "deny", "never")


class PermissionRequest(msgspec.Struct, frozen=True):
    """A question of the agent. `tool` is empty for one in words, and for a call of a task in the background, which
    `question` and `message` describe. `always` is the rule that `always` would add; `task` the sub-agent that asks."""

    id: str
    kind: str
    question: str
    message: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}
    diff: str = ""
    rule: str | None = None
    always: str | None = None
    task: str = ""


class PermissionAnswer(msgspec.Struct, frozen=True):
    """`arguments` replace those of the call; rules that deny hold for them, too."""

    decision: str = "deny"
    text: str = ""
    arguments: dict[str, Any] | None = None


PermissionCallback = Callable[
    [PermissionRequest], bool | str | PermissionAnswer | Awaitable[bool | str | PermissionAnswer]
]


def refuse(request: PermissionRequest) -> PermissionAnswer:
    """Return the answers of a run that asks nothing, in a session that could."""
    is_call = request.tool or request.kind != "clarification"
    return PermissionAnswer("deny" if is_call else "", "this run asks no one; decide by yourself")


async def answer_question(session: LiveSession, line: QuestionLine, ask: PermissionCallback) -> None:
    """Put the question of an `interrupt` line to the function, and its answer to the session."""
    known: dict[str, Any] = {name: value for name, value in line.items() if name in PermissionRequest.__struct_fields__}
    request = PermissionRequest(**known)
    try:
        given = ask(request)
        value = await given if inspect.isawaitable(given) else given
    except Exception:  # noqa: BLE001 - a callback that fails denies
        _log.exception("the permission callback failed; the answer is no")
        value = False
    answer = _answer_of(value, is_call=bool(request.tool) or request.kind == "confirmation")
    await session.answer(request.id, answer.decision, text=answer.text, arguments=answer.arguments)


def _answer_of(value: Any, *, is_call: bool) -> PermissionAnswer:
    if isinstance(value, PermissionAnswer):
        return value
    if value is True:
        return PermissionAnswer("allow")
    if isinstance(value, str):
        if value in _DECISIONS:
            return PermissionAnswer(value)
        return PermissionAnswer("deny", value) if is_call else PermissionAnswer("", value)
    return PermissionAnswer("deny")
