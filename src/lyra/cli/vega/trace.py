"""`vega trace RUN`: the tree of what a run did, for a person or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, printable
from lyra.cli.vega.durable import db_option, opened, store_file

if TYPE_CHECKING:
    from lyra.vega.durable.trace import RunSpan


_QUIET = ("supervise",)  # what only stands between others


@click.command(cls=CliCommand, name="trace")
@click.argument("run")
@db_option
@json_option
@click.pass_obj
def trace(invocation: Invocation, /, *, run: str, db: str | None, as_json: bool) -> None:
    """Show the calls of a run as a tree, with cost, latency and retries."""
    from lyra.vega.durable.trace import trace as trace_of

    with opened(store_file(invocation, db)) as runs:
        kept_run = runs[run]
        told = trace_of(kept_run)
        if as_json:
            migrations = [
                {"at": entry["at"], "hash": entry["hash"], "changes": entry["changes"]}
                for entry in kept_run.facts.migrations
            ]
            facts = {"migrations": migrations, "since": told.since, "unlisted_calls": told.unlisted}
            document({"run": kept_run.id, "state": kept_run.state, **facts, "trace": told.root.to_data()})
            return
        click.echo(printable(f"run {kept_run.id}: {kept_run.state}"))
        for migration in kept_run.facts.migrations:
            for change in migration["changes"]:
                click.echo(printable(f"migrated after {migration['at'] - kept_run.began_at:.0f} s: {change}"))
        if told.since is not None:
            click.echo(f"rows before {moment(told.since)} are not kept: {told.unlisted} calls are only in the sums")
        for line in _lines(told.root):
            click.echo(printable(line))


def _lines(root: RunSpan) -> list[str]:
    lines = []
    todo = [(0, root)]
    while todo:
        depth, span = todo.pop()
        if span.name not in _QUIET:
            lines.append("  " * depth + _line(span))
            depth += 1
        todo += [(depth, inner) for inner in reversed(span.spans)]
    return lines


def _line(span: RunSpan) -> str:
    if span.kind == "event":
        return f"event {span.name}"
    took = "" if span.latency_ms is None else f"{span.latency_ms} ms"
    why = f"{span.status}: {span.error.splitlines()[0]}" if span.error else span.status
    parts = [f"{span.kind} {span.name}", why, took]
    if span.calls or span.micro_usd:
        parts.append(f"{span.input_tokens}+{span.output_tokens} tokens{' (estimated)' if span.estimated else ''}")
        parts.append(f"${span.micro_usd / 1_000_000:.6f}")
    parts += [f"{name}={value}" for name, value in span.attributes.items()]
    if span.retries:
        parts.append(f"{span.retries} retries" if span.retries > 1 else "1 retry")
    return "  ".join(part for part in parts if part)
