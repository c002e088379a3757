"""`lyra trust`: which folders' own files may do more than tighten, what they ask for, and taking an answer back.

What a file asks for is read by `lyra.config.asks`, and the answers are kept by `lyra.config.trust`, in the person's own
folder. `add` gives the answer that a run on a terminal asks for; without a terminal it needs `--yes`. `ask_for_trust`
is that question: other commands ask it before the first run in a folder, and it is answered once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, moment, note, printable, table
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.config.asks import FileAsks
    from lyra.config.trust import FolderAnswer, FolderTrust


_DENIED = 3

_folder = click.argument("folder", default=".")


@click.group(cls=CommandGroup)
def trust() -> None:
    """Show and change which folders' own files count in full; those of other folders can only forbid more."""


@trust.command("list")
@json_option
@click.pass_obj
def list_(invocation: Invocation, *, as_json: bool) -> None:
    """List the folders that you answered for."""
    folders = invocation.trust.answers.folders()
    if as_json:
        document([_folder_data(folder, answer) for folder, answer in folders.items()])
        return
    if not folders:
        note("no folder was answered for yet")
        return
    rows = [
        (folder, _word(answer), ", ".join(answer.files), moment(answer.answered_s))
        for folder, answer in folders.items()
    ]
    table(("folder", "answer", "files", "when"), rows)


@trust.command()
@_folder
@json_option
@click.pass_obj
def show(invocation: Invocation, *, folder: str, as_json: bool) -> None:
    """Show what the files of FOLDER ask for, and which of them you trust."""
    _check(folder)
    files, kept = asking_files(folder, rules=True), invocation.trust
    if as_json:
        trusted = all(file.state(kept) == "trusted" for file in files)
        data = [_file_data(file, kept) for file in files]
        document({"folder": os.path.realpath(folder), "trusted": trusted, "files": data})
        return
    if not files:
        click.echo("its files ask for nothing: they can only tighten, or there are none")
        return
    show_asks(files, kept, err=False)
    for file in files:
        click.echo(printable(f"{file.shown_name}: {file.state(kept)}"))


@trust.command()
@_folder
@click.option("--yes", is_flag=True, help="Trust it without a question.")
@click.pass_context
def add(ctx: click.Context, *, folder: str, yes: bool) -> None:
    """Trust the files of FOLDER with the content that they have now."""
    _check(folder)
    kept = ctx.ensure_object(Invocation).trust
    files = asking_files(folder, rules=True)
    if not files:
        click.echo("its files ask for nothing, so there is nothing to trust")
        return
    show_asks(files, kept, err=False)
    if any(file.problem for file in files):
        note(
            "a file that cannot be shown cannot be trusted by an answer; --trust-folder trusts all of them for one run"
        )
    able = [file for file in files if not file.problem]
    trusted = True if yes else _ask_agreement() if able else None
    if able and trusted is not None:
        keep_answer(able, kept, trusted=trusted)
    click.echo("trusted" if able and trusted else "not trusted")
    ctx.exit(0 if able and trusted else _DENIED)


@trust.command()
@_folder
@click.pass_obj
def revoke(invocation: Invocation, *, folder: str) -> None:
    """Forget your answer for FOLDER, and for the lyra.toml above it that counts there."""
    asking = asking_files(folder, rules=True) if os.path.isdir(folder) else []
    folders = [folder, *(file.folder for file in asking)]
    forgotten = [
        name for name in dict.fromkeys(map(os.path.realpath, folders)) if invocation.trust.answers.forget(name)
    ]
    for name in forgotten:
        click.echo(printable(f"{name}: taken back"))
    if not forgotten:
        click.echo(printable(f"{folder}: there was nothing to take back"))


def _check(folder: str) -> None:
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder} is no folder", key="FOLDER")


def _ask_agreement() -> bool | None:
    if not sys.stdin.isatty():
        note("stdin is not a terminal, so there is no one to ask; --yes agrees")
        return None
    return ask_person(err=False)


def _word(answer: FolderAnswer) -> str:
    words = {"trusted" if file.trusted else "refused" for file in answer.files.values()}
    return " and ".join(sorted(words, reverse=True))


def _folder_data(folder: str, answer: FolderAnswer) -> dict[str, Any]:
    files = [
        {"file": name, "sha256": file.sha256, "trusted": file.trusted, "asks": list(file.asks)}
        for name, file in answer.files.items()
    ]
    return {"folder": folder, "answered_s": answer.answered_s, "files": files}


def _file_data(file: FileAsks, kept: FolderTrust) -> dict[str, Any]:
    return {
        "folder": file.folder,
        "file": file.name,
        "sha256": file.sha256,
        "state": file.state(kept),
        "asks": [ask.sentence for ask in file.asks],
        "problem": file.problem or None,
    }


# ---------------------------------------------------------------- trust question

_NAMES_MAX: Final = 20  # in the line about what was passed over
_NAME_CHARS_MAX: Final = 60


def asking_files(*folders: str, rules: bool = False) -> list[FileAsks]:
    """Return the files that ask for something when a program runs in these folders; with `rules` also those that give a
    model rules, and Sage's extensions."""
    from lyra.config.asks import folder_asks

    if not rules:
        return list({file.path: file for folder in folders for file in folder_asks(folder)}.values())
    from lyra.sage.extensions.extensions import extension_asks
    from lyra.sage.project.rules import rule_asks

    files = [
        file for folder in folders for file in folder_asks(folder, more=(*rule_asks(folder), *extension_asks(folder)))
    ]
    return list({file.path: file for file in files}.values())


def ask_for_trust(
    invocation: Invocation, *folders: str, quiet: bool = False, rules: bool = False, asks: bool = True
) -> None:
    """Have the trust of a run decided: by the flag, a kept answer, or, where it `asks`, the person at the terminal.
    `quiet`: stderr is for a program that reads it, so that nothing is asked or told there. `rules`: the run gives a
    model the rules of the folder, so that they are asked for, too."""
    for folder in folders:
        invocation.trust_folder(folder)
    trust = invocation.trust
    files = waiting_files(invocation, *folders, rules=rules)
    if not files or quiet:
        return
    unanswered = [file for file in files if file.state(trust) != "refused" and not file.problem]
    if unanswered and asks and _is_attended():
        show_asks(unanswered, trust, err=True)
        answer = ask_person(err=True)
        if answer is None:
            note("nothing is decided: the question comes again at the next start")
            return
        keep_answer(unanswered, trust, trusted=answer)  # other files keep the answers that they have
        if not answer:
            note("these files can only tighten; `lyra trust add` changes the answer")
            return
        files = [file for file in files if file.state(trust) != "trusted"]
    if files:
        note(render_passed_over(files))


def waiting_files(invocation: Invocation, *folders: str, rules: bool = False) -> list[FileAsks]:
    """Return the files that ask for something that the person has not agreed to: not by trust, nor for single MCP
    servers."""
    asking = asking_files(*folders, rules=rules)
    waiting = [file for file in asking if file.state(invocation.trust) != "trusted"]
    if not any(ask.server for file in waiting for ask in file.asks):
        return waiting
    agreed = {name for folder in folders for name in _list_agreed_servers(invocation, folder)}
    return [file for file in waiting if not file.asks or any(ask.server not in agreed for ask in file.asks)]


def _list_agreed_servers(invocation: Invocation, folder: str) -> list[str]:
    """Return the MCP servers of a folder that the person agreed to with `lyra mcp approve`."""
    from lyra.config import Config
    from lyra.mcp.approvals import Approvals
    from lyra.mcp.servers import load_settings

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
    """Show what the files ask for, and what changed since they were trusted. Texts of a project are harmless: `asks`
    shows every character that cannot be seen as its code."""
    from lyra.config.asks import on_one_line

    say = partial(note, err=err)
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
    kept, answer = trust.answers.find_folder(file.folder), trust.answer(file.folder, file.name)
    word = "trusted" if answer is not None and answer.trusted else "refused"
    return f" (changed since you {word} it{f' on {moment(kept.answered_s)}' if kept is not None else ''})"


def _changes(file: FileAsks, trust: FolderTrust) -> list[str]:
    """Return the sentences of a file; of a changed one with `+` what it asks for now, and with `-` what it no longer
    does."""
    sentences = [ask.sentence for ask in file.asks]
    answer = trust.answer(file.folder, file.name)
    if answer is None or file.state(trust) != "changed":
        return [f"  {sentence}" for sentence in sentences]
    now = [f"+ {sentence}" if sentence not in answer.asks else f"  {sentence}" for sentence in sentences]
    return now + [f"- {sentence}" for sentence in answer.asks if sentence not in sentences]


def render_passed_over(files: Sequence[FileAsks]) -> str:
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
    """Return whether a person can read the question and answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_person(*, err: bool) -> bool | None:
    """Return the person's answer; None where they decide nothing. What was typed or pasted before the question was
    shown is no answer to it."""
    import termios

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    note("  y      trust these files with the content that they have now", err=err)
    note("  n      refuse these files: they can only tighten; you are asked again when they change", err=err)
    note("  enter  decide nothing: they can only tighten for now", err=err)
    while True:
        typed = (
            click.prompt("Trust these files?", default="", show_default=False, prompt_suffix=" ", err=err)
            .strip()
            .lower()
        )
        if typed in ("y", "yes", "n", "no", ""):
            return typed[0] == "y" if typed else None
