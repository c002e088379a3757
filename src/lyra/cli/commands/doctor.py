"""`lyra doctor` and `sage doctor`: which optional features work on this machine, and how to install the others.

The checks are in `lyra.server.machine_checks`; the dashboard shows the same ones. A `problem` is something needed that
does not work, and makes the exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import colour_state, document, table
from lyra.errors import ConfigError
from lyra.server.machine_checks import Finding, machine_findings


@click.command(cls=CliCommand)
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Check which optional features work on this machine and how to install the others."""
    ctx.exit(show_findings(list(examine(ctx.ensure_object(Invocation))), as_json=as_json))


def show_findings(rows: list[Finding], *, as_json: bool) -> int:
    """Print the findings; the exit code."""
    healthy = all(row.state != "problem" for row in rows)
    if as_json:
        document({"ok": healthy, "checks": [row._asdict() for row in rows]})
    else:
        table(("check", "state", "detail", "how to get it"), rows)
    return 0 if healthy else 1


def examine(invocation: Invocation) -> Iterator[Finding]:
    """Return the checks of this machine."""
    try:
        config = invocation.config
    except ConfigError as error:
        return machine_findings(error, colours=colour_state())
    return machine_findings(config, colours=colour_state())


@click.command("doctor", cls=CliCommand)
@click.option("--model", metavar="MODEL", default="", help="Check this model instead of the configured one.")
@json_option
@click.pass_context
def sage_doctor(ctx: click.Context, *, model: str, as_json: bool) -> None:
    """Check what Sage and Lyra need on this machine, and how to get what is missing."""
    invocation = ctx.ensure_object(Invocation)
    rows = [*examine(invocation), *_check_sage(invocation, model), _terminal()]
    ctx.exit(show_findings(rows, as_json=as_json))


def _check_sage(invocation: Invocation, model: str) -> Iterator[Finding]:
    from lyra.sage.commands.doctor import sage_checks

    try:
        config = invocation.config
    except ConfigError:  # a row says so already
        return
    for check in sage_checks(config, os.path.realpath(os.curdir), model):
        yield Finding(*check)


def _terminal() -> Finding:
    from lyra.sage.terminal.facts import TerminalFacts, size_of

    facts = TerminalFacts.read(sys.stdin, sys.stdout)
    columns, rows = size_of(sys.stdout)
    words = [
        "plain lines" if facts.plain else "live screen",
        "colours" if facts.colour else "no colours",
        "UTF-8" if facts.unicode else "ASCII",
        f"{columns} × {rows}",
    ]
    return Finding("terminal", "ok", ", ".join(words))
