"""Going back in a session: undo, checkpoints, and what becomes of the conversation then.

Files are restored first: where another hand has changed one of them, that is refused and nothing else happens. The
conversation is moved by one order to the agent's process, and the fact that it was moved is in the same batch of the
journal, so a crash leaves both or neither. What the conversation loses is kept in the facts (`SessionFacts.moves`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from lyra.core.message import Message
from lyra.errors import ConfigError
from lyra.sage.session.snapshots import Checkpoint, Restored

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession


_CHECKPOINTS = "checkpoints"  # the setting: name → the position in the conversation


class Undone(NamedTuple):
    """The turns that were taken back, the files that were restored, and sentences about those that could not be."""

    turns: list[int]
    files: list[str]
    problems: list[str]


async def undo(session: LiveSession, turn: int | None, *, force: bool) -> Undone:
    facts = session.facts
    if not facts.standing:
        raise ConfigError("there is no turn to undo", key="turn")
    number = facts.standing[-1].number if turn is None else facts.turn(turn).number
    undone = [done.number for done in facts.standing if done.number >= number]
    if not undone:
        raise ConfigError(f"turn {number} is undone already", hint="/restore brings it back", key="turn")
    shown, here = _names_of_files(session), facts.position(len(session.messages))
    before = facts.messages_before(undone[0], list(session.messages))
    restored = await asyncio.to_thread(session.snapshots.restore, number, force=force)
    if restored.redo:
        _mark(session, restored.redo, here)
    await move(session, "undo", before, undone=undone)
    return Undone(undone, [path for path in restored.paths if path in shown], _problems(session, restored, undone))


async def checkpoint(session: LiveSession, name: str) -> Checkpoint:
    marked = await asyncio.to_thread(session.snapshots.checkpoint, name)
    _mark(session, name, session.facts.position(len(session.messages)))
    return marked


def _mark(session: LiveSession, name: str, position: dict[str, Any]) -> None:
    session.keep(**{_CHECKPOINTS: {**session.facts.settings.get(_CHECKPOINTS, {}), name: position}})


async def restore(session: LiveSession, name: str, *, force: bool) -> Undone:
    """Go to a checkpoint, forwards or back: an undo leaves one behind, so that it can be undone."""
    facts, shown = session.facts, _names_of_files(session)
    here = facts.position(len(session.messages))
    restored = await asyncio.to_thread(session.snapshots.restore_checkpoint, name, force=force)
    if restored.redo:
        _mark(session, restored.redo, here)
    target = facts.settings.get(_CHECKPOINTS, {}).get(name)
    undone: list[int] = []
    if target is not None:
        standing, wanted = set(here["turns"]), set(target["turns"])
        undone = sorted(standing - wanted)
        messages = facts.messages_at(target, list(session.messages))
        await move(session, "restore", messages, undone=undone, redone=sorted(wanted - standing))
    return Undone(undone, [path for path in restored.paths if path in shown], _problems(session, restored, undone))


def _names_of_files(session: LiveSession) -> set[str]:
    """The paths of files that the agent has changed; folders alone, such as those of a sandbox, are not shown."""
    return {change.path for change in session.changes() if change.is_of_a_file}


def _problems(session: LiveSession, restored: Restored, undone: list[int]) -> list[str]:
    """Sentences about what was not brought back. What a command in the background writes is not known to be the
    agent's, so it is not undone."""
    told = [*restored.problems, *session.snapshots.notes()]
    began = min((session.facts.turn(number).began_at for number in undone), default=None)
    if began is None:
        return told
    commands = [task for task in session.tasks.list() if task.kind == "command" and (task.began_at or 0.0) >= began]
    return [*told, *(f"what the background command {task.id} has written is not undone" for task in commands)]


async def move(
    session: LiveSession,
    reason: str,
    messages: list[Message],
    *,
    undone: list[int] | None = None,
    redone: list[int] | None = None,
) -> None:
    """Go on with another conversation; what it does not have of the old one is kept in the facts."""
    now = list(session.messages)
    common = min(len(now), len(messages))
    keep = next((index for index in range(common) if now[index] != messages[index]), common)
    data = {
        "reason": reason,
        "turn": session.facts.last_number,
        "keep": keep,
        "dropped": [message.to_data() for message in now[keep:]],
        "undone": undone or [],
        "redone": redone or [],
    }
    session.fact("session.moved", data)  # in one batch with the order, which is sent before anything is awaited
    await session.process.revise(keep, messages[keep:])
    session.save()
