"""The open questions of a session: one for each token that asked, and those about the whole session.

Pure functions, used by `moves`. The envelope shows one question: the oldest open one or, when none is open, the last
that ended, with its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyra.core.envelope import OpenQuestion
from lyra.kernel.pipelines.session import Question, Session, Token


def ask(
    session: Session,
    interrupt: dict[str, Any],
    *,
    token: int = 0,
    stage: str = "",
    own: bool = False,
    interrupt_id: str = "",
    now: float = 0.0,
) -> None:
    """Add an open question; without a token the whole session waits for it."""
    session.asks += 1
    kind = str(interrupt.get("kind") or "")
    question = Question(session.asks, token, stage, kind, interrupt, interrupt_id, own, now)
    session.waiting = [*session.waiting, question]
    show(session)


def meant(session: Session, interrupt: Mapping[str, Any], number: int | None) -> Question | None:
    """The question of a row, by its number; a row of an older version has none, and means its id, else the last."""
    if number is not None:
        return session.question(number)
    known = [question for question in session.waiting if question.id and question.id == interrupt.get("id")]
    candidates = known or session.waiting
    return candidates[-1] if candidates else None


def take_back(session: Session, token: Token) -> None:
    """Remove the questions of a token that no longer waits."""
    if token.state == "waiting":
        session.waiting = [question for question in session.waiting if question.token != token.id]
        show(session)


def show(session: Session) -> None:
    """Show the oldest open question in the envelope."""
    session.envelope.interrupt_pending = bool(session.waiting)
    if session.waiting:
        session.envelope.interrupt = OpenQuestion(session.waiting[0].interrupt)
