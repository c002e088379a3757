"""`vega run FILE`, which is also `lyra run FILE`: a program from its file to its exit code.

stdout is what the program prints and nothing else; with `--json` one document that has it. An uncaught error is
`error[code]: text` with its place on stderr, and the exit code of that code, 1 for errors of the program's own; a wrong
program exits with 2 before anything runs. A program that only computes and prints needs no kernel and gets none. A
durable run has its id on stderr, as `run ID`, and continues after a crash with `vega resume ID`; `durable` says which
runs are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.arguments import check_folder, dollars
from lyra.cli.commands.trust import ask_for_trust
from lyra.cli.render import document
from lyra.cli.vega.durable import (
    db_option,
    kernel_of,
    node_options,
    project_store,
    remember_node_options,
    settings_of,
    store_file,
    with_servers,
)
from lyra.cli.vega.files import Files, problem_data, say_problems
from lyra.cli.vega.on_cluster import cluster_option, refuse_beside_cluster, run_on_cluster
from lyra.cli.vega.output import ProgramOutput
from lyra.errors import ConfigError, SourceError, VegaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.vega.bytecode.program import Program


@click.command(cls=CliCommand, name="run", uses_trust=True)
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", metavar="NAME", help="Use this model for every agent; `sim/echo` needs no key.")
@click.option("--budget", metavar="$X", help="Stop before the whole run spends more dollars than this.")
@click.option("--sequential", is_flag=True, help="Make every call in program order, without automatic overlap.")
@click.option("--trace", is_flag=True, help="Write each agent call, span and event to stderr, one JSON object a line.")
@click.option("--live", is_flag=True, help="Show processes, calls, cost and restarts on stderr while it runs.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    help="Run processes in N threads; more than 1 gains nothing while Python has its global lock, and every function "
    "is interpreted then.",
)
@db_option
@click.option("--run-id", metavar="ID", help="The name of a durable run; an existing run of this name is continued.")
@cluster_option
@node_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    file: str,
    args: tuple[str, ...],
    model: str | None,
    budget: str | None,
    sequential: bool,
    trace: bool,
    live: bool,
    workers: int,
    db: str | None,
    run_id: str | None,
    cluster: str | None,
    database: str | None,
    providers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a Vega program: a source, or a compiled .vgb file.

    `-` reads the source from stdin. What follows `--` are the program's own arguments: env::args(), or the parameter
    of main. With --db or --run-id, or in a project (a folder with a lyra.toml or a pyproject.toml), the run is
    durable: killed, it goes on with `vega resume`. With --cluster the hosts of a cluster execute it, and it goes on
    when one of them is lost; this command only shows what it prints.
    """
    invocation, files = ctx.ensure_object(Invocation), Files(file)
    remember_node_options(invocation, database, providers)
    limit = None if budget is None else dollars(budget)
    output = ProgramOutput(collect=as_json, trace=trace, model=model)
    value, failed = None, None
    try:
        program = files.program()
        ask_for_trust(invocation, os.curdir, os.path.dirname(os.path.abspath(file)), quiet=trace)
        if live and not as_json:  # which has room for nothing else
            output.watch()
        options: dict[str, Any] = {"model": model, "budget": limit, "args": args, "sequential": sequential}
        if cluster is not None:
            refuse_beside_cluster(db=db, trace=trace, live=live, workers=workers > 1)
            run_on_cluster(ctx, cluster, run_id, files, program, output, **options)
            return
        store = _store(invocation, file, db, run_id, workers)
        if store is not None:
            from lyra.cli.vega.start import start

            is_said = not trace or _is_wanted(invocation, db, run_id)  # else stderr is for the lines of the trace alone
            start(ctx, store, run_id, files, program, output, is_said=is_said, **options)
            return
        value = _ran(invocation, program, output, workers=workers, **options)
    except SourceError as error:
        if as_json:
            _tell_wrong(file, error)
        else:
            say_problems(error)
        ctx.exit(2)
    except VegaError as error:
        failed = error
    output.finish(ctx, file, value, failed, files.line)


def _store(invocation: Invocation, file: str, db: str | None, run_id: str | None, workers: int) -> str | None:
    """Return the file that the run is kept in; None for a run that is not durable, as one with several workers."""
    if _is_wanted(invocation, db, run_id):
        if workers > 1:
            raise ConfigError("a durable run has one worker", hint="leave --workers out", key="--workers")
        if db is not None:
            check_folder(db, "--db")
        return store_file(invocation, db)
    return project_store(invocation, file) if workers == 1 else None


def _is_wanted(invocation: Invocation, db: str | None, run_id: str | None) -> bool:
    """Return whether an option asks for a durable run; being in a project is the other reason for one."""
    return db is not None or run_id is not None or any(flag.startswith("kernel.store=") for flag in invocation.flags)


def _ran(invocation: Invocation, program: Program, output: ProgramOutput, **options: Any) -> Any:
    from lyra.vega.plain import is_plain, run_plain

    if invocation.flags:
        _ = invocation.config  # an unknown setting is reported before anything runs
    elif output.live is None and is_plain(program):
        value = run_plain(program, output.write, options["args"])
        if value is None or type(value) in (bool, int, str):
            return value
        convert: Callable[[Any], Any]
        from lyra.vega.runtime.convert import to_python as convert

        return convert(value)
    import asyncio

    from lyra.cli.process_io import run_with_ctrl_c
    from lyra.vega.runtime.run import run as run_program

    async def main() -> Any:
        output.loop = asyncio.get_running_loop()
        if output.live is not None:
            options["picture"] = output.live.picture
            output.live.start()
        if not output.listens:
            return await run_program(
                program, stdout=output.write, stderr=output.warn, settings=settings_of(invocation), **options
            )
        async with kernel_of(invocation) as kernel:
            output.calls.listen(kernel, program)
            return await run_program(
                program, stdout=output.write, stderr=output.warn, kernel=kernel, alone=True, **options
            )

    try:
        return run_with_ctrl_c(with_servers(invocation, program, options, main))
    finally:
        output.end_watch()
        output.check()


def _tell_wrong(file: str, error: SourceError) -> None:
    problems = [problem_data(problem) for problem in error.fields.get("problems") or ()]
    document(
        {"file": file, "ok": False, "problems": problems or [{"message": error.message, "hint": error.hint or ""}]}
    )
