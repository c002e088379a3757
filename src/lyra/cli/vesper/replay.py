"""`vesper replay TRACE`: go through a stored execution, change a step, and run on from there; `vesper debug FILE`.

The steps are listed with ✓ where they were done, ✗ where the execution failed and – where guards left them out. Then
commands are read, one a line; the end of the input ends the replay. With `--json` each answer is one JSON object on a
line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click
import msgspec

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import (
    ENDING,
    MOVING,
    CommandPrompt,
    CommandResult,
    CommandRow,
    TravelPrompt,
    answer_commands,
    print_answer,
)
from lyra.cli.vesper.node_files import input_options, inputs_of, node_named, runtime_of, runtime_options, say_problems
from lyra.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from lyra.observe.timeline.step import TravelStep
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.runtime.debugger import DebuggerStop
    from lyra.vesper.runtime.replaying import NodeReplay
    from lyra.vesper.values.outcome import Outcome
    from lyra.vesper.values.redaction import Redaction


_PROMPT: Final = "(replay) "


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
        prompt = _NodePrompt(NodeReplay(runtime, trace_named(runtime, trace), is_live=live))
        lines, data = prompt.greeting()
        print_answer(CommandResult("\n".join(lines), data), prompt, as_json=as_json)
        is_done = answer_commands(prompt, ctx, sign=_PROMPT, as_json=as_json)
    ctx.exit(0 if is_done and not prompt.has_failed else 1)


class _NodePrompt(TravelPrompt):
    """A replay as it is shown and commanded: its fork is an edited execution that runs on."""

    is_flat: ClassVar[bool] = True
    commands: ClassVar[Mapping[str, CommandRow]] = {
        **{name: row for name, row in MOVING.items() if name != "break"},
        "step": CommandRow("next [N]", "on by one step, or N of them", ("step", "s", "next", "n")),
        "break": CommandRow("break error [CODE]", "stop there"),
        "show": CommandRow("show [STEP]", "the values before a step, and how its requests were answered"),
        "edit": CommandRow("edit STEP NAME=VALUE", "change a value before a step, or of its request", ("modify",)),
        "set": CommandRow("set NAME=VALUE", "change a value before the step that `next` came to"),
        "run": CommandRow("run", "run on from the first step that was changed"),
        **ENDING,
    }

    def __init__(self, replayer: NodeReplay) -> None:
        from lyra.observe.timeline.travel import Breakpoints
        from lyra.vesper.runtime.privacy import redaction_of

        super().__init__(replayer, Breakpoints(replayer))
        self._replayer = replayer
        self._redaction = redaction_of(replayer.program, replayer.inputs, replayer.trace.hidden)
        self.has_failed = False  # whether the latest `run` ended with an error

    def do(self, line: str) -> CommandResult:
        try:
            return super().do(line)
        except ConfigError as error:
            hint = error.hint and self._redaction.text(error.hint)
            raise ConfigError(self._redaction.text(error.message), hint=hint) from None

    def greeting(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return what is told first, as lines and as data."""
        trace, outcome = self._replayer.trace, self._replayer.outcome
        lines = [f"Replaying execution: {trace.trace_id}", f"Node: {trace.node} ({trace.path}, {trace.mode})"]
        lines.append(f"Timestamp: {datetime.fromtimestamp(trace.now, UTC).isoformat(sep=' ', timespec='seconds')}")
        data = [self._outcome_data(1)]
        lines += self._outcome_lines(1)
        recorded = trace.status, trace.code
        if (outcome.status, "" if outcome.error is None else outcome.error.code) != recorded:
            warning = f"warning: the recorded execution ended with {' '.join(recorded).strip()}"
            lines.append(warning)
            data.append({"message": warning})
        return lines, data

    # ------------------------------------------------------------------ commands

    def show_place(self, message: str = "") -> CommandResult:
        if not self.travel.position:
            return self._told(f"before the first of {len(self.travel.steps)} steps")
        shown = self.do_show("")
        return shown._replace(text=f"{message}\n{shown.text}") if message else shown

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:  # noqa: ARG002 (no sign for it here)
        from lyra.vesper.runtime.replaying import ReplayedStep

        assert isinstance(step, ReplayedStep)
        failed = f" ({step.error})" if step.error else ""
        return f"Step {step.number}: {step.what} {step.mark}{failed}"

    def do_step(self, rest: str) -> CommandResult:
        is_end = self.travel.position == len(self.travel.steps)
        return self._told("that was the last step") if is_end else super().do_step(rest)

    def do_show(self, rest: str) -> CommandResult:
        step = self._replayer.step(self.number(rest) if rest else max(self.travel.position, 1))
        values = shown_values(self._replayer.program, step.variables, self._redaction)
        texts = (*(f"{name}: {value}" for name, value in values.items()), *step.effects)
        lines = [f"Step {step.number}: {step.what} {step.mark}", *(f"  {text}" for text in texts)]
        return CommandResult("\n".join(lines), {**step.to_data(), "variables": values, "effects": step.effects})

    def do_edit(self, rest: str) -> CommandResult:
        number, _, pair = rest.removeprefix("step ").strip().partition(" ")
        return self._edit(self.number(number), pair.strip())

    def do_set(self, rest: str) -> CommandResult:
        return self._edit(max(self.travel.position, 1), rest)

    def _edit(self, number: int, pair: str) -> CommandResult:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ConfigError(f"{pair!r} is no NAME=VALUE", hint="such as edit 3 timeout=60", key="command")
        value = _value(text, self._replayer.step(number).variables.get(name))
        self._replayer.edit(number, name, value)
        shown = shown_values(self._replayer.program, {name: value}, self._redaction)
        return self._told(f"Step {number}: {name} = {shown[name]}")

    def do_run(self, _: str) -> CommandResult:
        first = min(self._replayer.edits, default=1)
        told = self._told(f"Re-executing from step {first}...")
        self.has_failed = self._replayer.run().error is not None
        return CommandResult(
            "\n".join([told.text, *self._outcome_lines(first)]), [told.data, self._outcome_data(first)]
        )

    # ------------------------------------------------------------------ showing

    def _outcome_data(self, first: int) -> dict[str, Any]:
        replayer = self._replayer
        head = {"trace_id": replayer.trace.trace_id, "node": replayer.trace.node}
        rows = [step.to_data() for step in replayer.steps[first - 1 :]]
        return {**head, "steps": rows, **outcome_data(self._outcome(), replayer.program, self._redaction)}

    def _outcome_lines(self, first: int) -> list[str]:
        lines = [self.step_line(step) for step in self._replayer.steps[first - 1 :]]
        return [*lines, *outcome_lines(self._outcome(), self._replayer.program, self._redaction)]

    def _outcome(self) -> Outcome:
        from lyra.vesper.runtime.privacy import redacted_outcome

        replayer = self._replayer
        failure = redacted_outcome(replayer.program, replayer.inputs, replayer.outcome, replayer.trace.hidden).error
        return msgspec.structs.replace(replayer.outcome, error=failure)

    def _told(self, text: str) -> CommandResult:
        shown = self._redaction.text(text)
        return CommandResult(shown, {"message": shown})


def _value(text: str, before: Any) -> Any:
    """Return a value as it is typed: text where there was a text before, else JSON where it can be read as JSON."""
    if isinstance(before, str):
        return text
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text
    return Decimal(value) if isinstance(before, Decimal) and type(value) is int else value


# ---------------------------------------------------------------- debug
# `vesper debug FILE`: execute a node on one path and stop where a breakpoint says.

_DEBUG_PROMPT: Final = "(sir-db) "


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
        redaction = redaction_of(program, inputs)
        prompt = _DebugPrompt(program, redaction, as_json=as_json)
        debugger = Debugger(path_name, breakpoints, prompt.stopped)
        mode = "python_only" if path_name == "python" else "direct_only"
        outcome = runtime.execute(node, inputs, mode, watched=debugger)
    lines = outcome_lines(outcome, program, redaction)
    data = {**outcome_data(outcome, program, redaction), "trace_id": outcome.trace_id}
    print_answer(CommandResult("\n".join(lines), data), prompt, as_json=as_json)
    ctx.exit(0 if outcome.status == "success" else 1)


class _DebugPrompt(CommandPrompt):
    """Shows stops and reads what to do at them."""

    is_flat: ClassVar[bool] = True
    commands: ClassVar[Mapping[str, CommandRow]] = {
        "step": CommandRow("step", "on to the next step", ("s", "next", "n")),
        "continue": CommandRow("continue", "on to the next breakpoint", ("c",)),
        "print": CommandRow("print NAME", "one of the values", ("p",)),
        "locals": CommandRow("locals", "all values"),
        **ENDING,
    }

    def __init__(self, program: NodeProgram, redaction: Redaction, *, as_json: bool) -> None:
        self._program = program
        self._redaction = redaction
        self._as_json = as_json
        self._values: dict[str, str] = {}
        self._order = "quit"  # what the execution does next

    def stopped(self, stop: DebuggerStop) -> str:
        """Show a stop and read commands until one goes on; the end of the input is `quit`."""
        values = self._values = shown_values(self._program, stop.variables, self._redaction)
        notes = [self._redaction.text(note) for note in stop.notes]
        texts = (*notes, *(f"{name}: {value}" for name, value in values.items()))
        lines = [f"break {stop.reason}", f"Location: {stop.location}", *(f"  {text}" for text in texts)]
        data = {"break": stop.reason, "location": stop.location, "variables": values, "notes": notes}
        print_answer(CommandResult("\n".join(lines), data), self, as_json=self._as_json)
        self._order = "quit"
        answer_commands(self, sign=_DEBUG_PROMPT, as_json=self._as_json)
        return self._order

    def do_step(self, _: str) -> CommandResult:
        self._order = "step"
        return CommandResult("", is_end=True)

    def do_continue(self, _: str) -> CommandResult:
        self._order = "continue"
        return CommandResult("", is_end=True)

    def do_print(self, name: str) -> CommandResult:
        known = self._values.get(name)
        text = f"{name} has no value here" if known is None else f"{name}: {known}"
        return CommandResult(text, {"variables": {name: known}})

    def do_locals(self, _: str) -> CommandResult:
        lines = [f"  {name}: {value}" for name, value in self._values.items()]
        return CommandResult("\n".join(lines), {"variables": self._values})


# ---------------------------------------------------------------- words

VALUE_CHARS_MAX = 300  # of one value on the screen


def outcome_data(outcome: Outcome, program: NodeProgram, redaction: Redaction) -> dict[str, Any]:
    error = None if outcome.error is None else {"code": outcome.error.code, "message": outcome.error.message}
    return {"status": outcome.status, "outputs": shown_values(program, outcome.outputs, redaction), "error": error}


def outcome_lines(outcome: Outcome, program: NodeProgram, redaction: Redaction) -> list[str]:
    failure = outcome.error
    words = outcome.status + ("" if failure is None else f" {failure.code}: {failure.message}")
    return [words, *(f"  {name}: {text}" for name, text in shown_values(program, outcome.outputs, redaction).items())]


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
