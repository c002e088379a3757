"""`vesper run FILE`: execute a node, on one path or on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document as print_document
from lyra.cli.render import printable
from lyra.cli.vesper.node_files import input_options, inputs_of, node_named, say_problems
from lyra.cli.vesper.setup import runtime_of, runtime_options
from lyra.errors import SourceError

if TYPE_CHECKING:
    from lyra.vesper.values.outcome import Outcome


_MODE_OF_PATH: Final = {"python": "python_only", "direct": "direct_only", "both": "dual_verify"}


@click.command(cls=CliCommand, name="run")
@click.argument("file")
@input_options
@click.option("--path", "path_name", type=click.Choice(list(_MODE_OF_PATH)), help="Run on this path, or on both.")
@click.option("--mode", metavar="MODE", help="The mode for this one run.")
@runtime_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    file: str,
    pairs: tuple[str, ...],
    document: str | None,
    path_name: str | None,
    mode: str | None,
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Execute the node of FILE (or an id) and print its outputs. It can call the nodes beside FILE, those of
    `nodes/` and those of the store."""
    from lyra.vesper.repository.folders import repository_around

    try:
        node = node_named(file)
    except SourceError as error:
        say_problems(error)
        ctx.exit(2)
    inputs = inputs_of(node, pairs, document)
    chosen = mode or (_MODE_OF_PATH[path_name] if path_name else None)
    nodes = repository_around(node.file)
    with runtime_of(ctx.ensure_object(Invocation), database, providers, grants, nodes=nodes) as runtime:
        used = chosen or runtime.mode(node)
        outcome = runtime.execute(node, inputs, chosen, trace=True)
        runtime.settle()
    if as_json:
        print_document(_data(outcome, path_name, used))
    else:
        _show(outcome)
    ctx.exit(0 if outcome.status == "success" else 1)


def _data(outcome: Outcome, path_name: str | None, mode: str) -> dict[str, Any]:
    from lyra.vesper.values.json_values import json_shape

    error = None
    if outcome.error is not None:
        error = {"code": outcome.error.code, "message": outcome.error.message, "phase": outcome.error.phase}
        error["fields"] = json_shape(outcome.error.fields)
    return {
        "status": outcome.status,
        "outputs": json_shape(outcome.outputs),
        "error": error,
        "path": path_name or outcome.path,
        "mode": mode,
        "trace_id": outcome.trace_id,
        "unverifiable": list(outcome.unverifiable),
    }


def _show(outcome: Outcome) -> None:
    from lyra.vesper.values.json_values import json_shape

    for text in outcome.unverifiable:
        click.echo(printable(f"warning: could not be judged: {text}"), err=True)
    if outcome.error is not None:
        click.echo(printable(f"error[{outcome.error.code}]: {outcome.error.message}"), err=True)
        return
    for name, value in json_shape(outcome.outputs).items():
        click.echo(printable(f"{name}: {value}"))
