"""`vega test [FILE…]`: the test blocks of programs, each in its own run.

An agent that a test mocks answers as the mock says; every other one as `--model` says, `sim/echo` unless told
otherwise, so that tests need no key and cost nothing. What a test prints is shown if it fails.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document
from lyra.cli.vega.durable import node_host, settings_of
from lyra.cli.vega.files import Files, error_data, problem_data, say_error, say_problems
from lyra.errors import ConfigError, SourceError, VegaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.vega.bytecode.program import Program, TestInfo


_FILES_MAX: Final = 10_000
_MODEL: Final = "sim/echo"


class Ran(NamedTuple):
    file: str
    name: str
    error: VegaError | None
    output: list[str]


@click.command(cls=CliCommand, name="test")
@click.argument("files", nargs=-1)
@click.option("--model", metavar="NAME", default=_MODEL, show_default=True, help="The model of agents without a mock.")
@click.option("-k", "--match", "part", metavar="TEXT", default="", help="Only tests whose name contains TEXT.")
@json_option
@click.pass_context
def test(ctx: click.Context, /, *, files: tuple[str, ...], model: str, part: str, as_json: bool) -> None:
    """Run the test blocks of programs.

    Without FILE: all .vega files below this folder. A FILE may be a folder too.
    """
    invocation = ctx.ensure_object(Invocation)
    settings = settings_of(invocation)
    done: list[Ran] = []
    wrong: list[dict[str, Any]] = []
    for path in files or (".",):
        for name in _files_below(path):
            source_files = Files(name)
            try:
                program = source_files.program()
            except SourceError as error:
                wrong += [problem_data(problem) for problem in error.fields.get("problems") or ()]
                wrong += [] if error.fields.get("problems") else [{"file": name, "message": error.message}]
                if not as_json:
                    say_problems(error)
                continue
            with node_host(invocation, program) as nodes:
                for ran in _tests(name, program, part, model=model, settings=settings, nodes=nodes):
                    done.append(ran)
                    if not as_json:
                        mark = click.style("ok", fg="green") if ran.error is None else click.style("FAILED", fg="red")
                        click.echo(f"{mark}  {ran.file}: {ran.name}")
                        if ran.error is not None:
                            for line in ran.output:
                                click.echo(f"    | {line}")
                            say_error(ran.error, source_files.line)
    failed = sum(ran.error is not None for ran in done)
    if as_json:
        _tell(done, failed, wrong)
    elif done or not wrong:
        click.echo(_sum(len(done), failed, len(files)))
    ctx.exit(2 if wrong else 1 if failed else 0)


def _files_below(path: str) -> list[str]:
    """Return the programs that a path represents; hidden folders are left out."""
    if not os.path.isdir(path):
        return [path]
    paths: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [os.path.normpath(os.path.join(folder, name)) for name in sorted(names) if name.endswith(".vega")]
        if len(paths) > _FILES_MAX:
            raise ConfigError(f"there are more than {_FILES_MAX} programs below {path}", hint="name a folder")
    return paths


def _tests(file: str, program: Program, part: str, **options: Any) -> Iterator[Ran]:
    for info in program.tests:
        of_import = program.files[program.functions[info.function].file] != program.name  # it is run where it stands
        if part in info.name and not of_import:
            yield _run(file, program, info, **options)


def _run(file: str, program: Program, info: TestInfo, **options: Any) -> Ran:
    from lyra.vega import run as run_program
    from lyra.vega.plain import test_program

    output: list[str] = []
    try:
        run_program(test_program(program, info), stdout=output.append, stderr=output.append, **options)
    except VegaError as error:
        return Ran(file, info.name, error, output)
    return Ran(file, info.name, None, output)


def _sum(count: int, failed: int, files: int) -> str:
    if not count:
        return "no tests found" + ("" if files else ' (a test is `test "name" { … }` in a .vega file)')
    return f"{count - failed} passed, {failed} failed" if failed else f"{count} passed"


def _tell(done: list[Ran], failed: int, wrong: list[dict[str, Any]]) -> None:
    tests = [
        {
            "file": ran.file,
            "name": ran.name,
            "ok": ran.error is None,
            "error": None if ran.error is None else error_data(ran.error),
            "output": ran.output,
        }
        for ran in done
    ]
    ok = not failed and not wrong
    document({"ok": ok, "passed": len(done) - failed, "failed": failed, "tests": tests, "problems": wrong})
