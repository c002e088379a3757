"""`vesper verify`, `confidence`, `status`, `mode`, `audit`: what shows that both paths agree, and what follows from
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, printable, table
from lyra.cli.vesper.node_files import node_named, runtime_of, runtime_when_free, store_of
from lyra.vesper.values.limits import SAMPLES_MAX

if TYPE_CHECKING:
    from lyra.vesper.evidence.state import NodeEvidence


SAMPLES_DEFAULT = 1_000


def _data(evidence: NodeEvidence) -> dict[str, Any]:
    from lyra.vesper.confidence import lower_bound
    from lyra.vesper.evidence.modes import allowed

    return {
        "node": evidence.node_id,
        "digest": evidence.digest,
        "mode": evidence.mode,
        "allowed": allowed(evidence.compared, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean),
        "compared": evidence.compared,
        "divergences": evidence.divergences,
        "confidence": lower_bound(evidence.compared, evidence.divergences),
        "blocked": evidence.blocked,
        "executions": evidence.executions,
        "errors": evidence.errors,
    }


@click.command(cls=CliCommand, name="confidence")
@click.argument("node")
@json_option
@click.pass_context
def confidence(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """Show how sure it is that both paths of NODE (a file or an id) agree."""
    loaded = node_named(node)
    with runtime_of(ctx.ensure_object(Invocation), None, (), ()) as runtime:
        data = _data(runtime.evidence(loaded))
    if as_json:
        document(data)
        return
    click.echo(printable(f"{data['node']}: confidence {data['confidence']:.5f}"))
    click.echo(f"  {data['compared']} compared, {data['divergences']} divergences; mode {data['mode']}")
    click.echo(f"  the evidence allows {data['allowed']}" + (" (blocked by a divergence)" if data["blocked"] else ""))


@click.command(cls=CliCommand, name="mode")
@click.argument("node")
@click.argument("mode_name", metavar="[MODE]", required=False)
@click.option("--force", is_flag=True, help="Also without the evidence that the mode needs.")
@json_option
@click.pass_context
def mode(ctx: click.Context, /, *, node: str, mode_name: str | None, force: bool, as_json: bool) -> None:
    """Show the mode of NODE, or change it to MODE."""
    loaded = node_named(node)
    with runtime_of(ctx.ensure_object(Invocation), None, (), ()) as runtime:
        if mode_name is not None:
            runtime.set_mode(loaded, mode_name, force=force)
        evidence = runtime.evidence(loaded)
    if as_json:
        document({**_data(evidence), "history": evidence.history})
        return
    click.echo(evidence.mode + (" (forced)" if evidence.forced else ""))
    for change in evidence.history:
        click.echo(f"  {moment(change['time'])}  {change['from']} → {change['to']}: {change['why']}")


@click.command(cls=CliCommand, name="status")
@click.option("--format", "form", type=click.Choice(["text", "json", "prometheus"]), default="text", show_default=True)
@json_option
@click.pass_context
def status(ctx: click.Context, /, *, form: str, as_json: bool) -> None:
    """Show all nodes that were executed or compared, with mode and evidence."""
    from lyra.vesper.runtime.runtime import Runtime

    with Runtime(store_of(ctx.ensure_object(Invocation))) as runtime:
        runtime.settle()
        known = [runtime.state.by_digest[digest] for _, digest in sorted(runtime.state.latest.items())]
        speeds = {
            node_id: {path: speed.to_data() for path, speed in paths.items()}
            for node_id, paths in runtime.state.speeds.items()
        }
    rows = [
        {**_data(evidence), "history": evidence.history, "speed": speeds.get(evidence.node_id, {})}
        for evidence in known
    ]
    if as_json or form == "json":
        document({"nodes": rows})
    elif form == "prometheus":
        from lyra.vesper.evidence.modes import prometheus

        click.echo(prometheus(known), nl=False)
    elif not rows:
        click.echo("no node was executed yet")
    else:
        titles = ("node", "mode", "allowed", "compared", "divergences", "confidence")
        table(
            titles,
            [
                [
                    *(str(row[title]) for title in titles[:-1]),
                    f"{row['confidence']:.5f}" + (" blocked" if row["blocked"] else ""),
                ]
                for row in rows
            ],
        )
        for row in rows:
            for path, speed in row["speed"].items():
                if speed["is_slower"]:
                    times = f"{speed['latest_ms']:.3f} ms, usually {speed['usual_ms']:.3f} ms"
                    click.echo(printable(f"{row['node']} is slower than its own past on the {path} path: {times}"))


@click.command(cls=CliCommand, name="verify")
@click.argument("node")
@click.option(
    "-n",
    "--num-tests",
    "count",
    type=click.IntRange(1, SAMPLES_MAX),
    help=f"Inputs to compare; without it, as many as the node's differential_tests say, else {SAMPLES_DEFAULT}.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the random inputs.")
@json_option
@click.pass_context
def verify(ctx: click.Context, /, *, node: str, count: int | None, seed: int, as_json: bool) -> None:
    """Compare both paths of NODE on generated inputs, and keep what comes of it as evidence.

    A node whose differential_tests are not enabled is compared only with -n. The store is opened when all is compared,
    so that other commands work meanwhile; after Ctrl-C, what was compared so far is kept.
    """
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.evidence.differential import test
    from lyra.vesper.values.json_values import json_shape

    loaded = node_named(node)
    declared = loaded.testing.differential_tests
    if count is None and not declared.enabled:
        _say_disabled(loaded.node_id, as_json=as_json)
        return
    samples = count or declared.sample_size or SAMPLES_DEFAULT
    report = test(program_of(loaded), samples, seed, keep_interrupted=True)
    with runtime_when_free(ctx.ensure_object(Invocation)) as runtime:  # not before: a store has one owner
        runtime.add_report(loaded, report)
        data = _data(runtime.evidence(loaded))
    told = {
        **data,
        "compared_now": report.compared,
        "divergences_now": report.divergences,
        "seconds": round(report.seconds, 3),
        "interrupted": report.interrupted,
        "kept": [{"inputs": json_shape(row.shrunk), "differences": row.differences} for row in report.kept],
    }
    if as_json:
        document(told)
    else:
        click.echo(f"{report.compared} inputs compared in {report.seconds:.1f} s, {report.divergences} divergences")
        for divergence in report.kept:
            click.echo(printable(f"  smallest input that shows it: {json_shape(divergence.shrunk)}"))
            for difference in divergence.differences:
                click.echo(printable(f"    {difference}"))
        click.echo(f"confidence {data['confidence']:.5f} after {data['compared']} comparisons")
    if report.interrupted:
        raise KeyboardInterrupt
    ctx.exit(1 if report.divergences else 0)


def _say_disabled(node_id: str, *, as_json: bool) -> None:
    if as_json:
        document({"node": node_id, "compared_now": 0, "enabled": False})
    else:
        click.echo(printable(f"{node_id}: its differential_tests are not enabled; nothing is compared without -n"))


# ---------------------------------------------------------------- audit


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
        titles = ("time", "user", "action", "node", "path", "mode", "outcome", "trace_id")
        shown = [
            [
                moment(row["time"]),
                row.get("user", ""),
                row.get("action", ""),
                row["node"],
                row["path"],
                row["mode"],
                f"{row['outcome']} {row['code']}".strip(),
                row["trace_id"],
            ]
            for row in rows
        ]
        table(titles, shown)
