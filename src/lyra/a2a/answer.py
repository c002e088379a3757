"""RemoteAnswer: what came of a message to a remote agent so far, as plain data that a journal can hold.

A remote agent answers with a message, or with a task that is at work, asks for something, or has ended. `STATES` has
the words. Everything in an answer but the ids and the state is text from outside.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from lyra.a2a.content import output_of_parts
from lyra.a2a.sdk import messages
from lyra.agents.declaration.output import Image
from lyra.core.budgets.money import Money
from lyra.core.secrets.visible import without_invisible

# The state of the protocol → the word here.
STATES: Final[dict[str, str]] = {
    "TASK_STATE_UNSPECIFIED": "working",
    "TASK_STATE_SUBMITTED": "working",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_INPUT_REQUIRED": "asks",
    "TASK_STATE_AUTH_REQUIRED": "asks",
}
ENDED: Final = frozenset({"completed", "failed", "canceled", "rejected"})
_SENTENCE_CHARS_MAX: Final = 4_000
_ID_CHARS_MAX: Final = 512
_COST_USD_MAX: Final = 1e6  # a larger number is no cost


class RemoteAnswer(msgspec.Struct, frozen=True):
    """`output` is what was answered, `words` a question or why there is no answer."""

    state: str
    task_id: str = ""
    context_id: str = ""
    output: Any = ""
    words: str = ""


def answer_of_message(message: Any) -> RemoteAnswer:
    """The answer of an agent that made no task of it."""
    return RemoteAnswer("completed", "", _id(message.context_id), _plain(message.parts))


def answer_of_task(task: Any) -> RemoteAnswer:
    """The answer as far as a task has come."""
    state = STATES[messages().TaskState.Name(task.status.state)]
    words = _sentence(task.status.message) if task.status.HasField("message") else ""
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    if state == "completed" and not parts and task.status.HasField("message"):
        parts = list(task.status.message.parts)
    output = _plain(parts) if state == "completed" else ""
    return RemoteAnswer(state, _id(task.id), _id(task.context_id), output, words)


def told_cost(task: Any) -> Money:
    """Return what the other side says that the task cost, in its metadata (`usage.cost_usd`); nothing where it says
    none."""
    from lyra.a2a.sdk import to_json

    usage = to_json(task).get("metadata", {}).get("usage")
    cost_usd = usage.get("cost_usd") if isinstance(usage, dict) else None
    if (
        isinstance(cost_usd, bool)
        or not isinstance(cost_usd, (int, float))
        or not math.isfinite(cost_usd)
        or not 0 < cost_usd < _COST_USD_MAX
    ):
        return Money(0)
    return Money(round(cost_usd * 1_000_000))


def _plain(parts: Any) -> Any:
    output = output_of_parts(parts)
    if isinstance(output, str):
        return output
    return [part.to_data() if isinstance(part, Image) else {"type": "text", "text": part} for part in output]


def _sentence(message: Any) -> str:
    output = output_of_parts(message.parts)
    text = output if isinstance(output, str) else "\n".join(part for part in output if isinstance(part, str))
    return text if len(text) <= _SENTENCE_CHARS_MAX else f"{text[:_SENTENCE_CHARS_MAX]}…"


def _id(text: str) -> str:
    return without_invisible(text[:_ID_CHARS_MAX])
