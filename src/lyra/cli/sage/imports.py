"""`sage import`: takes over what Claude Code, Codex and Cursor were told about a project, or about their user.

The project's files are shown and written, and count once they are trusted, as any of a project (`lyra trust add`); the
user's own count at once. What is not taken over is listed with its reason.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import Invocation, json_option
from lyra.cli.render import document, note, printable, table

if TYPE_CHECKING:
    from lyra.sage.imports.apply import ImportedFile, ImportPlace, LeftOut

_AGENTS: Final = ("claude", "codex", "cursor", "memory")
_WORDS: Final = {"new": "new", "change": "changed", "same": "as it was", "remove": "removed", "kept": "kept"}


@click.command("import")
@click.argument("agents", nargs=-1, type=click.Choice(_AGENTS), metavar="[claude|codex|cursor|memory]...")
@click.option("--user", "of_user", is_flag=True, help="Take over what is yours in every folder, not this project's.")
@click.option("--dry-run", is_flag=True, help="Show what would be written and what is left out; write nothing.")
@click.option("--undo", is_flag=True, help="Remove what was written, where it is still as it was.")
@json_option
@click.pass_obj
def import_(
    invocation: Invocation, agents: tuple[str, ...], of_user: bool, dry_run: bool, undo: bool, as_json: bool
) -> None:
    """Take over rules, commands, sub-agents, skills, permissions, hooks and MCP servers of other agents: of all, where
    none is named. A second run brings what has changed."""
    from lyra.sage.imports.apply import ImportState, compare, write
    from lyra.sage.imports.apply import undo as take_back
    from lyra.sage.imports.sources import plan, project_place, user_place

    if undo and (agents or dry_run):
        raise click.UsageError("--undo takes back all that was written: it stands alone, or with --user")
    place = user_place(os.environ) if of_user else project_place(os.curdir)
    state = ImportState(place)
    left_out: list[LeftOut] = []
    if undo:
        changes = take_back(place, state)
    else:
        chosen = agents or _AGENTS
        planned, left_out = plan(place, chosen)
        changes = compare(place, planned, chosen, state)
        if not dry_run:
            write(place, changes, state)
    if as_json:
        document(_data(place, changes, left_out))
        return
    _show(changes, left_out, dry_run=dry_run)
    if not of_user and not dry_run and not undo and any(change.act in ("new", "change") for change in changes):
        from lyra.cli.commands.trust import ask_for_trust

        note("files of a project count once you trust them")
        ask_for_trust(invocation, place.root, rules=True)


def _show(changes: list[ImportedFile], left_out: list[LeftOut], *, dry_run: bool) -> None:
    if not changes and not left_out:
        note("there is nothing to take over or to take back here")
        return
    rows = [
        (item.target, _WORDS[act], " ".join(filter(None, (item.kind, f"({why})" if why else ""))), item.source)
        for act, item, why in changes
    ]
    if rows:
        table(("file", "would be" if dry_run else "", "", "from"), rows)
    if left_out:
        click.echo("\nleft out:")
        for source, what, why in left_out:
            click.echo(printable(f"  {source}  {what}: {why}"))


def _data(place: ImportPlace, changes: list[ImportedFile], left_out: list[LeftOut]) -> dict[str, Any]:
    files = [
        {"file": item.target, "act": act, "kind": item.kind, "source": item.source, "agent": item.agent, "why": why}
        for act, item, why in changes
    ]
    return {
        "root": place.root,
        "files": files,
        "left_out": [{"source": source, "what": what, "why": why} for source, what, why in left_out],
    }
