"""`vega repl`: the language line by line.

A line that is not finished continues in the next one. The value of an expression is shown and kept as `it`; variables,
functions, agents and processes stay. An error is shown and the next line is read. `:type`, `:dis`, `:help` and `:quit`
are for the REPL itself. With text piped in it does the same without a prompt.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.arguments import dollars
from lyra.cli.command_lines import with_history
from lyra.cli.vega.durable import kernel_of
from lyra.cli.vega.files import Files, say_problem, say_problems
from lyra.errors import LyraError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.kernel.kernel import Kernel
    from lyra.vega.repl import ReplSession
    from lyra.vega.runtime.world import RunOptions


_HELP: Final = """\
  :type EXPR   the kind of an expression, without running it
  :dis EXPR    the instructions of an expression, a statement or a function, without running it
  :help        this list
  :quit        end; so does Ctrl-D
A line that is not finished goes on in the next one. The last value is `it`."""
NAME: Final = "<repl>"
_PROMPT: Final = "vega> "
_MORE: Final = "  ... "


@click.command(cls=CliCommand, name="repl")
@click.option("--model", metavar="NAME", help="Use this model for every agent; `sim/echo` needs no key.")
@click.option("--budget", metavar="$X", help="Stop before more dollars than this are spent in all.")
@click.pass_context
def repl(ctx: click.Context, /, *, model: str | None, budget: str | None) -> None:
    """Run Vega interactively, line by line.

    `:help` lists the commands of the REPL.
    """
    from lyra.vega.repl import ReplSession
    from lyra.vega.runtime.world import RunOptions
    from lyra.vesper.runtime.faces import ImportableNodes

    nodes = ImportableNodes()
    options = RunOptions(
        write=click.echo,
        warn=lambda line: click.echo(line, err=True),
        model=model,
        budget=None if budget is None else dollars(budget),
        nodes=nodes,
    )
    is_person = sys.stdin.isatty()
    if is_person:
        with_history(ctx, "vega_history")
        click.echo("Vega. :help lists the commands; :quit ends.", err=True)
    with asyncio.Runner() as runner:
        kernel = kernel_of(ctx.ensure_object(Invocation))
        runner.run(kernel.start())
        try:
            _read_all(_Repl(ReplSession(Files("").load), options, kernel, runner), is_person=is_person)
        finally:
            runner.run(kernel.close(drain_s=0.0))
            nodes.close()


def _read_all(repl: _Repl, *, is_person: bool) -> None:
    lines: list[str] = []
    while True:
        try:
            line = _line(_MORE if lines else _PROMPT, is_person=is_person)
            if line is not None and not lines and line.lstrip().startswith(":"):
                if not repl.command(line.strip()):
                    return
                continue
            if line is not None:
                lines.append(line)
            text = "\n".join(lines)
            if line is not None and repl.session.is_unfinished(text):
                continue
            lines = []
            if text.strip():
                repl.do(text)
            if line is None:
                return
        except KeyboardInterrupt:
            lines = []
            click.echo("interrupted", err=True)
            if not is_person:
                raise


def _line(prompt: str, *, is_person: bool) -> str | None:
    """Return the next line; None at the end."""
    if is_person:
        try:
            return input(prompt)
        except EOFError:
            click.echo("", err=True)
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


class _Repl:
    def __init__(self, session: ReplSession, options: RunOptions, kernel: Kernel, runner: asyncio.Runner) -> None:
        self.session = session
        self._options = options
        self._kernel = kernel
        self._runner = runner
        self._at_work: Any = None

    def command(self, line: str) -> bool:
        """Do what a line with a colon asks; False ends the REPL."""
        word, _, rest = line.partition(" ")
        commands: dict[str, Callable[[str], None]] = {":type": self._type, ":dis": self._dis, ":help": self._help}
        if word in (":quit", ":q", ":exit"):
            return False
        act = commands.get(word)
        if act is None:
            click.echo(f"there is no command {word}; :help lists them", err=True)
            return True
        try:
            act(rest.strip())
        except SourceError as error:
            self._say_wrong(error)
        return True

    def do(self, text: str) -> None:
        """Run a piece of text and show what it gives."""
        try:
            piece = self.session.compile(text)
            self._runner.run(self._ran())
        except SourceError as error:
            self._say_wrong(error)
        except LyraError as error:
            self._say_failed(error)
        except KeyboardInterrupt:
            self._at_work = None  # whatever it was doing, and what it started, ends
            raise
        else:
            value = self.session.value() if piece.is_expression else None
            if value is not None:
                from lyra.vega.values.values import render

                click.echo(f'"{value}"' if isinstance(value, str) else render(value))

    async def _ran(self) -> None:
        from lyra.vega.repl import Interactive

        if self._at_work is None:
            self._at_work = Interactive(self._kernel, self.session, self._options)
        try:
            await self._at_work.turn()
        except asyncio.CancelledError:
            self._at_work.stop()
            raise
        finally:
            if self._at_work.has_ended:
                self._at_work = None

    def _type(self, text: str) -> None:
        click.echo(self.session.type_of(text))

    def _dis(self, text: str) -> None:
        from lyra.vega.bytecode.file import disassemble_function

        trial = self.session.copy()
        piece = trial.compile(text)
        for index in trial.functions_of(piece.entry, name=text):
            lines = disassemble_function(trial.program, index).split("\n")
            click.echo("\n".join(line for line in lines if not _NOTHING.search(line)))

    @staticmethod
    def _help(_: str) -> None:
        click.echo(_HELP)

    def _say_wrong(self, error: SourceError) -> None:
        import msgspec

        problems = [problem for problem in error.fields.get("problems") or () if problem.is_error]
        for problem in problems:
            # The mistake with the line as it was typed; a line of earlier text is shown by itself.
            line = max(problem.line - self.session.lines_before, 0) if problem.file == NAME else problem.line
            say_problem(msgspec.structs.replace(problem, line=line))
        if not problems:
            say_problems(error)

    def _say_failed(self, error: LyraError) -> None:
        facts = error.fields
        click.echo(f"error[{getattr(error, 'shown_code', error.code)}]: {facts.get('text', error.message)}", err=True)
        if facts.get("line"):
            from lyra.vega.syntax.source import Diagnostic, Source

            line, column = int(facts["line"]), int(facts["column"])
            text = Source(NAME, self.session.text).line(line)
            place = Diagnostic(file=NAME, line=line, column=column, message="", text=text)
            click.echo("\n".join(place.render().split("\n")[1:]), err=True)


_NOTHING: Final = re.compile(r"^ +\d+  NOP\b")
