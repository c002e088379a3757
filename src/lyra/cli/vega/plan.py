"""`vega plan FILE`: which calls of a program overlap, and why the others do not."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand, json_option
from lyra.cli.vega.files import Files, say_problems
from lyra.errors import ConfigError, SourceError


@click.command(cls=CliCommand, name="plan")
@click.argument("file")
@json_option
@click.option("--dot", is_flag=True, help="Print the plan as a graph in the DOT language.")
@click.option("--svg", metavar="OUT", help="Draw the plan into this file (`-` is stdout).")
@click.pass_context
def plan(ctx: click.Context, /, *, file: str, as_json: bool, dot: bool, svg: str | None) -> None:
    """Show which calls of a program overlap, and why the others do not.

    Nothing is run. The plan is what the compiler wrote into the code; `vega run --sequential` makes every call in its
    turn. Of a Python file (.py) it is the plan of its functions with `@lyra.parallel`.
    """
    from lyra.vega.compiler.compiler import plan_of
    from lyra.vega.plan import render
    from lyra.vega.plan.render import plan_of_python

    if as_json and dot:
        raise ConfigError("--json and --dot are two ways to print one plan: give one of them", key="--dot")
    if file.endswith(".vgb"):
        raise ConfigError(
            f"{file} is compiled: a plan is about the places in a source",
            hint="give the .vega file that it was compiled from",
        )
    files = Files(file)
    try:
        if file.endswith(".py"):
            call_plan = plan_of_python(files.text(), files.name)
        else:
            call_plan = plan_of(files.text(), files.name, load=files.load)
    except SourceError as error:
        say_problems(error)
        ctx.exit(2)
    if svg is not None:
        _write(svg, render.svg_of(call_plan))
    if as_json:
        from lyra.cli.render import document

        document(call_plan.to_data())
    elif dot:
        click.echo(render.dot_of(call_plan), nl=False)
    elif svg is None:
        click.echo(render.text_of(call_plan), nl=False)


def _write(path: str, picture: str) -> None:
    if path == "-":
        click.echo(picture, nl=False)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", key="--svg") from None
