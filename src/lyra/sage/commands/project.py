"""Commands about the project's files: init, diff, review."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from lyra.core.secrets.visible import visible
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import SlashResult, diff, lines, table
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.project.git_diff import GitDiff, git_diff
from lyra.sage.session.snapshots import FileChange

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


async def init(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    exists = _has_rules(session.folder)
    prompt = _INIT_AGAIN if exists else _INIT
    if arguments.text:
        prompt = f"{prompt}\n\nPay attention to this: {arguments.text}"
    about = "AGENTS.md exists: it is edited, not written anew" if exists else "AGENTS.md is written by the agent"
    return SlashResult.of(about, prompt=prompt)


def _has_rules(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, _RULES_FILE))


# ---------------------------------------------------------------- diff
async def diff_(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if words and words[0] == "git":
        return _of_git(await git_diff(session.folder))
    turn = session.facts.turn(arguments.turn(words[0])).number if words else None
    changes = session.changes(turn)
    if changes:
        title = f"turn {turn}" if turn else "all turns of this session"
        return _of_changes(changes, title)
    if turn is not None:
        return SlashResult.of(f"turn {turn} changed no file")
    return _of_git(await git_diff(session.folder))


def _of_changes(changes: Sequence[FileChange], title: str) -> SlashResult:
    diffs = [change.diff() for change in changes]
    rows = [(visible(change.name), *_counts(unified)) for change, unified in zip(changes, diffs, strict=True)]
    return SlashResult.of(table(("file", "+", "−"), rows, title=title), diff(_bounded("".join(diffs))))


def _counts(unified: str) -> tuple[int, int]:
    """Lines that were added and removed."""
    body = [line for line in unified.split("\n") if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def _of_git(state: GitDiff | None) -> SlashResult:
    if state is None:
        return SlashResult.of("no file was changed in this session, and the folder is in no git repository")
    if state.problem:
        return SlashResult.of(state.problem)
    blocks = [diff(_bounded(state.diff), title="not committed")] if state.diff else []
    if state.untracked:
        blocks.append(lines([f"  {visible(name)}" for name in state.untracked], title="not tracked"))
    return SlashResult(blocks=blocks) if blocks else SlashResult.of("nothing is changed")


def _bounded(unified: str, most: int = _DIFF_CHARS_MAX) -> str:
    if len(unified) <= most:
        return unified
    kept = unified[:most]
    return f"{kept[: kept.rfind(chr(10)) + 1]}… {len(unified) - most} more characters\n"


# ---------------------------------------------------------------- review
async def review(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    """The diff goes beside the prompt: it is text from files, which may come from outside."""
    state = await git_diff(session.folder)
    material = _material(state) if state is not None and not state.problem else ""
    if not material:
        material = "".join(change.diff() for change in session.changes(None))
    if not material:
        return SlashResult.of("there is nothing to review: no change is uncommitted")
    prompt = f"{_REVIEW}\n\nLook above all at this: {arguments.text}" if arguments.text else _REVIEW
    return SlashResult(prompt=prompt, send_with={"beside": _bounded(material, _REVIEWED_CHARS_MAX)})


def _material(state: GitDiff) -> str:
    untracked = "".join(f"new file, not tracked: {name}\n" for name in state.untracked)
    return f"{untracked}{state.diff}"
