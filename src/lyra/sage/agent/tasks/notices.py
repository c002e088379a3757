"""TaskNotices: what a session's model is told of its sub-agents between its own calls, each thing once.

A notice says that a sub-agent is done, failed, asks a person, or goes on although the call that started it was cut off.
It has the program's own words and the caller's description of the work: the answer itself, which may hold text from
outside, is for TaskOutput. What was told is a fact of `TaskState`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from lyra.agents.session.shared import Notice
from lyra.sage.agent.tasks.runs import TaskRuns
from lyra.sage.agent.tasks.state import StoredRequest, StoredTask

_ENDS: Final = {
    "done": "is done; TaskOutput gives its answer",
    "waiting": "was stopped by a passing failure; TaskOutput says which, Task with resume goes on with it",
    "failed": "failed; TaskOutput says why",
    "stopped": "was stopped; Task with resume goes on with it",
}
_SEPARATOR: Final = "\n"  # in no id


class TaskNotices:
    """A NoticeSource for the process with this pid."""

    def __init__(self, pid: str, runs: TaskRuns, question_of: Callable[[StoredTask], str]) -> None:
        """`question_of` gives the id of a task's open question; empty where it asks nothing."""
        self._pid = pid
        self._runs = runs
        self._question_of = question_of

    def waiting(self) -> list[Notice]:
        tasks = [task for task in self._runs.state.tasks.values() if task.caller == self._pid and task.kind == "agent"]
        return [
            Notice(_SEPARATOR.join((task.id, request_id, word)), text)
            for task in tasks
            for request_id, request in task.requests.items()
            if not self._runs.is_awaited(request_id)
            for word, text in self._about(task, request)
            if word not in request.told
        ]

    def _about(self, task: StoredTask, request: StoredRequest) -> Iterator[tuple[str, str]]:
        who = f"The sub-agent {task.id} ({task.description!r})"
        if request.over:
            yield "end", f"{who} {_ENDS[request.status]}."
            return
        if not request.background:
            yield "on", f"{who} goes on in the background: the call that started it was cut off."
        question = self._question_of(task)
        if question:
            yield question, f"{who} waits for an answer of the user."

    def taken(self, keys: Iterable[str]) -> None:
        told = [key.split(_SEPARATOR, 2) for key in keys]
        new = [entry for entry in told if self._is_new(*entry)]
        if new:
            self._runs.kernel.fact(self._runs.state, self._pid, "task.told", {"told": new})

    def _is_new(self, task_id: str, request_id: str, word: str) -> bool:
        task = self._runs.state.tasks.get(task_id)
        request = task.requests.get(request_id) if task is not None else None
        return request is not None and word not in request.told
