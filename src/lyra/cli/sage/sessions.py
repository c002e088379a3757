"""`sage sessions list|show|export|rm`: what was said in sessions, read from their stores without running anything."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, json_option
from lyra.cli.new_file import check_folder
from lyra.cli.render import note, printable

if TYPE_CHECKING:
    from lyra.sage.session.record import SessionRecord


@click.group("sessions", cls=CommandGroup)
def sessions() -> None:
    """List, show, export and remove sessions."""


@sessions.command("list")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@click.option("--search", metavar="WORDS", help="Only those in which these words were said.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@json_option
def list_(here: bool, search: str | None, limit: int, as_json: bool) -> None:
    """List sessions, the newest first."""
    from lyra.sage.session.index import SessionIndex

    folder = os.path.realpath(os.curdir) if here else None
    with SessionIndex() as index:
        records = index.list(folder, limit, search)
    if as_json:
        _say(json.dumps([_data(record) for record in records], indent=2))
        return
    if not records:
        note("no sessions" + (" match" if search else " yet; start one: sage"))
        return
    for record in records:
        cost = "" if not record.cost_usd else f"  ${record.cost_usd:.2f}"
        turns = f"{record.turns:>3} turn{' ' if record.turns == 1 else 's'}"
        _say(f"{record.id}  {_age(record.updated_at):>8}  {turns}{cost}  {printable(record.label)}")


@sessions.command("show")
@click.argument("session")
@json_option
def show(session: str, as_json: bool) -> None:
    """Show the turns and the conversation of a session."""
    record, messages = _read(session)
    if as_json:
        from lyra.sage.session.export import to_json

        _say(to_json(record, messages))
        return
    from lyra.sage.session.export import to_markdown

    _say(to_markdown(record, messages))


@sessions.command("export")
@click.argument("session")
@click.option("--format", "form", type=click.Choice(("markdown", "json")), default="markdown", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where to write it; default: stdout.")
def export(session: str, form: str, output: str | None) -> None:
    """Export a session to Markdown or JSON."""
    from lyra.sage.session.export import to_json, to_markdown

    record, messages = _read(session)
    text = (to_json if form == "json" else to_markdown)(record, messages)
    if output is None:
        _say(text)
        return
    from lyra.config.private_file import write_private

    check_folder(output, "--output")
    write_private(Path(output), text.encode())
    note(f"wrote {output}")


@sessions.command("rm")
@click.argument("session", nargs=-1, required=True)
def remove(session: tuple[str, ...]) -> None:
    """Remove sessions with everything that is kept of them."""
    from lyra.sage.session.index import SessionIndex

    with SessionIndex() as index:
        records = [index.get(prefix) for prefix in session]
        for record in records:
            _remove_worktrees(record)
            index.remove(record.id)
            note(f"removed {record.id}  {printable(record.label)}")


def _remove_worktrees(record: SessionRecord) -> None:
    """Remove the git worktrees and branches of the session's sub-agents, which are in the user's repository."""
    import asyncio
    from pathlib import Path

    from lyra.sage.agent.worktrees.worktrees import Worktrees, worktrees_folder
    from lyra.sage.session.record import sessions_folder

    root = worktrees_folder(sessions_folder() / record.id)
    if Path(root).exists() and Path(record.folder).is_dir():
        asyncio.run(Worktrees(record.folder, root).clean_up(()))


def _read(prefix: str) -> Any:
    from lyra.sage.agent.live import read_session
    from lyra.sage.session.index import SessionIndex
    from lyra.sage.session.record import sessions_folder

    with SessionIndex() as index:
        record = index.get(prefix)
    messages, _facts = read_session(sessions_folder() / record.id)
    return record, messages


def _data(record: SessionRecord) -> dict[str, Any]:
    import msgspec

    return {**msgspec.structs.asdict(record), "label": record.label}


def _age(time: float) -> str:
    from lyra.core.clock import SystemClock

    seconds = max(0.0, SystemClock().now() - time)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "now"


def _say(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
