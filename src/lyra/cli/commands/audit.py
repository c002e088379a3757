"""`lyra audit`: check that an audit log is as it was written, and look at what is in it, or in a store without one.

All of them only read. `verify` names the first line that was changed, removed, reordered, inserted or cut off, and
exits with 1. A log whose end was removed looks whole by itself: `--expect` takes a hash that was once its last one. A
run without an end, in a log of which no line was touched, is a warning: it was killed, or there was no room for its
last records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, printable
from lyra.observe.chain import ChainCheck, Link, read_links, verify

if TYPE_CHECKING:
    from lyra.observe.audit import AuditRow


@click.group(cls=CommandGroup)
def audit() -> None:
    """Verify and show audit logs, and what a store tells without one."""


@audit.command("verify")
@click.argument("file", type=click.Path())
@click.option("--expect", metavar="HASH", help="An earlier last hash of the log, which it must still contain.")
@json_option
@click.pass_context
def verify_command(ctx: click.Context, file: str, *, expect: str | None, as_json: bool) -> None:
    """Check that FILE was not changed; report the first line that was."""
    checked = verify(file, expect=expect.strip().lower() if expect else None)
    problem = checked.problem
    if as_json:
        shown = None if problem is None else problem._asdict()
        document(
            {
                "ok": checked.ok,
                "records": checked.records,
                "head": checked.head,
                "problem": shown,
                "unended": [run._asdict() for run in checked.unended],
                "missed": checked.missed,
                "writing": checked.writing,
            }
        )
    elif problem is None:
        click.echo(f"{printable(file)}: {checked.records} records, all as they were written")
        click.echo(f"  last hash: {checked.head}")
        for warning in _warnings(checked):
            click.echo(f"  warning: {warning}")
    else:
        click.echo(f"{printable(file)}:{problem.line}: {problem.what}: {problem.message}")
    if problem is not None:
        ctx.exit(1)


def _warnings(checked: ChainCheck) -> Iterator[str]:
    for run in checked.unended:
        number = f"{run.records} record{'' if run.records == 1 else 's'}"
        yield (
            f"the run that began at line {run.line} ({_time(run.at)}) has no end after {number}: it was killed, "
            "or its last records could not be written"
        )
    if checked.missed:
        yield f"{checked.missed} record{'' if checked.missed == 1 else 's'} could not be written"
    if checked.writing:
        yield "it is being written now: its last run has not ended yet"


@audit.command()
@click.argument("file", type=click.Path())
@click.option("--kind", multiple=True, metavar="KIND", help="Only records of this kind. May be repeated.")
@click.option("--pid", metavar="PID", help="Only records of this process.")
@json_option
def show(file: str, *, kind: tuple[str, ...], pid: str | None, as_json: bool) -> None:
    """Show the records of FILE, oldest first."""
    links = (link for link in read_links(file) if (not kind or link.kind in kind) and pid in (None, link.pid))
    if as_json:
        document([{name: getattr(link, name) for name in ("seq", "at", "pid", "kind", "fields")} for link in links])
        return
    for link in links:
        click.echo(_line(link))


@audit.command()
@click.argument("target", required=False, metavar="[PATH_OR_URL]")
@click.option("--pid", metavar="PID", help="Only what this process did.")
@json_option
@click.pass_obj
def view(invocation: Invocation, target: str | None, *, pid: str | None, as_json: bool) -> None:
    """Show what a store tells of rights, refusals, limits, questions and answers, oldest first."""
    from lyra.cli.commands.store import open_existing
    from lyra.core.codec import decode
    from lyra.core.event import Event
    from lyra.observe.audit import audit_rows

    with open_existing(invocation, target) as opened:
        rows = audit_rows(Event(row.seq, row.time, row.pid, row.kind, decode(row.data)) for row in opened.read(pid=pid))
        if as_json:
            document([row._asdict() for row in rows])
            return
        for row in rows:
            click.echo(_line(row))


def _time(timestamp_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(timestamp_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _line(link: Link | AuditRow) -> str:
    fields = " ".join(f"{name}={_render_value(value)}" for name, value in link.fields.items())
    return printable(
        f"{link.seq:>6}  {_time(link.at)}  {link.pid or '-':<8}  {link.kind:<20}  {fields}".replace("\n", "\\n")
    )


def _render_value(value: Any) -> str:
    import json

    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)
