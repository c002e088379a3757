"""Starts and continues durable runs: `vega run`, `vega run --run-id` and `vega resume`.

A run keeps the program and the options that it was started with, so that continuing needs no source. A program that was
changed since replaces the kept one where that is safe; otherwise it is refused with what changed and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import Invocation
from lyra.cli.vega.durable import come_to, command, failure, fresh_id, line_of, live, print_lines
from lyra.errors import ConfigError, VegaError

if TYPE_CHECKING:
    from lyra.cli.vega.files import Files
    from lyra.cli.vega.output import ProgramOutput
    from lyra.store.space import Space
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.record import ProgramMigration
    from lyra.vega.durable.runs import DurableRun


_SECRET = ("key", "secret", "token", "headers", "password")


def start(
    ctx: click.Context,
    store: str,
    run_id: str | None,
    files: Files,
    program: Program,
    output: ProgramOutput,
    *,
    is_said: bool,
    **options: Any,
) -> None:
    """Begin a run, or continue with the one of that name; ends the command. `is_said`: its id is told on stderr."""
    invocation = ctx.ensure_object(Invocation)

    def act(space: Space, before: DurableRun | None) -> None:
        if before is None:
            _begin(ctx, space, files, program, output, is_said=is_said, **options)
        else:
            migration = _prepare_migration(before, program, files, options, partial(command, invocation, space))
            go_on(ctx, space, before, output, migration=migration)

    with_run(
        store, fresh_id(files.name) if run_id is None else run_id, act, durability=invocation.config.kernel.durability
    )


def with_run(
    path: str,
    run_id: str,
    act: Callable[[Space, DurableRun | None], object],
    *,
    durability: str = "process",
    make: bool = True,
) -> None:
    """Do something with a run as it stands, None where it has not begun; where another process was at work on it
    meanwhile, once more with what that one has left."""
    from lyra.vega.durable.durable_run import Overtaken

    while True:
        space, before = come_to(path, run_id, durability=durability, make=make)
        try:
            act(space, before)
            return
        except Overtaken:
            continue
        finally:
            space.close()


def make_facts(name: str, files: Files, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a run keeps of the program and the options that it begins with, of this machine nothing."""
    return {
        "id": name,
        "file": files.name,
        "sources": files.texts,
        "model": options["model"],
        "budget": None if options["budget"] is None else int(options["budget"]),
        "args": list(options["args"]),
        "sequential": options["sequential"],
        "folder": "",
        "settings": [],
    }


def _begin(
    ctx: click.Context,
    space: Space,
    files: Files,
    program: Program,
    output: ProgramOutput,
    *,
    is_said: bool,
    **options: Any,
) -> None:
    invocation = ctx.ensure_object(Invocation)
    facts = make_facts(space.name, files, options)
    facts["folder"] = os.path.realpath(os.getcwd())
    facts["settings"] = [
        flag for flag in invocation.flags if not any(word in flag.partition("=")[0] for word in _SECRET)
    ]
    value, failed = None, None
    try:
        value = live(invocation, space, program, output, facts=facts, is_said=is_said, **options)
    except VegaError as error:
        failed = error
    output.finish(ctx, files.name, value, failed, files.line, space.name)


def go_on(
    ctx: click.Context,
    space: Space,
    before: DurableRun,
    output: ProgramOutput,
    *,
    migration: ProgramMigration | None = None,
    tail: bool = False,
) -> None:
    """Perform the rest of a run, after what it has printed so far (unless `tail`); of one that is over, only that. With
    a `migration` the rest is another program's."""
    invocation = ctx.ensure_object(Invocation)

    def print_output_before() -> None:
        lines = [] if tail else before.output()
        if output.lines is not None:
            output.lines += lines
        else:
            print_lines(lines)

    source = line_of(before.sources() if migration is None else migration.sources)
    value, failed = None, failure(before)
    began = before.began
    try:
        if before.is_over:
            print_output_before()
            value = read_result(before) if failed is None else None
        else:
            invocation.flags[:0] = [flag for flag in began.get("settings", ()) if flag not in invocation.flags]
            options = {"model": began["model"], "args": tuple(began["args"]), "folder": began["folder"]}
            options["sequential"] = began.get("sequential", False)
            budget = None if began["budget"] is None else _money(began["budget"])
            value = live(
                invocation,
                space,
                before.program() if migration is None else migration.program,
                output,
                before=before,
                migration=migration,
                held=print_output_before,
                budget=budget,
                **options,
            )
    except VegaError as error:
        failed = error
    if output.lines is not None:
        output.calls.set_totals(type(before)(space).spent)
    output.finish(ctx, before.file, value, failed, source, before.id)


def _prepare_migration(
    before: DurableRun, program: Program, files: Files, options: dict[str, Any], say: Callable[[str], str]
) -> ProgramMigration | None:
    """Prepare `vega run FILE --run-id OLD`: the options must be those of the run; a changed program must be safe to
    continue with, or the error says why it is not."""
    from lyra.vega.migrate.migration import plan_migration

    for name, given in options.items():
        option, shown = _OPTIONS[name]
        kept = before.began.get(name)
        if given and shown(given) != shown(kept):
            raise ConfigError(
                f"run {before.id} was begun {f'with {option} {shown(kept)}'.rstrip() if kept else f'without {option}'}",
                hint=f"go on with it as it is: {say('resume')}; or take another --run-id",
                key=option,
            )
    return plan_migration(before, program, files.texts, say=say)


_OPTIONS: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {  # as one gives them, and how their values read
    "model": ("--model", str),
    "budget": ("--budget", lambda given: "" if given is None else str(_money(int(given)))),
    "args": ("arguments", lambda given: " ".join(map(repr, given or ()))),
    "sequential": ("--sequential", lambda given: "" if given else "no"),
}


def read_result(run: DurableRun) -> Any:
    """Return what `main` of a run that is over returned, as Python; None where it has no such form."""
    from lyra.vega.machine.link import link
    from lyra.vega.machine.snapshot import value_from_data
    from lyra.vega.runtime.convert import to_python
    from lyra.vega.values.values import Fault

    if run.value is None:
        return None
    try:
        return to_python(value_from_data(run.value, link(run.program())))
    except Fault:
        return None


def _money(micro_usd: int) -> Any:
    from lyra.core.budgets.money import Money

    return Money(micro_usd)
