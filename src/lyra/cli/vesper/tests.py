"""`vesper test FILE…`: the test cases of nodes on both paths, which are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, printable
from lyra.cli.vesper.node_files import say_problems
from lyra.cli.vesper.setup import runtime_of, runtime_options
from lyra.cli.vesper.source import _node_files
from lyra.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime

__all__ = ["test"]


class CaseRun(NamedTuple):
    file: str
    name: str
    problems: list[str]


@click.command(cls=CliCommand, name="test")
@click.argument("files", nargs=-1)
@runtime_options
@json_option
@click.pass_context
def test(
    ctx: click.Context,
    /,
    *,
    files: tuple[str, ...],
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the test cases of FILES (.vsp files, or folders of them; this folder by default) on both paths."""
    from lyra.vesper.nodes import load

    done: list[CaseRun] = []
    wrong = 0
    with runtime_of(ctx.ensure_object(Invocation), database, providers, grants) as runtime:
        for file in _node_files(files or (".",)):
            try:
                node = load(file)
                done += _ran(runtime, str(file), node)
            except SourceError as error:
                wrong += 1
                say_problems(error)
    failed = sum(bool(ran.problems) for ran in done)
    if as_json:
        rows = [
            {"file": ran.file, "name": ran.name, "passed": not ran.problems, "problems": ran.problems} for ran in done
        ]
        document({"passed": len(done) - failed, "failed": failed, "tests": rows})
    else:
        for ran in done:
            click.echo(printable(f"{'FAILED' if ran.problems else 'passed'}  {ran.file}: {ran.name}"))
            for problem in ran.problems:
                click.echo(printable(f"    {problem}"))
        click.echo(f"{len(done) - failed} passed, {failed} failed")
    ctx.exit(2 if wrong else 1 if failed else 0)


def _ran(runtime: Runtime, file: str, node: Node) -> Iterator[CaseRun]:
    from lyra.vesper.evidence.cases import problems_of

    for number, case in enumerate(node.testing.test_cases, 1):
        problems: list[str] = []
        outcomes: dict[str, Any] = {}
        for path, mode in (("python", "python_only"), ("direct", "direct_only")):
            outcomes[path] = runtime.execute(node, case.inputs, mode)
            problems += [f"{path}: {problem}" for problem in problems_of(case.expected_output, outcomes[path])]
        yield CaseRun(file, case.name or f"case {number}", problems + _differences(outcomes))


def _differences(outcomes: dict[str, Any]) -> list[str]:
    from lyra.vesper.evidence.compare import compare

    return [f"the paths differ: {row}" for row in compare(outcomes["python"], outcomes["direct"])]
