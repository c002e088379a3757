"""The open questions of a session: one for each token that asked, and those about the whole session.

Pure, like the moves that use it. The envelope has room for one question: it shows the oldest that is open, or, when
none is, the last that was over, with its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyra.core.open_question import OpenQuestion
from lyra.kernel.pipelines.session import Question, Session, Token

__all__ = ["ask", "meant", "show", "take_back"]


def ask(
    session: Session,
    interrupt: dict[str, Any],
    *,
    token: int = 0,
    stage: str = "",
    own: bool = False,
    interrupt_id: str = "",
) -> None:
    """One more question is open; without a token the whole session waits for it."""
    session.asks += 1
    kind = str(interrupt.get("kind") or "")
    question = Question(session.asks, token, stage, kind, interrupt, interrupt_id, own)
    session.waiting = [*session.waiting, question]
    show(session)


def meant(session: Session, interrupt: Mapping[str, Any], number: int | None) -> Question | None:
    """The question of a row, by its number; a row from before they had numbers means that of its id, else the last."""
    if number is not None:
        return session.question(number)
    known = [each for each in session.waiting if each.id and each.id == interrupt.get("id")]
    found = known or session.waiting
    return found[-1] if found else None


def take_back(session: Session, token: Token) -> None:
    """Nobody waits any more for what it asked."""
    if token.state == "waiting":
        session.waiting = [each for each in session.waiting if each.token != token.id]
        show(session)


def show(session: Session) -> None:
    """Say in the envelope what is open."""
    session.envelope.interrupt_pending = bool(session.waiting)
    if session.waiting:
        session.envelope.interrupt = OpenQuestion(session.waiting[0].interrupt)
