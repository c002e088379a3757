"""The question whether a folder is trusted: shown on a terminal before the first run, answered once.

`ask_for_trust` looks at what the folder's files ask for (`lyra.config.asks`). What the person has not answered for is
shown in plain words, with what changed since an earlier answer, and the answer is kept for exactly this content.
Without a terminal nothing is asked: the run goes on with files that can only tighten, and one line says what was passed
over. Everything goes to stderr: stdout is for results. `show_asks` and `keep_answer` are shared with `lyra trust`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from lyra.cli.app import Invocation
from lyra.cli.render import moment, note, printable
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.config.asks import FileAsks
    from lyra.config.trust import FolderTrust


_NAMES_MAX: Final = 20  # in the line about what was passed over
_NAME_CHARS_MAX: Final = 60


def asking_files(*folders: str, rules: bool = False) -> list[FileAsks]:
    """The files that ask for something when a program runs in these folders; with `rules` also those that give a model
    rules, and Sage's extensions."""
    from lyra.config.asks import folder_asks

    if not rules:
        return list({file.path: file for folder in folders for file in folder_asks(folder)}.values())
    from lyra.sage.extensions.extensions import extension_asks
    from lyra.sage.project.rules import rule_asks

    files = [
        file for folder in folders for file in folder_asks(folder, more=(*rule_asks(folder), *extension_asks(folder)))
    ]
    return list({file.path: file for file in files}.values())


def ask_for_trust(invocation: Invocation, *folders: str, quiet: bool = False, rules: bool = False) -> None:
    """Have the trust of a run decided: by the flag, a kept answer, or the person at the terminal. `quiet`: stderr is
    for a program that reads it, so that nothing is asked or told there. `rules`: the run gives a model the rules of the
    folder, so that they are asked for, too."""
    for folder in folders:
        invocation.trust_folder(folder)
    trust = invocation.trust
    files = waiting_files(invocation, *folders, rules=rules)
    if not files or quiet:
        return
    unanswered = [file for file in files if file.state(trust) != "refused" and not file.problem]
    if unanswered and _is_attended():
        show_asks(unanswered, trust, err=True)
        if not ask_person(err=True):
            # A no is for all files of the folders, also for those that were trusted before one of them changed.
            asking = asking_files(*folders, rules=rules)
            keep_answer((file for file in asking if not file.problem), trust, trusted=False)
            note("its files can only tighten; `lyra trust add` changes the answer")
            return
        keep_answer(unanswered, trust, trusted=True)
        files = [file for file in files if file.state(trust) != "trusted"]
    if files:
        note(passed_over_line(files))


def waiting_files(invocation: Invocation, *folders: str, rules: bool = False) -> list[FileAsks]:
    """The files that ask for something that the person has not agreed to: not by trust, nor for single MCP servers."""
    asking = asking_files(*folders, rules=rules)
    waiting = [file for file in asking if file.state(invocation.trust) != "trusted"]
    if not any(ask.server for file in waiting for ask in file.asks):
        return waiting
    agreed = {name for folder in folders for name in _agreed_servers(invocation, folder)}
    return [file for file in waiting if not file.asks or any(ask.server not in agreed for ask in file.asks)]


def _agreed_servers(invocation: Invocation, folder: str) -> list[str]:
    """The MCP servers of a folder that the person agreed to with `lyra mcp approve`."""
    from lyra.config import Config
    from lyra.mcp.client.approvals import Approvals
    from lyra.mcp.client.servers import load_settings

    workspace, approvals = os.path.realpath(folder), Approvals.of_user()
    with suppress(LyraError):  # a mistake in a file is reported by the command itself
        servers = load_settings(Config.load(folder, trust=invocation.trust), workspace)
        return [server.name for server in servers if approvals.consented(server.fingerprint(workspace))]
    return []


def keep_answer(files: Iterable[FileAsks], trust: FolderTrust, *, trusted: bool) -> None:
    """Keep one answer for the content of these files that was shown."""
    from lyra.config.trust import FileAnswer

    by_folder: dict[str, dict[str, FileAnswer]] = {}
    for file in files:
        answer = FileAnswer(file.sha256, trusted, tuple(ask.sentence for ask in file.asks))
        by_folder.setdefault(file.folder, {})[file.name] = answer
    for folder, answers in by_folder.items():
        try:
            trust.keep(folder, answers)
        except OSError as error:
            note(f"note: the answer is for this run alone, because it cannot be kept: {error.strerror}")


def show_asks(files: Sequence[FileAsks], trust: FolderTrust, *, err: bool) -> None:
    """What the files ask for, and what changed since they were trusted. Texts of a project are harmless: `asks` shows
    every character that cannot be seen as its code."""
    from lyra.config.asks import on_one_line

    def say(line: str) -> None:
        click.echo(printable(line), err=err)

    for folder in dict.fromkeys(file.folder for file in files):
        say(f"{on_one_line(folder)} brings files that ask for something:")
        for file in (file for file in files if file.folder == folder):
            say(f"  {file.shown_name}{_since(file, trust)}")
            if file.problem:
                say(f"      {file.problem}")
            for line in _changes(file, trust):
                say(f"    {line}")


def _since(file: FileAsks, trust: FolderTrust) -> str:
    if file.state(trust) != "changed":
        return ""
    kept, answer = trust.answers.of_folder(file.folder), trust.answer(file.folder, file.name)
    word = "trusted" if answer is not None and answer.trusted else "refused"
    return f" (changed since you {word} it{f' on {moment(kept.answered_s)}' if kept is not None else ''})"


def _changes(file: FileAsks, trust: FolderTrust) -> list[str]:
    """The sentences of a file; of a changed one with `+` what it asks for now, and with `-` what it no longer does."""
    sentences = [ask.sentence for ask in file.asks]
    answer = trust.answer(file.folder, file.name)
    if answer is None or file.state(trust) != "changed":
        return [f"  {sentence}" for sentence in sentences]
    now = [f"+ {sentence}" if sentence not in answer.asks else f"  {sentence}" for sentence in sentences]
    return now + [f"- {sentence}" for sentence in answer.asks if sentence not in sentences]


def passed_over_line(files: Sequence[FileAsks]) -> str:
    """One line about what counts once the folder is trusted."""
    parts = []
    left = _NAMES_MAX
    for file in files:
        names = list(dict.fromkeys(ask.name[:_NAME_CHARS_MAX] for ask in file.asks))
        shown, left = names[:left], max(0, left - len(names))
        more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
        parts.append(f"{_near(file)} ({', '.join([*shown, *more]) or file.problem})")
    return (
        f"note: this folder is not trusted, so its files can only tighten; passed over: {'; '.join(parts)}. "
        "Trust it for this run with --trust-folder, or from now on with `lyra trust add`"
    )


def _near(file: FileAsks) -> str:
    from lyra.config.asks import on_one_line

    return file.shown_name if file.folder == os.path.realpath(os.curdir) else on_one_line(file.path)


def _is_attended() -> bool:
    """Whether a person can read the question and answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_person(*, err: bool) -> bool:
    """The person's answer. What was typed or pasted before the question was shown is no answer to it."""
    import termios

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return click.confirm("Trust these files? Without it they can only tighten.", default=False, err=err)
