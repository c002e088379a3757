"""Commands about the project's files: init, diff, review."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from typing import Final

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.sage.agent.live import LiveSession
from lyra.sage.commands.result import SlashArguments, SlashResult, diff, lines, short, table
from lyra.sage.project.git_state import GitDiff, branch_diff, git_diff, remote_url

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
Review the changes below, {what}. Have the Review sub-agent do it (the tool Task), with the names
of the changed files and the parts of the diff that it needs; several at once where the changes have nothing to do with
one another. Then check its findings in the code yourself and answer with those that hold: the worst first, each with
file and line, what goes wrong and for whom, and how to put it right. Leave out praise and matters of taste. Say so if
there is nothing to find. Change nothing."""


async def init(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    exists = os.path.lexists(os.path.join(session.folder, _RULES_FILE))  # noqa: ASYNC240 - one look at a name
    prompt = _INIT_AGAIN if exists else _INIT
    if arguments.text:
        prompt = f"{prompt}\n\nPay attention to this: {arguments.text}"
    session.init_turn = session.facts.last_number + 1
    about = "AGENTS.md exists: it is edited, not written anew" if exists else "AGENTS.md is written by the agent"
    return SlashResult.from_blocks(about, prompt=prompt)


async def diff_(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if words and words[0] == "git":
        return _show_git_diff(await git_diff(session.folder))
    turn = session.facts.turn(arguments.turn(words[0])).number if words else None
    changes = session.changes(turn)
    if changes:
        title = f"turn {turn}" if turn else "all turns of this session"
        diffs = [change.diff() for change in changes]
        rows = [(visible(change.name), *_counts(unified)) for change, unified in zip(changes, diffs, strict=True)]
        return SlashResult.from_blocks(table(("file", "+", "−"), rows, title=title), diff(_cut_diff("".join(diffs))))
    if turn is not None:
        return SlashResult.from_blocks(f"turn {turn} changed no file")
    return _show_git_diff(await git_diff(session.folder))


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


_PULL: Final = re.compile(r"(?:pr |#)(\d{1,9})(?:\s+|\Z)|https://github\.com/([\w.-]+/[\w.-]+)/pull/(\d{1,9})\S*\s*")
_ORIGIN: Final = re.compile(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?\Z")
_GH_S: Final = 60.0


async def review(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Have a diff reviewed: what is not committed, a branch, or a pull request. It goes beside the prompt, as text from
    files, which may come from outside; words that name none of them are what to look at."""
    what, material, about = await _material_of(session, arguments.text)
    if not material:
        return SlashResult.from_blocks(f"there is nothing to review: {what}")
    prompt = _REVIEW.replace("{what}", what)
    prompt = f"{prompt}\n\nLook above all at this: {about}" if about else prompt
    told = [f"review of the changes {what}"] if what != _UNCOMMITTED else []
    return SlashResult(
        blocks=[lines(told)] if told else [],
        prompt=prompt,
        send_with={"beside": _cut_diff(material, _REVIEWED_CHARS_MAX)},
    )


_UNCOMMITTED: Final = "which are not committed yet"


async def _material_of(session: LiveSession, text: str) -> tuple[str, str, str]:
    """Return what is reviewed in words, its diff, and the rest of the arguments."""
    pull = _PULL.match(text)
    if pull is not None:
        number, repository = pull[1] or pull[3], pull[2] or await _origin(session.folder)
        diff_text = await _pull_diff(repository, number)
        return f"of the pull request {number} of {repository}", diff_text, text[pull.end() :].strip()
    word, _, rest = text.partition(" ")
    branch = await branch_diff(session.folder, word) if word else None
    if branch is not None:
        return branch.words, branch.diff, rest.strip()
    state = await git_diff(session.folder)
    material = ""
    if state is not None and not state.problem:
        untracked = "".join(f"new file, not tracked: {name}\n" for name in state.untracked)
        material = f"{untracked}{state.diff}"
    if not material:
        material = "".join(change.diff() for change in session.changes(None))
    return (_UNCOMMITTED if material else "no change is uncommitted"), material, text


async def _origin(folder: str) -> str:
    """Return the repository on GitHub that `origin` is, as OWNER/NAME."""
    match = _ORIGIN.search(await remote_url(folder))
    if match is None:
        raise ConfigError("the remote origin is no repository on GitHub", hint="/review https://github.com/…/pull/N")
    return match[1]


async def _pull_diff(repository: str, number: str) -> str:
    """Return the diff of a pull request, by the GitHub program of the user; it runs in no folder of the project."""
    program = shutil.which("gh")
    if program is None:
        raise ConfigError("a pull request is read by the program gh, which is not there", hint="https://cli.github.com")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(program, "pr", "diff", number, "--repo", repository, "--color", "never"),
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        async with asyncio.timeout(_GH_S):
            output, problem = await process.communicate()
    except TimeoutError:
        raise ConfigError(f"gh took longer than {_GH_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(f"gh cannot read it: {short(problem.decode(errors='replace'))}", hint="gh auth login")
    return output.decode("utf-8", "replace")
