"""Commands that move in the conversation: clear, compact, undo, rewind, checkpoint, restore, fork, resume, title and
export.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from lyra.config.files import write_private
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict, NoSuchSession
from lyra.sage.agent.live import LiveSession, Undone
from lyra.sage.commands.result import (
    Block,
    Choices,
    SlashArguments,
    SlashChoice,
    SlashResult,
    age,
    diff,
    dollars,
    lines,
    short,
    table,
    tokens,
)
from lyra.sage.session.record import SessionRecord, SessionTurn

_LISTED: Final = 20  # sessions that /resume lists
_OFFERED: Final = 500  # sessions to choose from
_FORMATS: Final = {"markdown": ".md", "json": ".json"}


async def clear(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    await session.clear()
    return SlashResult.from_blocks("a new conversation begins; /undo still goes back to earlier turns")


async def compact(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    if not session.messages:
        return SlashResult.from_blocks("there is nothing to compact yet")
    before, after = await session.compact(arguments.text)
    if after >= before:
        return SlashResult.from_blocks("there is one turn only, and the last turn stays as it is")
    return SlashResult.from_blocks(f"context: about {tokens(before)} tokens before, {tokens(after)} now")


async def title(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    if not arguments.text:
        return SlashResult.from_blocks(f"title: {session.title}" if session.title else "this session has no title yet")
    session.set_title(arguments.text)
    return SlashResult.from_blocks(f"title: {session.title}")


# ---------------------------------------------------------------- undo and checkpoints
async def undo(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    force = "force" in arguments.flags("force")
    words = arguments.at_most(1)
    turn = arguments.turn(words[0]) if words else None
    try:
        undone = await session.undo(turn, force=force)
    except Conflict as conflict:
        again = f"/undo {turn or ''}".rstrip() + " --force"
        return _refuse(conflict, f"{again} restores the files all the same")
    return SlashResult.from_blocks(_turns(undone.turns), *_files(session, undone))


async def redo(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    force = "force" in arguments.flags("force")
    arguments.none()
    try:
        redone = await session.redo(force=force)
    except Conflict as conflict:
        return _refuse(conflict, "/redo --force restores the files all the same")
    return SlashResult.from_blocks("as before the undo", *_files(session, redone))


async def rewind(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Go back to before an earlier prompt, which comes back to be changed and sent again."""
    words = [*arguments.at_most(1), *(f"--{flag}" for flag in arguments.flags("force"))]
    if any(not word.startswith("--") for word in words):
        undone = await undo(session, arguments)
        return (
            undone
            if undone.refused
            else msgspec.structs.replace(undone, draft=session.facts.turn(int(words[0])).prompt)
        )
    turns = session.turns[::-1]
    if not turns:
        return SlashResult.from_blocks("there is no earlier prompt yet")
    rows = [(turn.number, age(turn.began_at), ", ".join(turn.files[:3]), short(turn.prompt)) for turn in turns]
    offered = [_offer_turn(turn) for turn in turns]
    return SlashResult.from_blocks(
        table(("turn", "age", "files", "prompt"), rows),
        "/rewind TURN restores files and conversation to before it",
        choices=Choices("go back to before", offered),
    )


def _offer_turn(turn: SessionTurn) -> SlashChoice:
    changed = f"{len(turn.files)} file{'' if len(turn.files) == 1 else 's'} changed  " if turn.files else ""
    return SlashChoice(
        short(turn.prompt), f"{changed}turn {turn.number}  {age(turn.began_at)}", f"/rewind {turn.number}"
    )


async def checkpoint(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    name = arguments.text.strip("\"'")
    if not name:
        return _checkpoints(session)
    await session.checkpoint(name)
    return SlashResult.from_blocks(f"checkpoint {name!r}: /restore {name} comes back to here")


def _checkpoints(session: LiveSession) -> SlashResult:
    marks = session.snapshots.checkpoints()
    if not marks:
        return SlashResult.from_blocks("no checkpoint yet; /checkpoint NAME makes one")
    rows = [(mark.name, mark.turn, age(mark.time), "made by a restore" if mark.automatic else "") for mark in marks]
    return SlashResult.from_blocks(table(("checkpoint", "after turn", "age", ""), rows))


async def restore(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    force = "force" in arguments.flags("force")
    words = arguments.words
    if not words:
        return _checkpoints(session)
    name = " ".join(words)
    try:
        restored = await session.restore(name, force=force)
    except Conflict as conflict:
        return _refuse(conflict, f"/restore {name} --force restores the files all the same")
    undone = [_turns(restored.turns)] if restored.turns else []
    return SlashResult.from_blocks(f"back at {name!r}", *undone, *_files(session, restored))


def _refuse(conflict: Conflict, hint: str) -> SlashResult:
    """Return what would be overwritten, shown; nothing was done."""
    shown = str(conflict.fields.get("diff") or "")
    blocks = [lines([conflict.message, hint])]
    return SlashResult(blocks=[diff(shown), *blocks] if shown else blocks, refused=conflict.message)


def _turns(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f"turn {first} is undone" if first == last else f"turns {first} to {last} are undone"


def _files(session: LiveSession, undone: Undone) -> list[Block]:
    inside = f"{session.folder}/"
    names = [f"  {visible(path.removeprefix(inside))}" for path in undone.files]
    blocks = [lines(names, title="restored files")] if names else []
    return [*blocks, lines(undone.problems, title="not restored")] if undone.problems else blocks


# ---------------------------------------------------------------- other sessions
async def resume(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    wanted = arguments.text
    if not wanted:
        return _sessions(session, session.index.list(session.folder, _LISTED))
    try:
        record = session.index.get(wanted)
    except NoSuchSession:
        records = session.index.list(session.folder, _LISTED, wanted)
        if not records:
            raise
        return _sessions(session, records, found_by=wanted)
    if record.id == session.id:
        return SlashResult.from_blocks("this is that session")
    return SlashResult.from_blocks(f"session {record.id}: {record.label}", open_session=record.id)


def _sessions(session: LiveSession, records: list[SessionRecord], *, found_by: str = "") -> SlashResult:
    """Return these sessions to choose from; all of the folder where none were looked for."""
    others = [record for record in records if record.id != session.id]
    if not others:
        return SlashResult.from_blocks("there is no other session of this folder")
    rows = [
        (record.id, age(record.updated_at), record.turns, dollars(record.cost_usd), record.label) for record in others
    ]

    def search(words: str) -> list[SlashChoice]:
        return [_offer(record) for record in session.index.list(session.folder, _OFFERED, words)]

    known = others if found_by else session.index.list(session.folder, _OFFERED)
    offered = [_offer(record) for record in known if record.id != session.id]
    return SlashResult.from_blocks(
        table(("session", "age", "turns", "cost", "about"), rows),
        "/resume ID opens one; the beginning of an id is enough",
        choices=Choices("session", offered, search),
    )


def _offer(record: SessionRecord) -> SlashChoice:
    turns = f"{record.turns} turn{'' if record.turns == 1 else 's'}"
    about = f"{turns}  {dollars(record.cost_usd)}  {age(record.updated_at)}"
    return SlashChoice(record.label, about, f"/resume {record.id}")


async def fork(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    turn = session.facts.turn(arguments.turn(words[0])).number if words else None
    if not session.messages:
        raise ConfigError("there is nothing to copy yet", key="turn")
    words_of_place = f"before turn {turn}" if turn else "as it is now"
    return SlashResult.from_blocks(
        f"a copy of the conversation {words_of_place}; this session stays as it is",
        open_session=session.id,
        fork=True,
        before_turn=turn,
    )


# ---------------------------------------------------------------- export
async def export(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(2)
    force = "force" in arguments.flags("force")
    if not words:
        raise arguments.mistake("the name of the file is missing")
    form = (
        arguments.choice(words[1], _FORMATS) if len(words) > 1 else "json" if words[0].endswith(".json") else "markdown"
    )
    return SlashResult.from_blocks(f"wrote {_write(session, words[0], form, force=force)}")


def _write(session: LiveSession, name: str, form: str, *, force: bool) -> str:
    from lyra.sage.session.export import to_json, to_markdown

    path = Path(session.folder, os.path.expanduser(name))
    if path.is_dir():
        path = path / f"session-{session.id}{_FORMATS[form]}"
    if os.path.lexists(path) and not force:
        raise ConfigError(f"{path} exists", hint="name another file, or add --force", place=str(path))
    text = (to_json if form == "json" else to_markdown)(session.record, session.messages)
    try:
        write_private(path, text.encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", place=str(path)) from None
    return str(path)
