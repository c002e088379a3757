"""`sage sessions`, `sage usage` and `sage status`: what was said in sessions and what it cost, and what `sage` would
begin with here. All is read from stores and settings; nothing is started.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, CommandGroup, Invocation, json_option
from lyra.cli.arguments import check_folder
from lyra.cli.render import document, note, printable, table

if TYPE_CHECKING:
    from lyra.sage.session.record import SessionRecord
    from lyra.sage.session.usage_log import UsageSum


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
    from lyra.sage.commands.result import dollars
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
        cost = f"  {dollars(record.cost_usd)}" if record.cost_usd != 0 else ""
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
    from lyra.config.files import write_private

    check_folder(output, "--output")
    write_private(Path(output), text.encode())
    note(f"wrote {output}")


@sessions.command("rm")
@click.argument("session", nargs=-1, required=True)
def remove(session: tuple[str, ...]) -> None:
    """Remove sessions with everything that is kept of them."""
    import asyncio

    from lyra.sage.agent.worktrees.worktrees import Worktrees, worktrees_folder
    from lyra.sage.session.index import SessionIndex
    from lyra.sage.session.record import sessions_folder

    with SessionIndex() as index:
        records = [index.get(prefix) for prefix in session]
        for record in records:
            # The git worktrees and branches of the session's sub-agents are in the user's repository.
            root = worktrees_folder(sessions_folder() / record.id)
            if Path(root).exists() and Path(record.folder).is_dir():
                asyncio.run(Worktrees(record.folder, root).clean_up(()))
            index.remove(record.id)
            note(f"removed {record.id}  {printable(record.label)}")


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


_GROUPS: Final = ("day", "session", "model", "agent")


@click.command(cls=CliCommand)
@click.option("--days", type=click.IntRange(1, 36_500), default=30, show_default=True, help="How many days back.")
@click.option(
    "--by", type=click.Choice(_GROUPS), default="day", show_default=True, help="The field that costs are summed by."
)
@json_option
@click.pass_obj
def usage(invocation: Invocation, *, days: int, by: Any, as_json: bool) -> None:
    """Show the tokens and the cost of sessions."""
    from lyra.core.clock import SystemClock
    from lyra.sage.session.usage_log import UsageLog, local_day

    now = SystemClock().now()
    with UsageLog() as log:
        sums = log.sums(by, days=days, now=now)
        today = log.sum_cost(day=local_day(now))
    limit = invocation.config.sage.daily_budget_usd
    if as_json:
        document(
            {
                "by": by,
                "days": days,
                "rows": [{**row._asdict(), "cost_usd": row.cost_usd, "cache_share": row.cache_share} for row in sums],
                "cost_usd": None if any(row.unpriced_calls for row in sums) else _total(sums) / 1_000_000,
                "today_usd": today / 1_000_000,
                "daily_budget_usd": None if limit is None else limit / 1_000_000,
            }
        )
        return
    if not sums:
        note("no session has asked a model yet")
        return
    table((by, "calls", "input", "output", "from cache", "cost"), [_row(row) for row in sums])
    note(f"today {today}" + (f" of {limit}" if limit is not None else ""))


def _total(sums: list[UsageSum]) -> int:
    return sum(row.cost_micro_usd for row in sums)


def _row(row: UsageSum) -> tuple[str, ...]:
    cost = "?" if row.cost_usd is None else f"${row.cost_usd:.4f}"
    counts = (str(row.calls), f"{row.input_tokens}", f"{row.output_tokens}", f"{round(100 * row.cache_share)} %")
    return (row.group, *counts, cost)


@click.command(cls=CliCommand, uses_trust=True)
@json_option
@click.pass_obj
def status(invocation: Invocation, *, as_json: bool) -> None:
    """Show the model, the newest session, the limits and today's cost for this folder."""
    facts = _facts(invocation)
    if as_json:
        document(facts)
        return
    session = facts.pop("session")
    shown = f"{session['id']}  {session['label']}, {session['turns']} turns" if session else "none yet"
    rows = [("folder", facts["folder"]), ("model", facts["model"] or "none is named"), ("newest session", shown)]
    rows += [(name, str(facts[name])) for name in ("permission_mode", "sessions", "today_usd")]
    rows += [(name, f"{amount}") for name, amount in facts["limits"].items()]
    table(("fact", "here"), rows)


def _facts(invocation: Invocation) -> dict[str, Any]:
    from lyra.config.settings import find_model
    from lyra.core.clock import SystemClock
    from lyra.sage.session.index import SessionIndex
    from lyra.sage.session.usage_log import UsageLog, local_day
    from lyra.tools.permissions.settings import load_layers, permissions_of

    config, folder = invocation.config, os.path.realpath(os.curdir)
    home = os.path.expanduser("~")
    layers = load_layers(folder, home=home, trusted=invocation.trust)
    with SessionIndex() as index, UsageLog() as log:
        records = index.list(folder, limit=1_000)
        today = log.sum_cost(day=local_day(SystemClock().now()))
    newest = records[0] if records else None
    limits = {
        name: limit / 1_000_000
        for name in ("daily_budget_usd", "session_budget_usd", "turn_budget_usd")
        if (limit := getattr(config.sage, name)) is not None
    }
    return {
        "folder": folder,
        "model": find_model(config) or None,
        "permission_mode": permissions_of(layers, workspace=folder, home=home).mode,
        "session": None if newest is None else {"id": newest.id, "label": newest.label, "turns": newest.turns},
        "sessions": len(records),
        "today_usd": today / 1_000_000,
        "limits": limits,
    }
