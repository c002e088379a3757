"""`sage doctor`: the checks of `lyra doctor`, and those of Sage's own parts and of this terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.commands.doctor import Finding, examine, show_findings
from lyra.errors import ConfigError


@click.command(cls=CliCommand)
@click.option("--model", metavar="MODEL", default="", help="Check this model instead of the configured one.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, model: str, as_json: bool) -> None:
    """Check what Sage and Lyra need on this machine, and how to get what is missing."""
    invocation = ctx.ensure_object(Invocation)
    rows = [*examine(invocation), *_of_sage(invocation, model), _terminal()]
    ctx.exit(show_findings(rows, as_json=as_json))


def _of_sage(invocation: Invocation, model: str) -> Iterator[Finding]:
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
