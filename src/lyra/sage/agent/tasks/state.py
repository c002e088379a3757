"""TaskState: what a session's store remembers of sub-agents and background commands.

    began → asked → ended → told        a sub-agent, once for each message
    began → ended                       a command; without the second row it ended with its session

Facts of the kernel's journal, so they and the processes that they are about survive a crash together. Each row may come
twice (a program that is replayed repeats the last one) and changes nothing the second time. Never decides anything:
`task_list` does. `TaskRecord` is one of them as it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.agents.session.events import QuestionLine
from lyra.agents.session.shared import runtime_of

if TYPE_CHECKING:
    from lyra.agents.session.session import Metrics
    from lyra.kernel.kernel import Kernel


COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cost_micro_usd",
    "unpriced_calls",
    "calls",
    "tool_calls",
)


class StoredRequest(msgspec.Struct):
    """A message to a sub-agent. `status` is empty until it is over."""

    asked_at: float
    background: bool = False
    status: str = ""
    text: str = ""
    ended_at: float | None = None
    told: list[str] = []  # the notices about it that its caller has had; `end` is the outcome itself

    @property
    def over(self) -> bool:
        return bool(self.status)


class StoredTask(msgspec.Struct):
    id: str
    kind: str
    caller: str
    name: str
    description: str
    began_at: float
    requests: dict[str, StoredRequest] = {}  # of a sub-agent, oldest first: the last, and those not told yet
    usage: dict[str, int] = {}  # of all its turns so far, see COUNTED
    counted: dict[str, int] = {}  # the part of it that its caller's metrics have as a helper's
    worktree: dict[str, Any] | None = None
    number: int = 0  # of a command
    status: str = ""  # of a command
    text: str = ""  # how a command ended
    ended_at: float | None = None

    @property
    def last(self) -> StoredRequest | None:
        return next(reversed(self.requests.values()), None)

    def open_request(self) -> str:
        """Return the id of the message that it works on, or that waits for it; empty where there is none."""
        return next((request_id for request_id, request in self.requests.items() if not request.over), "")


class TaskState:
    """A State of the kernel: facts of the kinds `task.*`, folded."""

    NAME: ClassVar[str] = "tasks"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"task.began", "task.asked", "task.ended", "task.told", "task.worktree", "task.forgotten"}
    )

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: dict[str, StoredTask] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        if kind == "task.began":
            if data["id"] not in self.tasks:
                self.tasks[data["id"]] = StoredTask(caller=pid, began_at=time, **data)
            return
        if kind == "task.told":
            for task_id, request_id, word in data["told"]:
                self._on_told(task_id, request_id, word)
            return
        task = self.tasks.get(data["id"])
        if task is None:  # forgotten since
            return
        if kind == "task.asked":
            self._add_request(task, data["request"], time, background=bool(data["background"]))
        elif kind == "task.ended":
            self._on_end(task, time, data)
        elif kind == "task.worktree":
            task.worktree = data["worktree"]
        else:
            del self.tasks[task.id]

    def _add_request(self, task: StoredTask, request_id: str, time: float, *, background: bool) -> None:
        if request_id not in task.requests:
            for known_id in [known_id for known_id, known in task.requests.items() if "end" in known.told]:
                del task.requests[known_id]
            task.requests[request_id] = StoredRequest(time, background)

    def _on_end(self, task: StoredTask, time: float, data: dict[str, Any]) -> None:
        request = task.requests.get(data.get("request", ""))
        if request is None:
            if task.kind == "command" and not task.status:
                task.status, task.text, task.ended_at = data["status"], data["text"], time
            return
        if not request.over:
            request.status, request.text, request.ended_at = data["status"], data["text"], time
            task.usage = {name: int(data["usage"].get(name, 0)) for name in COUNTED}
            task.ended_at = time

    def _on_told(self, task_id: str, request_id: str, word: str) -> None:
        task = self.tasks.get(task_id)
        request = task.requests.get(request_id) if task is not None else None
        if task is not None and request is not None and word not in request.told:
            request.told.append(word)
            if word == "end" and not request.background:  # the caller waited, and counts it as a helper's
                task.counted = dict(task.usage)

    def dump(self) -> Any:
        return msgspec.to_builtins(list(self.tasks.values()))

    def load(self, data: Any) -> None:
        self.tasks = {task.id: task for task in msgspec.convert(data, list[StoredTask])}


def counts_of(metrics: Metrics) -> dict[str, int]:
    """Return the counts of an agent process itself, without its helpers'."""
    return {name: getattr(metrics, name) for name in COUNTED}


def usage_of(task: StoredTask, kernel: Kernel | None) -> dict[str, int]:
    """Return what a sub-agent has used so far."""
    stored = {name: task.usage.get(name, 0) for name in COUNTED}
    session = runtime_of(kernel).sessions.get(task.id) if kernel is not None else None
    if session is None or session.metrics.calls < stored["calls"]:  # it is not replayed yet
        return stored
    return counts_of(session.metrics)


def cost_usd(usage: Mapping[str, int]) -> float | None:
    """Return the cost in dollars, or None if a call had no known price."""
    return None if usage["unpriced_calls"] else usage["cost_micro_usd"] / 1_000_000


def usage_words(usage: Mapping[str, int]) -> str:
    calls, tokens, cost = usage["tool_calls"], usage["input_tokens"] + usage["output_tokens"], cost_usd(usage)
    money = ", ?" if cost is None else "" if not cost else f", ${cost:.2f}" if cost >= 0.01 else f", ${cost:.4f}"
    return f"{calls} tool{'' if calls == 1 else 's'}, {tokens} tokens{money}"


STATES: Final[dict[str, str]] = {
    "running": "it works",
    "waiting": "a passing failure, such as a rate limit, stopped it; it can be resumed where it is",
    "asks": "it waits for a person's answer",
    "done": "it has answered, or the command has ended well",
    "failed": "it gave no answer, or the command has failed",
    "stopped": "a person or its caller stopped it",
    "lost": "a command that ended with the session which had started it",
}


class TaskQuestion(msgspec.Struct, frozen=True):
    """An open question of a sub-agent; `id` is that of the Interrupt."""

    id: str
    kind: str
    question: str
    message: str = ""


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sub-agent or background command of a session, as it is shown. Plain data, made anew for each look. `id` is
    the pid of a sub-agent's process, or the name of a command. Tokens and money are those of all its turns.

    `text` is the last answer, the reason of a failure, or the end of a command's output."""

    id: str
    kind: str  # agent or command
    name: str  # the sub-agent's type; `Bash` for a command
    description: str
    state: str
    caller: str
    began_at: float
    ended_at: float | None = None
    background: bool = False
    tools: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0  # None: a call had no known price
    worktree: str = ""
    question: TaskQuestion | None = None
    text: str = ""

    @property
    def open(self) -> bool:
        """Whether more is to come of it without a further message."""
        return self.state in ("running", "asks")

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def question_line(self) -> QuestionLine | None:
        """Return its open question as the `interrupt` line of a turn; None where it asks nothing."""
        asked = self.question
        if asked is None:
            return None
        return {
            "type": "interrupt",
            "id": asked.id,
            "kind": asked.kind,
            "question": asked.question,
            "message": asked.message,
            "task": self.id,
        }


def answer_data(decision: str, text: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Return the answer to a question as the kernel takes it: a decision, words, or a call with other arguments."""
    answer: dict[str, Any] = {"decision": decision, "text": text}
    if decision in ("allow", "always", "deny", "never"):
        answer["approved"] = decision in ("allow", "always")
    if arguments is not None:
        answer["data"] = {"arguments": arguments}
    return answer
