"""`vesper replay TRACE`: go through a stored execution, change a step, and run on from there.

The steps are listed with ✓ where they were done, ✗ where the execution failed and – where guards left them out. Then
commands are read, one a line: `next`, `show [STEP]`, `edit STEP NAME=VALUE`, `set NAME=VALUE` for the step that `next`
came to, `run`, `help` and `quit`; the end of the input ends the replay. With `--json` each answer is one JSON object on
a line of its own.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import printable
from lyra.cli.vesper.node_files import input_options, inputs_of, node_named, runtime_of, runtime_options, say_problems
from lyra.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.runtime.debugger import DebuggerStop
    from lyra.vesper.runtime.replaying import NodeReplay, ReplayedStep
    from lyra.vesper.values.outcome import Outcome
    from lyra.vesper.values.redaction import Redaction


_PROMPT: Final = "(replay) "
_HELP: Final = "next, show [STEP], edit STEP NAME=VALUE, set NAME=VALUE, run, quit"


@click.command(cls=CliCommand, name="replay")
@click.argument("trace")
@click.option("--live", is_flag=True, help="Perform effects after an edit that the journal does not have.")
@runtime_options
@json_option
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    *,
    trace: str,
    live: bool,
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Go through the execution TRACE (a trace id that `vesper run --json` prints) and run it again with changes.

    Executions that act outside are stored always, those of pure nodes by `vesper run`. Nothing is performed again
    without --live. The exit code is 1 if a command was wrong, or if the last `run` ended with an error.
    """
    from lyra.vesper.runtime.replaying import NodeReplay, trace_named

    with runtime_of(ctx.ensure_object(Invocation), database, providers, grants) as runtime:
        session = _Session(NodeReplay(runtime, trace_named(runtime, trace), is_live=live), as_json=as_json)
        session.begin()
        is_ok = session.commands()
    ctx.exit(0 if is_ok else 1)


class _Session:
    """A replay as it is shown and commanded."""

    def __init__(self, replayer: NodeReplay, *, as_json: bool) -> None:
        from lyra.vesper.runtime.privacy import redaction_of

        self._replayer = replayer
        self._as_json = as_json
        self._redaction = redaction_of(replayer.program, replayer.inputs, replayer.trace.hidden)
        self._has_failed = False  # whether the latest `run` ended with an error
        self._place = 0  # number of the step that `next` came to

    def begin(self) -> None:
        trace = self._replayer.trace
        time = datetime.fromtimestamp(trace.now, UTC).isoformat(sep=" ", timespec="seconds")
        if not self._as_json:
            say(f"Replaying execution: {trace.trace_id}")
            say(f"Node: {trace.node} ({trace.path}, {trace.mode})")
            say(f"Timestamp: {time}")
        self._show_all(1)
        recorded = trace.status, trace.code
        if (self._replayer.outcome.status, self._code()) != recorded:
            self._tell(f"warning: the recorded execution ended with {' '.join(recorded).strip()}")

    def commands(self) -> bool:
        """Answer commands to the end; whether all could be obeyed and the last run that they made had no error."""
        is_ok = True
        while (line := next_line(_PROMPT)) not in (None, "quit", "q"):
            if not line:
                continue
            try:
                self._obey(*_words(line))
            except ConfigError as error:
                is_ok = False
                self._tell(f"{error.message}" + (f" ({error.hint})" if error.hint else ""), key="error")
        return is_ok and not self._has_failed

    def _obey(self, word: str, rest: str) -> None:
        match word:
            case "next" | "n":
                if self._place >= len(self._replayer.steps):
                    self._tell("that was the last step")
                    return
                self._place += 1
                self._show(self._step(self._place))
            case "show":
                self._show(self._step(_number(rest) if rest else max(self._place, 1)))
            case "edit" | "modify":
                number, pair = _words(rest.removeprefix("step ").strip())
                self._edit(_number(number), pair)
            case "set":
                self._edit(max(self._place, 1), rest)
            case "run":
                self._run()
            case "help":
                self._tell(_HELP)
            case _:
                raise ConfigError(f"no command {word!r}", hint=_HELP, key="command")

    def _edit(self, number: int, pair: str) -> None:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"{pair!r} is no NAME=VALUE", hint="such as edit 3 timeout=60", key="command")
        before = self._step(number).variables.get(name.strip())
        value = _value(text.strip(), before)
        self._replayer.edit(number, name.strip(), value)
        shown = shown_values(self._replayer.program, {name.strip(): value}, self._redaction)
        self._tell(f"Step {number}: {name.strip()} = {shown[name.strip()]}")

    def _run(self) -> None:
        first = min(self._replayer.edits, default=1)
        self._tell(f"Re-executing from step {first}...")
        self._has_failed = self._replayer.run().error is not None
        self._show_all(first)

    # ------------------------------------------------------------------ showing

    def _show_all(self, first: int) -> None:
        steps = self._replayer.steps[first - 1 :]
        if self._as_json:
            outputs = shown_values(self._replayer.program, self._replayer.outcome.outputs, self._redaction)
            failure = self._failure()
            error = None if failure is None else {"code": failure.code, "message": failure.message}
            head = {"trace_id": self._replayer.trace.trace_id, "node": self._replayer.trace.node}
            rows = [{"step": step.number, "name": step.name, "mark": _mark(step)} for step in steps]
            _line({**head, "steps": rows, "status": self._replayer.outcome.status, "outputs": outputs, "error": error})
            return
        for step in steps:
            failed = "" if step.is_done else f" ({self._code()})"
            say(f"Step {step.number}: {step.name} {_mark(step)}{failed}")
        self._show_outcome()

    def _show_outcome(self) -> None:
        outcome, failure = self._replayer.outcome, self._failure()
        say(outcome.status + ("" if failure is None else f" {failure.code}: {failure.message}"))
        for name, text in shown_values(self._replayer.program, outcome.outputs, self._redaction).items():
            say(f"  {name}: {text}")

    def _failure(self) -> Any:
        from lyra.vesper.runtime.privacy import redacted_outcome

        replayer = self._replayer
        return redacted_outcome(replayer.program, replayer.inputs, replayer.outcome, replayer.trace.hidden).error

    def _code(self) -> str:
        failure = self._replayer.outcome.error
        return "" if failure is None else failure.code

    def _show(self, step: ReplayedStep) -> None:
        values = shown_values(self._replayer.program, step.variables, self._redaction)
        if self._as_json:
            row = {"step": step.number, "name": step.name, "mark": _mark(step)}
            _line({**row, "variables": values, "effects": step.effects})
            return
        say(f"Step {step.number}: {step.name} {_mark(step)}")
        for text in (*(f"{name}: {value}" for name, value in values.items()), *step.effects):
            say(f"  {text}")

    def _step(self, number: int) -> ReplayedStep:
        steps = self._replayer.steps
        if not 1 <= number <= len(steps):
            raise ConfigError(f"there is no step {number}", hint=f"1 to {len(steps)}", key="STEP")
        return steps[number - 1]

    def _tell(self, text: str, key: str = "message") -> None:
        shown = self._redaction.text(text)
        if self._as_json:
            _line({key: shown})
        else:
            say(shown)


def _mark(step: ReplayedStep) -> str:
    return "–" if step.is_skipped else "✓" if step.is_done else "✗"


def _words(line: str) -> tuple[str, str]:
    word, _, rest = line.partition(" ")
    return word, rest.strip()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{text!r} is no number of a step", key="STEP")
    return int(text[:9])


def _value(text: str, before: Any) -> Any:
    """A value as it is typed: text where there was a text before, else JSON where it can be read as JSON."""
    if isinstance(before, str):
        return text
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text
    return Decimal(value) if isinstance(before, Decimal) and type(value) is int else value


def _line(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False))


# ---------------------------------------------------------------- debug
# `vesper debug FILE`: execute a node on one path and stop where a breakpoint says.

_DEBUG_PROMPT: Final = "(sir-db) "
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
_DEBUG_HELP: Final = "step (next), continue, print NAME, locals, quit"


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
            _debug_line({"break": stop.reason, "location": stop.location, "variables": values, "notes": notes})
        else:
            say(f"break {stop.reason}")
            say(f"Location: {stop.location}")
            for text in (*notes, *(f"{name}: {value}" for name, value in values.items())):
                say(f"  {text}")
        return self._command(values)

    def _command(self, values: dict[str, str]) -> str:
        while (line := next_line(_DEBUG_PROMPT)) is not None:
            word, _, rest = line.partition(" ")
            if word in _GOES_ON:
                return _GOES_ON[word]
            if line:
                self._answer(word, rest.strip(), values)
        return "quit"

    def _answer(self, word: str, name: str, values: dict[str, str]) -> None:
        if self._as_json:
            wanted = values if word == "locals" else {name: values.get(name)} if word in ("print", "p") else None
            _debug_line(
                {"error": f"no command {word!r}", "commands": _DEBUG_HELP} if wanted is None else {"variables": wanted}
            )
        elif word == "locals":
            for key, value in values.items():
                say(f"  {key}: {value}")
        elif word in ("print", "p"):
            say(f"{name}: {values[name]}" if name in values else f"{name} has no value here")
        else:
            say(_DEBUG_HELP if word == "help" else f"no command {word!r}: {_DEBUG_HELP}")

    def ended(self, outcome: Outcome) -> None:
        failure = outcome.error
        outputs = shown_values(self._program, outcome.outputs, self._redaction)
        if self._as_json:
            error = None if failure is None else {"code": failure.code, "message": failure.message}
            _debug_line({"status": outcome.status, "outputs": outputs, "error": error, "trace_id": outcome.trace_id})
            return
        say(f"{outcome.status}" + ("" if failure is None else f" {failure.code}: {failure.message}"))
        for name, value in outputs.items():
            say(f"  {name}: {value}")


def _debug_line(data: dict[str, Any]) -> None:
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
