"""`vesper audit [NODE]`: the audit rows of executions, the oldest first."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, table
from lyra.cli.vesper.setup import store_of


@click.command(cls=CliCommand, name="audit")
@click.argument("node", required=False)
@json_option
@click.pass_context
def audit(ctx: click.Context, /, *, node: str | None, as_json: bool) -> None:
    """Show the executions that left an audit row: all, or those of the node with the id NODE.

    The security.audit_level of a node says whether there is a row and what it has.
    """
    from lyra.vesper.runtime.runtime import Runtime

    with Runtime(store_of(ctx.ensure_object(Invocation))) as runtime:
        rows = [row for row in runtime.audit() if node is None or row["node"] == node]
    if as_json:
        document({"rows": rows})
    elif not rows:
        click.echo("no execution left an audit row")
    else:
        titles = ("time", "node", "path", "mode", "outcome", "trace_id")
        shown = [
            [
                moment(row["time"]),
                row["node"],
                row["path"],
                row["mode"],
                f"{row['outcome']} {row['code']}".strip(),
                row["trace_id"],
            ]
            for row in rows
        ]
        table(titles, shown)
