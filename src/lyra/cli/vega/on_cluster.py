"""`vega run`, `resume`, `cancel` and `answer` with `--cluster URL`: durable runs that a cluster executes.

The command compiles the program, hands it over and shows what it prints. It may be ended and started again as often as
one likes: the run goes on without it, on whichever host has its shard.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.render import note
from lyra.cli.vega.durable import failure, fresh_id, line_of
from lyra.cli.vega.start import make_facts, read_result
from lyra.errors import ConfigError, DeadlineExceeded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lyra.cli.vega.files import Files
    from lyra.cli.vega.output import ProgramOutput
    from lyra.cluster.directory import Directory
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.runs import DurableRun


_CANCEL_S: Final = 30.0
_LOOK_S: Final = 0.2


def cluster_option(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Have the hosts of this cluster execute the run: postgresql://…"
    return click.option("--cluster", metavar="URL", help=text)(function)


def refuse_beside_cluster(**given: Any) -> None:
    """Refuse options that say how this machine executes a run."""
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"--{name} is for a run on this machine", hint="leave it or --cluster out", key=f"--{name}"
            )


def run_on_cluster(
    ctx: click.Context,
    url: str,
    run_id: str | None,
    files: Files,
    program: Program,
    output: ProgramOutput,
    **options: Any,
) -> None:
    """Begin a run on a cluster, or follow the one of that name; ends the command."""
    from lyra.vega.bytecode import file as bytecode

    abroad = sorted({kind for kind, *_ in program.imports if kind in ("mcp", "node", "python")})
    if abroad:
        raise ConfigError(
            f"a run on a cluster imports nothing of this machine, and {files.name} has `import {abroad[0]}`",
            hint="run it here: leave --cluster out",
            key="--cluster",
        )
    run = fresh_id(files.name) if run_id is None else run_id
    begun = (bytecode.dump(program), make_facts(run, files, options))
    _follow(ctx, url, run, output, begun, tail=False, is_new=run_id is None)


def resume_on_cluster(ctx: click.Context, url: str, run: str, output: ProgramOutput, *, tail: bool) -> None:
    """Show a run on a cluster to its end; one that lacked something, such as the key of a model, is begun again."""
    _follow(ctx, url, run, output, None, tail=tail, is_new=False)


def _follow(
    ctx: click.Context,
    url: str,
    run: str,
    output: ProgramOutput,
    begun: tuple[bytes, dict[str, Any]] | None,
    *,
    tail: bool,
    is_new: bool,
) -> None:
    from lyra.cli.process_io import run_with_ctrl_c

    config = ctx.find_root().obj.config

    async def main() -> DurableRun:
        import lyra.cluster
        from lyra.cluster import placement, vega_runs
        from lyra.cluster.peers import PeerTls
        from lyra.kernel.remote.part import home_of

        output.loop = asyncio.get_running_loop()
        async with lyra.cluster.connect(url, tls=PeerTls.from_config(config)) as cluster:
            view = await cluster.refresh()
            program, facts = begun or (b"", {})
            known = None if is_new else await asyncio.to_thread(_find, cluster.directory, run)
            if known is None and begun is None:
                raise _make_unknown_error(run)
            # A name that is given always means the same shard, so that two commands at once begin one run.
            where = known or (placement.place(view, {}) if is_new else home_of(run, view.shards))
            handle = await vega_runs.start_run(cluster, run, where, program, {**facts, "shard": where})
            if is_new:
                output.warn(f"run {run}")
            attempt = 1
            while begun is None and (ended := await handle.find_end()) is not None and ended.error is not None:
                attempt += 1
                handle = await vega_runs.start_run(cluster, run, where, b"", {}, attempt=attempt)
            return await vega_runs.follow(cluster.directory, run, handle, output.write, tail=tail)

    value, failed = None, None
    try:
        over = run_with_ctrl_c(main())
    except KeyboardInterrupt:
        note(f"run {run} goes on without this command; its output: vega resume {run} --cluster URL")
        raise
    try:
        failed = failure(over)
        value = read_result(over) if failed is None else None
        began_with, source = over.file, line_of(over.sources())
        if output.lines is not None:
            output.calls.set_totals(over.spent)
    finally:
        over.space.close()
    output.finish(ctx, began_with, value, failed, source, run)


@contextmanager
def open_on_cluster(url: str, run: str) -> Iterator[DurableRun]:
    """Provide a run of a cluster; ConfigError where there is none of that name that has begun."""
    from lyra.cluster.directory import PostgresDirectory
    from lyra.cluster.vega_runs import open_run

    directory = PostgresDirectory(url, make=False)
    try:
        if _find(directory, run) is None:
            raise _make_unknown_error(run)
        space, durable_run = open_run(directory, run)
        try:
            assert durable_run is not None
            yield durable_run
        finally:
            space.close()
    finally:
        directory.close()


def cancel_on_cluster(url: str, run: str) -> str:
    """Have the host of a run end it, and wait for that; returns the state of the run then."""
    from lyra.core.clock import SystemClock, block
    from lyra.vega.durable.durable_run import cancel_note

    clock = SystemClock()
    until_s = clock.monotonic() + _CANCEL_S
    with open_on_cluster(url, run) as durable_run:
        space = durable_run.space
        space.leave_note(cancel_note())
        while not (now := type(durable_run)(space)).is_over:
            if clock.monotonic() >= until_s:
                raise DeadlineExceeded(
                    f"no host has ended run {run} within {_CANCEL_S:g} s",
                    hint="the first one that comes to it ends it: lyra cluster status says which there are",
                )
            block(_LOOK_S)
        return now.state


def _make_unknown_error(run: str) -> ConfigError:
    return ConfigError(f"the cluster has no run {run!r}", hint="is the URL that of `vega run`?", run=run)


def _find(directory: Directory, run: str) -> str | None:
    """Return the shard of a run; None where there is none of that name, or it has not begun."""
    from lyra.cluster.vega_runs import open_run

    try:
        space, durable_run = open_run(directory, run, make=False)
    except StoreError as error:
        if error.fields.get("name") == run:
            return None
        raise
    try:
        return None if durable_run is None else str(durable_run.began["shard"])
    finally:
        space.close()
