"""SessionNotices: sentences for the user of a session that are no part of an answer, for faces without a screen.

    {"type": "notice", "text": …, "level": "info", "source": "task", "task": {…}}

A sub-agent or command in the background is done, has failed or asks (`task`); files of extensions were read again, or
cannot be used (`extensions`). A message that the user sent in the middle of a turn has reached the model (`user`). The
provider is waited for outside of a turn, as by `/compact` (`retry`). Hooks tell theirs as lines of a turn, in the same
form. A notice waits until it is taken, and is told at once where `tell` is given. Decides and answers nothing; `asking`
names the tasks that have a question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lyra.agents.session.events import NoticeLine, QuestionLine
from lyra.core.secrets.visible import visible
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.tasks.state import TaskRecord

_WAITING_MAX: Final = 100  # the oldest are dropped
_DESCRIPTION_CHARS_MAX: Final = 120
_WARNINGS: Final = ("failed", "asks", "lost")  # states of a task


class SessionNotices:
    """The notices of one session, from now on; what its files are now is known already."""

    def __init__(
        self,
        session: LiveSession,
        tell: Callable[[NoticeLine], object] | None = None,
        *,
        known: Iterable[str] = (),
    ) -> None:
        """`known` are problems that the user was told of already."""
        self._session = session
        self._tell = tell
        self._waiting: deque[NoticeLine] = deque(maxlen=_WAITING_MAX)
        self._extensions = self._extensions_now()
        self._problems = set(known)
        session.on_notice.append(self._on_task)
        session.on_wait.append(lambda wait: self._add(wait.sentence, level="info", source="retry"))
        session.steering.listeners.append(lambda _key, text: self._add(text, level="info", source="user"))

    def take(self) -> list[NoticeLine]:
        """Return the notices since the last call."""
        notices = list(self._waiting)
        self._waiting.clear()
        return notices

    def _add(self, text: str, *, level: str, source: str, task: dict[str, Any] | None = None) -> None:
        notice: NoticeLine = {"type": "notice", "text": text, "level": level, "source": source}
        if task is not None:
            notice["task"] = task
        self._waiting.append(notice)
        if self._tell is not None:
            self._tell(notice)

    def _on_task(self, task: TaskRecord) -> None:
        description = visible(" ".join(task.description.split()))[:_DESCRIPTION_CHARS_MAX]
        level = "warning" if task.state in _WARNINGS else "info"
        words = f"{visible(task.name)} {description} ({task.id}): {task.state}"
        self._add(words, level=level, source="task", task=task.to_data())

    def asking(self) -> list[str]:
        """Return the ids of tasks that wait for an answer of the user, and whose caller does not wait for them:
        questions of those are lines of the turn."""
        tasks = self._session.tasks
        asking = [record.id for record in tasks.list() if record.question is not None]
        return [task_id for task_id in asking if not tasks.runs.is_awaited(tasks.task(task_id).open_request())]

    def question_of(self, task_id: str) -> QuestionLine | None:
        """Return the oldest open question of a task, as the `interrupt` line of a turn; None where it asks nothing."""
        task = next((record for record in self._session.tasks.list() if record.id == task_id), None)
        return None if task is None else task.question_line()

    def look(self) -> bool:
        """Look whether files of extensions have changed; True if what they give has."""
        equipment = self._session.equipment
        if equipment is None:
            return False
        problems = equipment.refresh()
        before, self._extensions = self._extensions, self._extensions_now()
        changes = _changes(before, self._extensions)
        if changes:
            self._add(f"extensions were read again: {changes}", level="info", source="extensions")
        for problem in problems:
            if problem not in self._problems:
                self._add(problem, level="warning", source="extensions")
        self._problems = set(problems)
        return bool(changes)

    def _extensions_now(self) -> dict[str, Any]:
        """Return what files give, by the name that a user knows it by."""
        equipment = self._session.equipment
        if equipment is None:
            return {}
        extensions = equipment.extensions
        commands = {f"/{name}": command for name, command in extensions.slash_commands().items()}
        agents = {f"sub-agent {name}": agent for name, agent in extensions.sub_agents().items()}
        return {**commands, **agents, **{f"plugin {plugin.id}": plugin.id for plugin in extensions.plugins()}}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = {
        "new": [name for name in after if name not in before],
        "changed": [name for name in after if name in before and after[name] != before[name]],
        "removed": [name for name in before if name not in after],
    }
    return "; ".join(f"{word}: {', '.join(map(visible, sorted(names)))}" for word, names in changed.items() if names)
