"""`vesper prove`, and `vesper validate --prove`: a verdict for each contract of a node.

It stands alone so that the prover is loaded for these commands only.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lyra.cli.app import CliCommand, json_option
from lyra.cli.render import document, printable, show_progress
from lyra.cli.vesper.node_files import node_named
from lyra.core.user_folders import data_folder

if TYPE_CHECKING:
    from lyra.vesper.nodes import Node
    from lyra.vesper.prove.prover import ProofResult

_REASON_CHARS_MAX = 50  # of a reason that is said again on each line
_INPUT_CHARS_MAX = 2_000  # of an input that is printed in a text; --json has all of it


@click.command(cls=CliCommand, name="prove")
@click.argument("node")
@json_option
@click.pass_context
def prove(ctx: click.Context, /, *, node: str, as_json: bool) -> None:
    """Prove the contracts of NODE (a file or an id) for all inputs, or find an input that breaks one.

    Each contract, overflow, division, type error and output is proved, refuted by an input that was run, or unknown
    with the reason. Exit code 1 if one is refuted. Needs z3: pip install 'lyra-agents[prove]'.
    """
    results = prove_node(node_named(node))
    if as_json:
        document({"results": [msgspec.to_builtins(result) for result in results]})
    else:
        print_results(node, results)
    ctx.exit(1 if any(result.verdict == "refuted" for result in results) else 0)


def prove_node(node: Node) -> list[ProofResult]:
    from lyra.vesper.prove import prover

    with show_progress(f"questions decided: {node.node_id}") as progress:
        return prover.prove(node, folder=data_folder() / "proofs", progress=progress)


def print_results(name: str, results: list[ProofResult]) -> None:
    """Print a line for each result, and below a refuted one the input and the command that shows it."""
    first_lines: dict[str, str] = {}  # long reasons, each with the line that it stands in
    for result in results:
        where = f" (step {result.step})" if result.step and result.step != result.expression else ""
        reason = f": {result.reason}" if result.reason else ""
        if len(result.reason) > _REASON_CHARS_MAX:
            first = first_lines.setdefault(result.reason, f"{result.kind}: {result.expression}")
            reason = reason if first == f"{result.kind}: {result.expression}" else f": as for {first}"
        click.echo(printable(f"{result.verdict.upper():8} {result.kind}: {result.expression}{where}{reason}"))
        if result.input is not None:
            text = json.dumps(result.input, ensure_ascii=False)
            if len(text) > _INPUT_CHARS_MAX:
                click.echo(f"         with an input of {len(text)} characters; --json shows it")
                continue
            click.echo(printable(f"         with {text}"))
            click.echo(printable(f"         vesper run {shlex.quote(name)} --input-json {shlex.quote(text)}"))
    counts = [f"{sum(r.verdict == verdict for r in results)} {verdict}" for verdict in ("proved", "refuted", "unknown")]
    click.echo(", ".join(counts))


def results_data(file: str, results: list[ProofResult]) -> list[dict[str, Any]]:
    return [{"file": file, **msgspec.to_builtins(result)} for result in results]
