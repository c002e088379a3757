"""TaskRecord: one sub-agent or background command of a session, as it is shown. Plain data, made anew for each look.

What a session remembers of them is `state`; `task_list` makes records of it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.agents.session.events import QuestionLine

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
    """`id` is the pid of a sub-agent's process, or the name of a command. Tokens and money are those of all its turns.

    `text` is the last answer, the reason of a failure, or the end of a command's output.
    """

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
