"""`lyra trust`: which folders' own files may do more than tighten, what they ask for, and taking an answer back.

What a file asks for is read by `lyra.config.asks`, and the answers are kept by `lyra.config.trust`, in the person's own
folder. `add` gives the answer that a run on a terminal asks for; without a terminal it needs `--yes`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, moment, note, printable, table
from lyra.cli.trust_question import ask_person, asking_files, keep_answer, show_asks
from lyra.errors import ConfigError

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
    trusted = bool(able) and (yes or _agreed())
    if trusted or (able and sys.stdin.isatty()):
        keep_answer(able, kept, trusted=trusted)
    click.echo("trusted" if trusted else "not trusted")
    ctx.exit(0 if trusted else _DENIED)


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


def _agreed() -> bool:
    if not sys.stdin.isatty():
        note("stdin is not a terminal, so there is no one to ask; --yes agrees")
        return False
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
