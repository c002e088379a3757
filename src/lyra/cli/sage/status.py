"""`sage status`: the model, the newest session and the limits that `sage` would begin with here; nothing is started."""

from __future__ import annotations

import os
from typing import Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, table


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
    from lyra.core.clock import SystemClock
    from lyra.sage.session.index import SessionIndex
    from lyra.sage.session.usage_log import UsageLog, local_day
    from lyra.tools.permissions.settings import load_layers, permissions_of

    config, folder = invocation.config, os.path.realpath(os.curdir)
    home = os.path.expanduser("~")
    layers = load_layers(folder, home=home, trusted=invocation.trust)
    with SessionIndex() as index, UsageLog() as log:
        records = index.list(folder, limit=1_000)
        today = log.spent(day=local_day(SystemClock().now()))
    newest = records[0] if records else None
    limits = {
        name: limit / 1_000_000
        for name in ("daily_budget_usd", "session_budget_usd", "turn_budget_usd")
        if (limit := getattr(config.sage, name)) is not None
    }
    return {
        "folder": folder,
        "model": config.agent.model,
        "permission_mode": permissions_of(layers, workspace=folder, home=home).mode,
        "session": None if newest is None else {"id": newest.id, "label": newest.label, "turns": newest.turns},
        "sessions": len(records),
        "today_usd": today / 1_000_000,
        "limits": limits,
    }
