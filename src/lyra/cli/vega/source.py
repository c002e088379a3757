"""`vega check`, `compile`, `disasm`, `fmt`, `plan`, `new` and `lsp`: what can be done with a source without running
it."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, json_option, require_lsp
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
    """All of it or nothing: a file is never left half written. A link continues being one."""
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


@click.command(cls=CliCommand, name="lsp")
@click.pass_context
def lsp(ctx: click.Context, /) -> None:
    """Run the language server on stdin and stdout.

    An editor starts it; see the how-to page "Write Vega and Vesper in an editor". Needs the lsp extra.
    """
    require_lsp()
    from lyra.lsp.server import serve
    from lyra.vega.lsp.language import VegaLanguage
    from lyra.vesper.runtime.faces import read_file

    ctx.exit(serve(VegaLanguage(read_node=read_file)))


_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")

_MAIN: Final = """\
// An agent that greets, and a budget it stays within.
import "./greeting.vega" as greeting;

fn main(args) {
    let who = "world";
    if args.len() > 0 {
        who = args[0];
    }
    session budget $0.50 {
        try {
            print(greeting::greet(who));
        } catch BudgetExceeded {
            print("out of budget");
        } catch AgentFailed(reason) {
            print("no answer: " + reason);
        }
    }
}
"""

_GREETING: Final = """\
agent Greeter {
    model "claude-sonnet-4-20250514"
    system "You greet people warmly, in one sentence."
    temperature 0.7

    retry {
        max_attempts 3
        backoff exponential(100ms, 2.0, 5s)
    }
}

fn greet(name: str) -> str {
    let greeter = spawn Greeter;
    return greeter <- "Say hello to ${name}." timeout 30s;
}

test "greets by name" {
    mock Greeter {
        on "hello to Ada" reply "Hello, Ada!"
    }
    assert(greet("Ada") == "Hello, Ada!", "the greeting names her");
}
"""

_README: Final = """\
# {name}

```console
$ vega run main.vega --model sim/echo        # without a key: the simulated model says what it was told
$ vega run main.vega -- Ada                  # with ANTHROPIC_API_KEY set
$ vega test                                  # the test blocks, with scripted answers
$ vega check main.vega && vega fmt *.vega
```

`main.vega` is the program, `greeting.vega` an agent with its test.
"""

_IGNORED: Final = "*.vgb\n*.db\n.lyra/\n"


@click.command(cls=CliCommand, name="new")
@click.argument("name")
def new(*, name: str) -> None:
    """Create a project: a program, a test, a README.

    Creates the folder NAME. Existing files are not touched.
    """
    folder = os.path.normpath(name)
    title = os.path.basename(os.path.abspath(folder))
    if not _NAME.fullmatch(title):
        raise ConfigError(f"{title!r} is not a valid project name", hint="use letters, digits, - and _", key="NAME")
    files = {
        "main.vega": _MAIN,
        "greeting.vega": _GREETING,
        "README.md": _README.format(name=title),
        ".gitignore": _IGNORED,
    }
    if os.path.isdir(folder) and os.listdir(folder):
        raise ConfigError(f"{folder} already exists and is not empty", hint="choose another name", key="NAME")
    try:
        os.makedirs(folder, exist_ok=True)
        for file, text in files.items():
            with open(os.path.join(folder, file), "x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}", key="NAME") from None
    click.echo(f"made {folder}: {', '.join(files)}")
    click.echo(f"  cd {folder} && vega run main.vega --model sim/echo")


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
        _write_picture(svg, render.svg_of(call_plan))
    if as_json:
        from lyra.cli.render import document

        document(call_plan.to_data())
    elif dot:
        click.echo(render.dot_of(call_plan), nl=False)
    elif svg is None:
        click.echo(render.text_of(call_plan), nl=False)


def _write_picture(path: str, picture: str) -> None:
    if path == "-":
        click.echo(picture, nl=False)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", key="--svg") from None
