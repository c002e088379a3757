"""`vesper replay TRACE`: go through a stored execution, change a step, run on from there, and keep the change.

The steps are listed with ✓ where they were done, ✗ where the execution failed and – where guards left them out, and
with the time that acts outside took. A run tells what it changed; parameters that were edited can be written into the
file of the node, after a question, where the run was a success. Then commands are read, one a line; the end of the
input ends the replay. With `--json` each answer is one JSON object on a line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click
import msgspec

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import (
    ENDING,
    MOVING,
    CommandResult,
    CommandRow,
    TravelPrompt,
    answer_commands,
    print_answer,
)
from lyra.cli.vesper.node_files import (
    drop_unwritten,
    duration_words,
    node_named,
    outcome_data,
    outcome_lines,
    render_values,
    runtime_of,
    runtime_options,
)
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.observe.timeline.step import TravelStep
    from lyra.vesper.runtime.replaying import NodeReplay, ReplayedStep
    from lyra.vesper.values.outcome import Outcome


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
        "edit": CommandRow(
            "edit STEP NAME=VALUE",
            "change a value before a step, or of its request; without it, list them",
            ("modify",),
        ),
        "set": CommandRow("set NAME=VALUE", "change a value before the step that `next` came to"),
        "run": CommandRow("run", "run on from the first step that was changed, and tell what that changed"),
        "changes": CommandRow("changes", "what is not as it was recorded"),
        "apply": CommandRow("apply", "write the changed parameters into the file of the node"),
        **ENDING,
    }

    def __init__(self, replayer: NodeReplay) -> None:
        from lyra.observe.timeline.travel import Breakpoints
        from lyra.vesper.runtime.privacy import redaction_of

        super().__init__(replayer, Breakpoints(replayer))
        self._replayer = replayer
        self._redaction = redaction_of(replayer.program, replayer.inputs, replayer.trace.hidden)
        self.has_failed = False  # whether the latest `run` ended with an error
        self._asks = False  # whether the last line was the question about the fix

    def do(self, line: str) -> CommandResult:
        was_asked, self._asks = self._asks, False
        try:
            if was_asked and line.strip().lower() in ("y", "yes", "n", "no"):
                return self.do_apply("") if line.strip().lower().startswith("y") else self._make_message("not written")
            return super().do(line)
        except ConfigError as error:
            hint = error.hint and self._redaction.text(error.hint)
            raise ConfigError(self._redaction.text(error.message), hint=hint) from None

    def greeting(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the opening message, as lines and as data."""
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
            return self._make_message(f"before the first of {len(self.travel.steps)} steps")
        shown = self.do_show("")
        return shown._replace(text=f"{message}\n{shown.text}") if message else shown

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:  # noqa: ARG002 (no sign for it here)
        from lyra.vesper.runtime.replaying import ReplayedStep

        assert isinstance(step, ReplayedStep)
        failed = f" ({step.error})" if step.error else ""
        took = "" if step.milliseconds is None else f"  {duration_words(step.milliseconds)}"
        return f"Step {step.number}: {step.what} {step.mark}{failed}{took}"

    def do_step(self, rest: str) -> CommandResult:
        is_end = self.travel.position == len(self.travel.steps)
        return self._make_message("that was the last step") if is_end else super().do_step(rest)

    def do_show(self, rest: str) -> CommandResult:
        step = self._replayer.step(self.number(rest) if rest else max(self.travel.position, 1))
        values = render_values(step.variables, self._redaction)
        written = drop_unwritten(self._replayer.program, values)
        texts = (*(f"{name}: {value}" for name, value in written.items()), *step.effects)
        lines = [self.step_line(step), *(f"  {text}" for text in texts)]
        return CommandResult("\n".join(lines), {**step.to_data(), "variables": values, "effects": step.effects})

    def do_edit(self, rest: str) -> CommandResult:
        number, _, pair = rest.removeprefix("step ").strip().partition(" ")
        return self._edit(self.number(number), pair.strip()) if pair.strip() else self._editable(self.number(number))

    def _editable(self, number: int) -> CommandResult:
        """List the values and parameters of a step."""
        step = self._replayer.step(number)
        parts = {"values": step.variables, "parameters": step.parameters()}
        hidden = self._list_hidden_parameters(step)
        shown = {part: render_values(values, self._redaction, hidden) for part, values in parts.items()}
        lines = [f"Step {number}: {step.what}, edit {number} NAME=VALUE"]
        for part, values in shown.items():
            lines += [f"  {part}:"] * bool(values) + [f"    {name}: {value}" for name, value in values.items()]
        return CommandResult("\n".join(lines), {"step": number, **shown})

    def _list_hidden_parameters(self, step: ReplayedStep) -> frozenset[str]:
        from lyra.vesper.check.derived import list_hidden_parameters

        return list_hidden_parameters(self._replayer.program, self._redaction.names).get(step.what, frozenset())

    def do_set(self, rest: str) -> CommandResult:
        return self._edit(max(self.travel.position, 1), rest)

    def _edit(self, number: int, pair: str) -> CommandResult:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ConfigError(f"{pair!r} is no NAME=VALUE", hint="such as edit 3 timeout=60", key="command")
        step = self._replayer.step(number)
        known = {**step.parameters(), **step.variables, **self._replayer.edits.get(number, {})}
        value = _value(text, step.variables.get(name))
        self._replayer.edit(number, name, value)
        before, now = (
            render_values({name: part}, self._redaction, self._list_hidden_parameters(step))[name]
            for part in (known.get(name), value)
        )
        message = self._make_message(f"Step {number}: {name} = {now}")
        if name not in known:
            return message
        change = self._redaction.text(f"Change: {name} {before} -> {now}")
        return CommandResult(f"{message.text}\n  {change}", {**message.data, "before": before, "after": now})

    def do_run(self, _: str) -> CommandResult:
        first = min(self._replayer.edits, default=1)
        message = self._make_message(f"Re-executing from step {first}...")
        self.has_failed = self._replayer.run().error is not None
        lines, data = self._change_lines()
        lines = [message.text, *self._outcome_lines(first), *lines]
        self._asks = not self.has_failed and self._has_fix()
        if self._asks:
            lines.append("Success! Apply fix? [y/N]")
        return CommandResult(
            "\n".join(lines), [message.data, {**self._outcome_data(first), "changes": data, "has_fix": self._asks}]
        )

    def do_changes(self, _: str) -> CommandResult:
        lines, data = self._change_lines()
        return CommandResult("\n".join(lines) or "nothing is changed", {"changes": data})

    def _change_lines(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the changes of the latest run, as lines and as data."""
        rows = []
        for name, *values in self._replayer.changes():
            before, now = (
                None if value is None else render_values({name: value}, self._redaction)[name] for value in values
            )
            rows.append({"name": name, "before": before, "after": now})
        lines = [f"  {row['name']}: {row['before'] or '(none)'} -> {row['after'] or '(none)'}" for row in rows]
        return ["Changed:", *lines] if lines else [], rows

    # ------------------------------------------------------------------ the fix

    def _has_fix(self) -> bool:
        """Return whether the changed parameters can be written into the file of the node."""
        try:
            node = node_named(self._replayer.trace.node)
            return bool(node.file) and self._replayer.text_with(node) != node.document.text
        except LyraError:
            return False

    def do_apply(self, _: str) -> CommandResult:
        node = node_named(self._replayer.trace.node)
        text = self._replayer.text_with(node)
        path = Path(node.file)
        if not path.is_file():
            raise ConfigError(f"{node.node_id} has no file here", hint="run this where its .vsp file is", key="apply")
        before, after = node.document.text.splitlines(), text.splitlines()
        rows = [line for line in unified_diff(before, after, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")]
        path.write_text(text, encoding="utf-8", newline="")
        lines = [f"written to {path}:", *(f"  {row}" for row in rows)]
        return CommandResult("\n".join(map(self._redaction.text, lines)), {"file": str(path), "lines": rows})

    # ------------------------------------------------------------------ showing

    def _outcome_data(self, first: int) -> dict[str, Any]:
        replayer = self._replayer
        head = {"trace_id": replayer.trace.trace_id, "node": replayer.trace.node}
        rows = [step.to_data() for step in replayer.steps[first - 1 :]]
        return {**head, "steps": rows, **outcome_data(self._outcome(), self._redaction)}

    def _outcome_lines(self, first: int) -> list[str]:
        lines = [self.step_line(step) for step in self._replayer.steps[first - 1 :]]
        return [*lines, *outcome_lines(self._outcome(), self._redaction)]

    def _outcome(self) -> Outcome:
        from lyra.vesper.runtime.privacy import redact_outcome

        replayer = self._replayer
        failure = redact_outcome(replayer.program, replayer.inputs, replayer.outcome, replayer.trace.hidden).error
        return msgspec.structs.replace(replayer.outcome, error=failure)

    def _make_message(self, text: str) -> CommandResult:
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
