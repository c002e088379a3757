"""What an earlier run left to a session: a turn that was cut off, or the conversation of which this one is a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.agents.turn.unfinished import UnfinishedTurn, repaired
from lyra.errors import Corrupt, Tampered
from lyra.sage.agent.session_start import read_session
from lyra.sage.agent.tasks.sub_agents import TOOL_NAMES
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord, preview

if TYPE_CHECKING:
    from lyra.sage.agent.session_core import SessionCore


async def repair(session: SessionCore, unfinished: UnfinishedTurn) -> list[str]:
    """Keep what the last run had done of its turn; sentences about what is in doubt."""
    start = len(session.messages)
    doubts = [
        f"{call.name} {_short(call.arguments)}: it may or may not have taken effect"
        for call in unfinished.doubts
        if call.name not in TOOL_NAMES  # a sub-agent goes on, and its answer is told
    ]
    await session.tasks.worktrees.clean_up()
    await session.process.revise(start, [unfinished.question, *unfinished.messages])
    turn = session.facts.turns[-1] if session.facts.turns else None
    if turn is not None and turn.status == "running":
        session.fact("session.turn_ended", {"number": turn.number, "status": "interrupted"})
    return doubts


async def copy_conversation(session: SessionCore, earlier: SessionRecord, before_turn: int | None) -> None:
    """Begin with the conversation of another session, or the part of it before a turn."""
    try:
        messages, facts = read_session(session.root / earlier.id)
    except Corrupt as error:
        explain_damage(error, earlier, session.index)
        raise
    if before_turn is not None:
        messages = facts.messages_before(before_turn, messages)
    whole = repaired(messages, {}, "the session was copied before this call was done")
    await session.process.revise(0, whole)
    session.fact("session.set", {"forked_from": earlier.id})
    session.save(first_prompt=earlier.first_prompt, last_prompt=earlier.last_prompt)


def explain_damage(error: Corrupt, record: SessionRecord, index: SessionIndex) -> None:
    """Let the error of a store that cannot be read name its session, and ways to go on: without it, or with another."""
    error.message = f"the session {record.id} ({record.label}) cannot be read any more: {error.message}"
    error.args = (error.message, *error.args[1:])
    others = (other.id for other in index.list(record.folder, limit=3) if other.id != record.id and other.turns)
    other = next(others, "OTHER")
    adopted = f"{error.hint}; or " if isinstance(error, Tampered) and error.hint else ""
    error.hint = f"{adopted}remove it: sage sessions rm {record.id}; or go on with another one: sage -r {other}"


def _short(arguments: dict[str, Any]) -> str:
    return preview(" ".join(str(value) for value in arguments.values()), 80)
