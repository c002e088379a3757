"""Questions of a task to a person: which one is open, how it is shown, and what a message of the client answers.

A question comes from the task's agent or from a helper below it. A confirmation is answered by a clear yes or no, an
effect in doubt by retry, skip or fail, and any other question by text or data. An answer that is not clear is refused,
and the question stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.a2a.content import data_of_parts, text_of_parts
from lyra.kernel.interrupts.interrupt import DECISIONS_IN_DOUBT
from lyra.server.protocols.a2a.errors import RpcError

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process


_YES: Final = frozenset({"yes", "y", "allow", "approve", "approved", "confirm", "ok", "okay", "true"})
_NO: Final = frozenset({"no", "n", "deny", "denied", "refuse", "reject", "rejected", "cancel", "false"})


def open_question(kernel: Kernel, process: Process) -> Interrupt | None:
    """The oldest open question of a process or of one below it."""
    asked = [kernel.interrupts._oldest(member.pid) for member in _tree(process)]
    pending = [question for question in asked if question is not None]
    return min(pending, key=lambda question: question.created_at) if pending else None


def _tree(process: Process) -> Iterator[Process]:
    if process.alive:
        yield process
    for child in list((process.children or {}).values()):
        yield from _tree(child)


def question_text(question: Interrupt) -> str:
    """The question as the client shows it to a person."""
    text = question.question or question.message or question.kind
    more = f"\n{question.message}" if question.question and question.message else ""
    hint = {"confirmation": "\n(yes or no)", "in_doubt": "\n(retry, skip or fail)"}.get(question.kind, "")
    return f"{text}{more}{hint}"


def answer_of(question: Interrupt, parts: Any) -> dict[str, Any]:
    """The answer to a question that the parts of a message give; RpcError where they give none."""
    text, data = text_of_parts(parts).strip(), data_of_parts(parts)
    if question.kind == "in_doubt":
        decision = str(data.get("decision") or text).strip().lower()
        if decision not in DECISIONS_IN_DOUBT:
            raise RpcError("invalid_params", f"answer one of {', '.join(DECISIONS_IN_DOUBT)}")
        return {"decision": decision}
    if question.kind == "confirmation":
        return {"text": text, "approved": _approved(text, data)}
    if not text and not data:
        raise RpcError("invalid_params", "the question is answered by text or data")
    return {"text": text, "data": data or None}


def _approved(text: str, data: dict[str, Any]) -> bool:
    given = data.get("approved")
    if isinstance(given, bool):
        return given
    word = text.lower().rstrip(".!")
    if word not in _YES | _NO:
        raise RpcError("invalid_params", 'answer yes or no, or send the data {"approved": true}')
    return word in _YES
