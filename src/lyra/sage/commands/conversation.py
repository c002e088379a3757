"""Commands that move in the conversation: clear, compact, undo, checkpoint, restore, fork, resume, title, export.

Also those about the project's files: init, diff, review.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lyra.config.files import write_private
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict, NoSuchSession
from lyra.sage.agent.live import LiveSession, Undone
from lyra.sage.commands.result import Block, SlashArguments, SlashResult, age, diff, dollars, lines, table, tokens
from lyra.sage.project.git_state import GitDiff, git_diff
from lyra.sage.session.record import SessionRecord
from lyra.sage.session.snapshots import FileChange

_LISTED: Final = 20  # sessions that /resume lists
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
    return SlashResult.from_blocks(_turns(undone.turns), *_files(undone))


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
    return SlashResult.from_blocks(f"back at {name!r}", *undone, *_files(restored))


def _refuse(conflict: Conflict, hint: str) -> SlashResult:
    """Return what would be overwritten, shown; nothing was done."""
    shown = str(conflict.fields.get("diff") or "")
    blocks = [lines([conflict.message, hint])]
    return SlashResult(blocks=[diff(shown), *blocks] if shown else blocks, refused=conflict.message)


def _turns(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f"turn {first} is undone" if first == last else f"turns {first} to {last} are undone"


def _files(undone: Undone) -> list[Block]:
    blocks = [lines([f"  {visible(path)}" for path in undone.files], title="restored files")] if undone.files else []
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
        return _sessions(session, records)
    if record.id == session.id:
        return SlashResult.from_blocks("this is that session")
    return SlashResult.from_blocks(f"session {record.id}: {record.label}", open_session=record.id)


def _sessions(session: LiveSession, records: list[SessionRecord]) -> SlashResult:
    others = [record for record in records if record.id != session.id]
    if not others:
        return SlashResult.from_blocks("there is no other session of this folder")
    rows = [
        (record.id, age(record.updated_at), record.turns, dollars(record.cost_usd), record.label) for record in others
    ]
    return SlashResult.from_blocks(
        table(("session", "age", "turns", "cost", "about"), rows),
        "/resume ID opens one; the beginning of an id is enough",
    )


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


# ---------------------------------------------------------------- project

_DIFF_CHARS_MAX: Final = 200_000  # of what is shown
_REVIEWED_CHARS_MAX: Final = 60_000  # of what a model is given
_RULES_FILE: Final = "AGENTS.md"

_INIT: Final = """\
Look at this project and write the file AGENTS.md in its top folder, for agents and people who work on it for the first
time.

Find out first, from the files themselves and not from their names: what it is for, how it is built, run, tested and
checked (exact commands, and how to run a single test), how the folders are divided, what the rules of style are that a
reader would not guess, and what goes wrong easily. Look at the configuration of its tools, its README, its continuous
integration, and rules that other tools have left.

Then write: at most 150 lines of Markdown, commands in code blocks, no general advice that holds for any project,
nothing that you did not find. Check that each command exists before you write it down."""
_INIT_AGAIN: Final = """\
This project has a file AGENTS.md already. Look at the project and at that file: what in it is no longer true, what is
missing (commands for building, running, testing a single test, checking; the division of the folders; rules of style
that a reader would not guess), what is general advice that could go. Do not write it anew: make small edits that keep
what is right and how it is said. Say in the end what you changed and why."""
_REVIEW: Final = """\
Review the changes below, which are not committed yet. Have the Review sub-agent do it (the tool Task), with the names
of the changed files and the parts of the diff that it needs; several at once where the changes have nothing to do with
one another. Then check its findings in the code yourself and answer with those that hold: the worst first, each with
file and line, what goes wrong and for whom, and how to put it right. Leave out praise and matters of taste. Say so if
there is nothing to find. Change nothing."""


async def init(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    exists = os.path.lexists(os.path.join(session.folder, _RULES_FILE))  # noqa: ASYNC240 - one look at a name
    prompt = _INIT_AGAIN if exists else _INIT
    if arguments.text:
        prompt = f"{prompt}\n\nPay attention to this: {arguments.text}"
    about = "AGENTS.md exists: it is edited, not written anew" if exists else "AGENTS.md is written by the agent"
    return SlashResult.from_blocks(about, prompt=prompt)


# ---------------------------------------------------------------- diff
async def diff_(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if words and words[0] == "git":
        return _show_git_diff(await git_diff(session.folder))
    turn = session.facts.turn(arguments.turn(words[0])).number if words else None
    changes = session.changes(turn)
    if changes:
        title = f"turn {turn}" if turn else "all turns of this session"
        return _show_changes(changes, title)
    if turn is not None:
        return SlashResult.from_blocks(f"turn {turn} changed no file")
    return _show_git_diff(await git_diff(session.folder))


def _show_changes(changes: Sequence[FileChange], title: str) -> SlashResult:
    diffs = [change.diff() for change in changes]
    rows = [(visible(change.name), *_counts(unified)) for change, unified in zip(changes, diffs, strict=True)]
    return SlashResult.from_blocks(table(("file", "+", "−"), rows, title=title), diff(_cut_diff("".join(diffs))))


def _counts(unified: str) -> tuple[int, int]:
    """Lines that were added and removed."""
    body = [line for line in unified.split("\n") if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def _show_git_diff(state: GitDiff | None) -> SlashResult:
    if state is None:
        return SlashResult.from_blocks("no file was changed in this session, and the folder is in no git repository")
    if state.problem:
        return SlashResult.from_blocks(state.problem)
    blocks = [diff(_cut_diff(state.diff), title="not committed")] if state.diff else []
    if state.untracked:
        blocks.append(lines([f"  {visible(name)}" for name in state.untracked], title="not tracked"))
    return SlashResult(blocks=blocks) if blocks else SlashResult.from_blocks("nothing is changed")


def _cut_diff(unified: str, most: int = _DIFF_CHARS_MAX) -> str:
    if len(unified) <= most:
        return unified
    kept = unified[:most]
    return f"{kept[: kept.rfind(chr(10)) + 1]}… {len(unified) - most} more characters\n"


# ---------------------------------------------------------------- review
async def review(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Return the diff goes beside the prompt: it is text from files, which may come from outside."""
    state = await git_diff(session.folder)
    material = _material(state) if state is not None and not state.problem else ""
    if not material:
        material = "".join(change.diff() for change in session.changes(None))
    if not material:
        return SlashResult.from_blocks("there is nothing to review: no change is uncommitted")
    prompt = f"{_REVIEW}\n\nLook above all at this: {arguments.text}" if arguments.text else _REVIEW
    return SlashResult(prompt=prompt, send_with={"beside": _cut_diff(material, _REVIEWED_CHARS_MAX)})


def _material(state: GitDiff) -> str:
    untracked = "".join(f"new file, not tracked: {name}\n" for name in state.untracked)
    return f"{untracked}{state.diff}"
