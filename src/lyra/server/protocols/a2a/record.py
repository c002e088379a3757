"""A2aRecord: what is kept of an A2A task: its agent, its messages, how it ended.

A record is plain data in the journal of the task's process. `STATES` maps its words to the protocol's. `task_message`
makes the Task that clients read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.sdk import from_json, messages
from lyra.errors import LyraError
from lyra.kernel.process.process import Exit
from lyra.server.http.problems import problem_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


CANCELED: Final = "canceled"  # also the reason with which a task's process is stopped
ANSWER: Final = "answer"  # the id of the artifact
_REFUSED: Final = "message_refused"  # the status of a turn whose message a hook refused

# The word of a record → the state of the protocol, and whether the task has ended.
STATES: Final[dict[str, tuple[str, bool]]] = {
    "submitted": ("TASK_STATE_SUBMITTED", False),
    "working": ("TASK_STATE_WORKING", False),
    "input_required": ("TASK_STATE_INPUT_REQUIRED", False),
    "completed": ("TASK_STATE_COMPLETED", True),
    "failed": ("TASK_STATE_FAILED", True),
    "canceled": ("TASK_STATE_CANCELED", True),
    "rejected": ("TASK_STATE_REJECTED", True),
}


class A2aRecord(msgspec.Struct):
    """`messages` are in the protocol's JSON, the oldest first: the client's, and the questions that it answered."""

    id: str
    agent: str
    context_id: str
    created_at: float
    messages: list[dict[str, Any]]
    state: str = "submitted"
    reason: str = ""  # why there is no answer
    code: str = ""  # the same as a word
    answer: str = ""
    is_data: bool = False  # the answer is JSON
    usage: dict[str, Any] = {}
    changed_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        return STATES[self.state][1]

    def has_message(self, message_id: str) -> bool:
        return any(message.get("messageId") == message_id for message in self.messages)

    def end(self, ended: Exit[Any], kernel: Kernel, now: float) -> None:
        """Take over how the process of the agent ended."""
        self.changed_at = now
        result = ended.result if isinstance(ended.result, dict) else {}
        if ended.reason == "normal":
            self.state, self.answer = "completed", str(result.get("text", ""))
            self.is_data, self.usage = bool(result.get("is_data")), dict(result.get("usage") or {})
            if result.get("status", "success") != "success":
                self.code, self.reason = str(result["status"]), "the answer was cut off at its longest"
        elif ended.error is None or ended.reason == CANCELED:
            self.state = "canceled"  # a task ends without an error only where it is ended, for whatever reason
            self.code, self.reason = ended.reason, "" if ended.reason == CANCELED else "the server stopped the task"
        else:
            problem = problem_of(ended.error, kernel)
            is_refused = isinstance(ended.error, LyraError) and ended.error.fields.get("status") == _REFUSED
            self.state = "rejected" if is_refused else "failed"
            self.code, self.reason = problem.code, problem.message

    def artifacts(self, text: str = "") -> list[Any]:
        """The answer as far as it is there; `text` is what has come of one that is being written."""
        if self.state == "completed":
            return [messages().Artifact(artifact_id=ANSWER, name=ANSWER, parts=answer_parts(self.answer, self.is_data))]
        if text:
            return [messages().Artifact(artifact_id=ANSWER, name=ANSWER, parts=answer_parts(text))]
        return []

    def history(self, length: int | None) -> list[Any]:
        """The last messages of the task; all of them where the client does not say how many."""
        rows = self.messages if length is None else self.messages[max(0, len(self.messages) - length) :]
        return [from_json(row, messages().Message()) for row in rows] if length != 0 else []


def answer_parts(text: str, is_data: bool = False) -> list[Any]:
    part_class = messages().Part
    if is_data:
        data = from_json(msgspec.json.decode(text), messages().Part().data)
        return [part_class(data=data, media_type="application/json")]
    return [part_class(text=text, media_type="text/plain")]


def agent_message(record: A2aRecord, message_id: str, text: str, **facts: str) -> Any:
    """Something that the agent's side says: a question, or why there is no answer."""
    module = messages()
    message = module.Message(
        message_id=message_id,
        context_id=record.context_id,
        task_id=record.id,
        role=module.ROLE_AGENT,
        parts=[module.Part(text=text)],
    )
    for name, fact in facts.items():
        message.metadata[name] = fact
    return message
