"""Commands that move in the conversation: clear, compact, undo, checkpoint, restore, fork, resume, title, export."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lyra.config.files import write_private
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict, NoSuchSession
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import Block, SlashResult, diff, lines, table
from lyra.sage.commands.session_protocol import CommandSession, UndoneTurns
from lyra.sage.commands.words import age, dollars, tokens
from lyra.sage.session.record import SessionRecord

_LISTED: Final = 20  # sessions that /resume lists
_FORMATS: Final = {"markdown": ".md", "json": ".json"}


async def clear(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    await session.clear()
    return SlashResult.of("a new conversation begins; /undo still goes back to earlier turns")


async def compact(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    if not session.messages:
        return SlashResult.of("there is nothing to compact yet")
    before, after = await session.compact(arguments.text)
    if after >= before:
        return SlashResult.of("there is one turn only, and the last turn stays as it is")
    return SlashResult.of(f"context: about {tokens(before)} tokens before, {tokens(after)} now")


async def title(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    if not arguments.text:
        return SlashResult.of(f"title: {session.title}" if session.title else "this session has no title yet")
    session.set_title(arguments.text)
    return SlashResult.of(f"title: {session.title}")


# ---------------------------------------------------------------- undo and checkpoints
async def undo(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    force = "force" in arguments.flags("force")
    words = arguments.at_most(1)
    turn = arguments.turn(words[0]) if words else None
    try:
        undone = await session.undo(turn, force=force)
    except Conflict as conflict:
        again = f"/undo {turn or ''}".rstrip() + " --force"
        return _refused(conflict, f"{again} restores the files all the same")
    return SlashResult.of(_turns(undone.turns), *_files(undone))


async def checkpoint(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    name = arguments.text.strip("\"'")
    if not name:
        return _checkpoints(session)
    await session.checkpoint(name)
    return SlashResult.of(f"checkpoint {name!r}: /restore {name} comes back to here")


def _checkpoints(session: CommandSession) -> SlashResult:
    marks = session.snapshots.checkpoints()
    if not marks:
        return SlashResult.of("no checkpoint yet; /checkpoint NAME makes one")
    rows = [(mark.name, mark.turn, age(mark.time), "made by a restore" if mark.automatic else "") for mark in marks]
    return SlashResult.of(table(("checkpoint", "after turn", "age", ""), rows))


async def restore(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    force = "force" in arguments.flags("force")
    words = arguments.words
    if not words:
        return _checkpoints(session)
    name = " ".join(words)
    try:
        restored = await session.restore(name, force=force)
    except Conflict as conflict:
        return _refused(conflict, f"/restore {name} --force restores the files all the same")
    undone = [_turns(restored.turns)] if restored.turns else []
    return SlashResult.of(f"back at {name!r}", *undone, *_files(restored))


def _refused(conflict: Conflict, hint: str) -> SlashResult:
    """What would be overwritten, shown; nothing was done."""
    shown = str(conflict.fields.get("diff") or "")
    blocks = [lines([conflict.message, hint])]
    return SlashResult(blocks=[diff(shown), *blocks] if shown else blocks, refused=conflict.message)


def _turns(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f"turn {first} is undone" if first == last else f"turns {first} to {last} are undone"


def _files(undone: UndoneTurns) -> list[Block]:
    blocks = [lines([f"  {visible(path)}" for path in undone.files], title="restored files")] if undone.files else []
    return [*blocks, lines(undone.problems, title="not restored")] if undone.problems else blocks


# ---------------------------------------------------------------- other sessions
async def resume(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    wanted = arguments.text
    if not wanted:
        return _sessions(session, session.index.list(session.folder, _LISTED))
    try:
        record = session.index.get(wanted)
    except NoSuchSession:
        records = session.index.list(session.folder, _LISTED, wanted)
        if not records:
            raise
        return _sessions(session, records)
    if record.id == session.id:
        return SlashResult.of("this is that session")
    return SlashResult.of(f"session {record.id}: {record.label}", open_session=record.id)


def _sessions(session: CommandSession, records: list[SessionRecord]) -> SlashResult:
    others = [record for record in records if record.id != session.id]
    if not others:
        return SlashResult.of("there is no other session of this folder")
    rows = [
        (record.id, age(record.updated_at), record.turns, dollars(record.cost_usd), record.label) for record in others
    ]
    return SlashResult.of(
        table(("session", "age", "turns", "cost", "about"), rows),
        "/resume ID opens one; the beginning of an id is enough",
    )


async def fork(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    turn = session.facts.turn(arguments.turn(words[0])).number if words else None
    if not session.messages:
        raise ConfigError("there is nothing to copy yet", key="turn")
    words_of_place = f"before turn {turn}" if turn else "as it is now"
    return SlashResult.of(
        f"a copy of the conversation {words_of_place}; this session stays as it is",
        open_session=session.id,
        fork=True,
        before_turn=turn,
    )


# ---------------------------------------------------------------- export
async def export(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(2)
    force = "force" in arguments.flags("force")
    if not words:
        raise arguments.mistake("the name of the file is missing")
    form = (
        arguments.choice(words[1], _FORMATS) if len(words) > 1 else "json" if words[0].endswith(".json") else "markdown"
    )
    return SlashResult.of(f"wrote {_write(session, words[0], form, force=force)}")


def _write(session: CommandSession, name: str, form: str, *, force: bool) -> str:
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
