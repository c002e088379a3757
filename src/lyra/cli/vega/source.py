"""`vega check`, `compile`, `disasm` and `fmt`: what can be done with a source without running it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, json_option
from lyra.cli.vega.files import STDIN, Files, problem_data, say_problem, say_problems
from lyra.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from lyra.vega.syntax.source import Diagnostic


@click.command(cls=CliCommand, name="check")
@click.argument("files", nargs=-1, required=True)
@json_option
@click.pass_context
def check(ctx: click.Context, /, *, files: tuple[str, ...], as_json: bool) -> None:
    """Find the mistakes in programs without running them.

    Says all it finds, each as `file:line:col: error: text` with the line and a caret. Warnings are no mistakes.
    """
    problems = [problem for file in files for problem in _problems(file)]
    wrong = any(problem.is_error for problem in problems)
    if as_json:
        from lyra.cli.render import document

        document({"files": list(files), "ok": not wrong, "problems": [problem_data(problem) for problem in problems]})
    else:
        for problem in problems:
            say_problem(problem)
    ctx.exit(2 if wrong else 0)


def _problems(file: str) -> list[Diagnostic]:
    from lyra.vega import check as check_source
    from lyra.vega import compile as compile_source
    from lyra.vega.syntax.source import Diagnostic

    source_files = Files(file)
    text = source_files.text()
    problems = check_source(text, source_files.name, load=source_files.load)
    if any(problem.is_error for problem in problems):
        return problems
    try:
        compile_source(text, source_files.name, load=source_files.load)
    except SourceError as error:  # what only the compiler sees
        facts = error.fields
        more = facts.get("problems") or [
            Diagnostic(
                file=str(facts.get("file") or source_files.name),
                line=int(facts.get("line") or 1),
                column=int(facts.get("column") or 1),
                message=error.message,
                hint=error.hint or "",
            )
        ]
        problems += [problem for problem in more if problem not in problems]
    return problems


@click.command(cls=CliCommand, name="compile")
@click.argument("file")
@click.option("-o", "--output", "output", metavar="OUT.vgb", help="The file to write; default: beside the source.")
@click.pass_context
def compile_(ctx: click.Context, /, *, file: str, output: str | None) -> None:
    """Compile a program to a .vgb file.

    The file holds all that the program imports; `vega run` runs it.
    """
    from lyra.vega.bytecode import file as bytecode

    program = _program(ctx, file)
    if output is None:
        if file == STDIN:
            raise click.UsageError("say where to write it: -o OUT.vgb")
        output = os.path.splitext(file)[0] + ".vgb"
    _write(output, bytecode.dump(program))


@click.command(cls=CliCommand, name="disasm")
@click.argument("file")
@click.pass_context
def disasm(ctx: click.Context, /, *, file: str) -> None:
    """Show the instructions of a program.

    Takes a source or a .vgb file.
    """
    from lyra.vega.bytecode.file import disassemble

    click.echo(disassemble(_program(ctx, file)), nl=False)


def _program(ctx: click.Context, file: str) -> Any:
    try:
        return Files(file).program()
    except SourceError as error:
        say_problems(error)
        ctx.exit(2)


@click.command(cls=CliCommand, name="fmt")
@click.argument("files", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if a file is not in its layout.")
@click.pass_context
def fmt(ctx: click.Context, /, *, files: tuple[str, ...], only_check: bool) -> None:
    """Format programs.

    Files are changed in place; `-` formats stdin to stdout. Comments are kept.
    """
    code = 0
    for file in files:
        code = max(code, _format(file, only_check=only_check))
    ctx.exit(code)


def _format(file: str, *, only_check: bool) -> int:
    from lyra.vega import format_source

    source_files = Files(file)
    text = source_files.text()
    try:
        formatted = format_source(text, source_files.name)
    except SourceError as error:
        say_problems(error)
        return 2
    if only_check:
        if formatted != text:
            click.echo(f"{source_files.name}: not formatted", err=True)
            return 1
    elif file == STDIN:
        sys.stdout.write(formatted)
    elif formatted != text:
        _write(file, formatted.encode())
    return 0


def _write(path: str, data: bytes) -> None:
    """All of it or nothing: a file is never left half written. A link goes on being one."""
    target = os.path.realpath(path)
    beside = f"{target}.{os.getpid()}.tmp"
    try:
        with open(beside, "xb") as file:
            file.write(data)
        if os.path.exists(target):
            os.chmod(beside, os.stat(target).st_mode & 0o7777)
        os.replace(beside, target)
    except OSError as error:
        if os.path.exists(beside):
            os.unlink(beside)
        raise ConfigError(f"{path} cannot be written: {error.strerror}", key=path) from None
