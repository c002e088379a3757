"""`lyra audit`: check that an audit log is as it was written, and look at what is in it.

Both only read. `verify` names the first line that was changed, removed, reordered, inserted or cut off, and exits with
1. A log whose end was removed looks whole by itself: `--expect` takes a hash that was once its last one.
"""

from __future__ import annotations

from typing import Any

import click

from lyra.cli.app import Group, json_option
from lyra.cli.render import document, printable
from lyra.observe.chain import Link, read_links, verify

__all__ = ["audit"]


@click.group(cls=Group)
def audit() -> None:
    """Check an audit log, and look at what is in it: verify, show."""


@audit.command("verify")
@click.argument("file", type=click.Path())
@click.option("--expect", metavar="HASH", help="A hash that was the log's last one, and must still be in it.")
@json_option
@click.pass_context
def verify_command(ctx: click.Context, file: str, *, expect: str | None, as_json: bool) -> None:
    """Check that FILE is as it was written; name the first line that is not."""
    found = verify(file, expect=expect.strip().lower() if expect else None)
    problem = found.problem
    if as_json:
        shown = None if problem is None else problem._asdict()
        document({"ok": found.ok, "records": found.records, "head": found.head, "problem": shown})
    elif problem is None:
        click.echo(f"{printable(file)}: {found.records} records, all as they were written")
        click.echo(f"  last hash: {found.head}")
    else:
        click.echo(f"{printable(file)}:{problem.line}: {problem.what}: {problem.message}")
    if problem is not None:
        ctx.exit(1)


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


def _line(link: Link) -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(link.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    said = " ".join(f"{name}={_said(value)}" for name, value in link.fields.items())
    return printable(f"{link.seq:>6}  {at}  {link.pid or '-':<8}  {link.kind:<20}  {said}".replace("\n", "\\n"))


def _said(value: Any) -> str:
    import json

    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)
