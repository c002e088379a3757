"""`vesper divergences NODE`: the inputs for which the two paths of a node gave different answers.

`divergence_data` is one of them as JSON, and `divergence_lines` as text; `vesper run` tells what it finds in the same
words. Sensitive values are not kept, so a command that reproduces a divergence has `[redacted]` in their place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, printable
from lyra.cli.vesper.node_files import node_named, runtime_around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.vesper.ir import NodeProgram


@click.command(cls=CliCommand, name="divergences")
@click.argument("node")
@json_option
@click.pass_context
def divergences(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """List the divergences of NODE (a file or an id) as it is now: the input, both outcomes, where they part, and a
    command that reproduces it. The exit code is 1 if there are any."""
    import msgspec

    loaded = node_named(node)
    with runtime_around(ctx.ensure_object(Invocation), loaded) as runtime:
        program = runtime.program(loaded)
        kept = [msgspec.to_builtins(row) for row in runtime.evidence(loaded).found]
    rows = [divergence_data(row, program, node) for row in kept]
    if as_json:
        document({"node": program.node_id, "divergences": rows})
    elif not rows:
        click.echo(printable(f"{program.node_id}: no divergence is known"))
    else:
        for number, row in enumerate(rows, 1):
            click.echo(printable(f"{number}. {moment(row['time'])}, {row['mode']}"))
            for line in divergence_lines(row):
                click.echo(printable(f"   {line}"))
    ctx.exit(1 if rows else 0)


def divergence_data(row: Mapping[str, Any], program: NodeProgram, name: str) -> dict[str, Any]:
    """Return a kept divergence as JSON; `name` is the file or the id by which a command finds the node."""
    from lyra.vesper.values.json_values import from_json, json_shape

    differences, step = row["differences"], row.get("step", "")
    path = differences[0]["path"] if differences else "root"
    given = None if row["inputs"] is None else json_shape(from_json(row["inputs"]))
    return {
        "input": given,
        **{side: _shape(row.get(side)) for side in ("python", "direct")},
        "where": f"step {step}: {path}" if step else path,
        "differences": differences,
        "reproduce": _command(row, given, program, name),
        "reproducible": row["reproducible"],
        "mode": row["mode"],
        "time": row.get("time", 0.0),
        "trace_id": row["trace_id"],
    }


def _shape(end: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how a path ended, as JSON for readers."""
    from lyra.vesper.values.json_values import from_json, json_shape

    return None if end is None else {**end, "outputs": json_shape(from_json(end["outputs"]))}


def _command(row: Mapping[str, Any], given: Any, program: NodeProgram, name: str) -> str:
    if given is None:
        return f"vesper verify {shlex.quote(name)}"
    if not program.pure and row["trace_id"]:
        return f"vesper replay {row['trace_id']}"  # performs nothing again
    return f"vesper run {shlex.quote(name)} --path both --input-json {shlex.quote(json.dumps(given))}"


def divergence_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a divergence as text."""
    yield f"input      {json.dumps(row['input'], ensure_ascii=False)}"
    for side in ("python", "direct"):
        yield f"{side:<9}  {_ending(row[side])}"
    yield f"where      {row['where']}"
    for difference in row["differences"]:
        yield f"           {difference['path']}: {difference['python']} | {difference['direct']}"
    yield f"reproduce  {row['reproduce']}"


def _ending(end: Mapping[str, Any] | None) -> str:
    if end is None:
        return "not kept"
    if end["error"] is not None:
        return f"{end['status']} {end['error']['code']}: {end['error']['message']}"
    return f"{end['status']} {json.dumps(end['outputs'], ensure_ascii=False)}"
