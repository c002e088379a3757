"""`vesper debug FILE`: execute a node on one path and stop where a breakpoint says.

At a stop the commands are `step` (or `next`), `continue`, `print NAME`, `locals`, `help` and `quit`; the end of the
input leaves the debugger as `quit` does. With `--json` each stop is one JSON object on a line, and so is the outcome.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import printable
from lyra.cli.vesper.node_files import input_options, inputs_of, node_named, runtime_of, runtime_options, say_problems
from lyra.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.runtime.debugger import DebuggerStop
    from lyra.vesper.values.outcome import Outcome
    from lyra.vesper.values.redaction import Redaction


_PROMPT: Final = "(sir-db) "
_GOES_ON: Final = {
    "step": "step",
    "s": "step",
    "next": "step",
    "n": "step",
    "continue": "continue",
    "c": "continue",
    "quit": "quit",
    "q": "quit",
}
_HELP: Final = "step (next), continue, print NAME, locals, quit"


@click.command(cls=CliCommand, name="debug")
@click.argument("file")
@input_options
@click.option("--path", "path_name", type=click.Choice(["python", "direct"]), default="direct", show_default=True)
@click.option(
    "--break-on",
    "forms",
    metavar="FORM",
    multiple=True,
    help="contract_violation, divergence, state_transition:A->B, step:NAME or an expression such as "
    "'input.amount > 10000'. Without one, every step is a stop.",
)
@runtime_options
@json_option
@click.pass_context
def debug(
    ctx: click.Context,
    /,
    *,
    file: str,
    pairs: tuple[str, ...],
    document: str | None,
    path_name: str,
    forms: tuple[str, ...],
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Execute the node of FILE on one path and stop at breakpoints. Its effects are performed."""
    from lyra.vesper.repository.folders import repository_around
    from lyra.vesper.runtime.debugger import Debugger, breakpoint_of
    from lyra.vesper.runtime.privacy import redaction_of

    try:
        node = node_named(file)
    except SourceError as error:
        say_problems(error)
        ctx.exit(2)
    inputs = inputs_of(node, pairs, document)
    invocation = ctx.ensure_object(Invocation)
    with runtime_of(invocation, database, providers, grants, nodes=repository_around(node.file)) as runtime:
        program = runtime.program(node)
        breakpoints = [breakpoint_of(form, node, program) for form in forms]
        screen = _Screen(program, redaction_of(program, inputs), as_json=as_json)
        runtime.paths[path_name] = Debugger(path_name, breakpoints, screen.stopped)
        outcome = runtime.execute(node, inputs, "python_only" if path_name == "python" else "direct_only")
    screen.ended(outcome)
    ctx.exit(0 if outcome.status == "success" else 1)


class _Screen:
    """Shows stops and reads what to do at them."""

    def __init__(self, program: NodeProgram, redaction: Redaction, *, as_json: bool) -> None:
        self._program = program
        self._redaction = redaction
        self._as_json = as_json

    def stopped(self, stop: DebuggerStop) -> str:
        values = shown_values(self._program, stop.variables, self._redaction)
        notes = [self._redaction.text(note) for note in stop.notes]
        if self._as_json:
            _line({"break": stop.reason, "location": stop.location, "variables": values, "notes": notes})
        else:
            say(f"break {stop.reason}")
            say(f"Location: {stop.location}")
            for text in (*notes, *(f"{name}: {value}" for name, value in values.items())):
                say(f"  {text}")
        return self._command(values)

    def _command(self, values: dict[str, str]) -> str:
        while (line := next_line(_PROMPT)) is not None:
            word, _, rest = line.partition(" ")
            if word in _GOES_ON:
                return _GOES_ON[word]
            if line:
                self._answer(word, rest.strip(), values)
        return "quit"

    def _answer(self, word: str, name: str, values: dict[str, str]) -> None:
        if self._as_json:
            wanted = values if word == "locals" else {name: values.get(name)} if word in ("print", "p") else None
            _line({"error": f"no command {word!r}", "commands": _HELP} if wanted is None else {"variables": wanted})
        elif word == "locals":
            for key, value in values.items():
                say(f"  {key}: {value}")
        elif word in ("print", "p"):
            say(f"{name}: {values[name]}" if name in values else f"{name} has no value here")
        else:
            say(_HELP if word == "help" else f"no command {word!r}: {_HELP}")

    def ended(self, outcome: Outcome) -> None:
        failure = outcome.error
        outputs = shown_values(self._program, outcome.outputs, self._redaction)
        if self._as_json:
            error = None if failure is None else {"code": failure.code, "message": failure.message}
            _line({"status": outcome.status, "outputs": outputs, "error": error, "trace_id": outcome.trace_id})
            return
        say(f"{outcome.status}" + ("" if failure is None else f" {failure.code}: {failure.message}"))
        for name, value in outputs.items():
            say(f"  {name}: {value}")


def _line(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False))


# ---------------------------------------------------------------- prompt

VALUE_CHARS_MAX = 300  # of one value on the screen


def next_line(prompt: str) -> str | None:
    """The next command; None at the end of the input. The prompt is shown to a person only."""
    if sys.stdin.isatty():
        click.echo(prompt, nl=False)
    line = sys.stdin.readline()
    return line.strip() if line else None


def say(text: str) -> None:
    click.echo(printable(text))


def shown_values(program: NodeProgram, variables: Mapping[str, Any], redaction: Redaction) -> dict[str, str]:
    """Values as texts, without sensitive ones; long ones are cut."""
    from lyra.vesper.runtime.privacy import sensitive_inputs
    from lyra.vesper.values.json_values import json_shape
    from lyra.vesper.values.redaction import REDACTED

    names = sensitive_inputs(program) | {entry.name for entry in (*program.success, *program.error) if entry.sensitive}
    texts: dict[str, str] = {}
    for name, value in variables.items():
        plain = REDACTED if name in names else json_shape(redaction.value(value))
        text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
        texts[name] = text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
    return texts
