"""TaskRecords: makes the record of a task from what is remembered of it and what its process does now."""

from __future__ import annotations

from typing import Final

from lyra.sage.agent.tasks.commands import TaskCommands
from lyra.sage.agent.tasks.record import TaskQuestion, TaskRecord
from lyra.sage.agent.tasks.runs import TaskRuns
from lyra.sage.agent.tasks.state import StoredTask
from lyra.sage.agent.tasks.usage import cost_usd, usage_of

_OUTPUT_SHOWN: Final = 500  # bytes of a command's output in a list


class TaskRecords:
    def __init__(self, runs: TaskRuns, commands: TaskCommands) -> None:
        self._runs = runs
        self._commands = commands

    def of(self, task: StoredTask) -> TaskRecord:
        usage, request = usage_of(task, self._runs.kernel if self._runs.is_open else None), task.last
        question = self.question(task)
        command = task.kind == "command"
        text = request.text if request is not None else task.text
        if command:
            text = self._commands.output(task, _OUTPUT_SHOWN) or task.text
        return TaskRecord(
            id=task.id,
            kind=task.kind,
            name=task.name,
            description=task.description,
            state=self._commands.state_of(task) if command else self._state(task, question),
            caller=task.caller,
            began_at=task.began_at,
            ended_at=None if task.open_request() else task.ended_at,
            background=command or self._is_in_background(task),
            tools=usage["tool_calls"],
            tokens=usage["input_tokens"] + usage["output_tokens"],
            cost_usd=cost_usd(usage),
            worktree=str(task.worktree["folder"]) if task.worktree else "",
            question=question,
            text=text or self._why_it_stands(task),
        )

    def _is_in_background(self, task: StoredTask) -> bool:
        """Whether no caller waits for it: that was asked for, or the call that started it was cut off."""
        request_id, request = task.open_request(), task.last
        return request is not None and (
            request.background or (bool(request_id) and not self._runs.is_awaited(request_id))
        )

    def _why_it_stands(self, task: StoredTask) -> str:
        """Why a sub-agent cannot go on, of which there is no row."""
        process = self._runs.process_of(task)
        error = process.exit.error if process is not None and process.exit is not None else None
        return "" if error is None else str(error)

    def _state(self, task: StoredTask, question: TaskQuestion | None) -> str:
        if not task.open_request():
            return task.last.status if task.last is not None else "running"
        process = self._runs.process_of(task)
        if process is None:
            return "waiting"  # the session is not open
        if process.exit is not None:  # without a row of its end: its program does not fit its journal
            return "failed"
        return "running" if question is None else "asks"

    def question(self, task: StoredTask) -> TaskQuestion | None:
        """The oldest question that a sub-agent waits on."""
        if not self._runs.is_open or task.kind != "agent":
            return None
        asked = self._runs.kernel.interrupts._open_questions(task.id)
        return TaskQuestion(asked[0].id, asked[0].kind, asked[0].question, asked[0].message) if asked else None

    def question_id(self, task: StoredTask) -> str:
        question = self.question(task)
        return "" if question is None else question.id
