"""Going back in a session: undo, checkpoints, and what becomes of the conversation then.

Files are restored first: where another hand has changed one of them, that is refused and nothing else happens. The
conversation is moved by one order to the agent's process, and the fact that it was moved is in the same batch of the
journal, so a crash leaves both or neither. What the conversation loses is kept in the facts (`SessionFacts.moves`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from lyra.core.message import Message
from lyra.errors import ConfigError
from lyra.sage.session.snapshots import Checkpoint, Restored

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession

__all__ = ["Undone", "checkpoint", "move", "restore", "undo"]

_CHECKPOINTS = "checkpoints"  # the setting: name → the last turn before it


class Undone(NamedTuple):
    """The turns that were taken back, the files that were restored, and sentences about those that could not be."""

    turns: list[int]
    files: list[str]
    problems: list[str]


async def undo(session: LiveSession, turn: int | None, *, force: bool) -> Undone:
    standing = session.facts.standing
    if not standing:
        raise ConfigError("there is no turn to undo", key="turn")
    number = standing[-1].number if turn is None else session.facts.turn(turn).number
    restored = await asyncio.to_thread(session.snapshots.restore, number, force=force)
    return await _take_back(session, "undo", number, restored)


async def checkpoint(session: LiveSession, name: str) -> Checkpoint:
    marked = await asyncio.to_thread(session.snapshots.checkpoint, name)
    known = session.facts.settings.get(_CHECKPOINTS, {})
    session.keep(**{_CHECKPOINTS: {**known, name: session.facts.last_number}})
    return marked


async def restore(session: LiveSession, name: str, *, force: bool) -> Undone:
    restored = await asyncio.to_thread(session.snapshots.restore_checkpoint, name, force=force)
    last = int(session.facts.settings.get(_CHECKPOINTS, {}).get(name, session.facts.last_number))
    return await _take_back(session, "restore", last + 1, restored)


async def _take_back(session: LiveSession, reason: str, first: int, restored: Restored) -> Undone:
    """Take the turns from this number on out of the conversation."""
    undone = [turn.number for turn in session.facts.standing if turn.number >= first]
    if undone:
        before = session.facts.messages_before(undone[0], list(session.messages))
        await move(session, reason, before, undone)
    return Undone(undone, list(restored.paths), list(restored.problems))


async def move(session: LiveSession, reason: str, messages: list[Message], undone: list[int]) -> None:
    """Go on with another conversation; what it does not have of the old one is kept in the facts."""
    now = list(session.messages)
    common = min(len(now), len(messages))
    keep = next((index for index in range(common) if now[index] != messages[index]), common)
    data = {
        "reason": reason,
        "turn": session.facts.last_number,
        "keep": keep,
        "dropped": [message.to_data() for message in now[keep:]],
        "undone": undone,
    }
    session.fact("session.moved", data)  # in one batch with the order, which is sent before anything is awaited
    await session.process.revise(keep, messages[keep:])
    session.save()
