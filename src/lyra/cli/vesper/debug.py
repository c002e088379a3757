"""`vesper debug FILE`: execute a node and stop where a breakpoint says, on one path or on both side by side.

At a stop commands are read, one a line: those of every travel through a run, over the steps that the execution has come
to. At the last of them `step`, `next` and `continue` let the execution run on; `back` and `goto` look at earlier ones,
and undo nothing. The end of the input, and `quit`, end the node before its next step. With `--json` each answer is one
JSON object on a line of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.arguments import dollars
from lyra.cli.command_lines import (
    ENDING,
    MOVING,
    CommandResult,
    CommandRow,
    TravelPrompt,
    answer_commands,
    lines_of_file,
    print_answer,
)
from lyra.cli.vesper.node_files import (
    agent_options,
    agents_of,
    drop_unwritten,
    input_options,
    inputs_of,
    node_named,
    only_node,
    outcome_data,
    outcome_lines,
    render_values,
    runtime_of,
    runtime_options,
    say_problems,
)
from lyra.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from lyra.observe.timeline.step import TravelStep
    from lyra.observe.timeline.travel import Hit
    from lyra.vesper.runtime.debugger import DebugStep, NodeBreakpoints, NodeDebug, PathView
    from lyra.vesper.values.redaction import Redaction


_SIGN: Final = "(sir-db) "
_MODES: Final = {"python": "python_only", "direct": "direct_only"}
_COLUMN_MIN: Final = 27
_COLUMN_MAX: Final = 60


@click.command(cls=CliCommand, name="debug")
@click.argument("file", required=False)
@input_options
@click.option(
    "--path",
    "path_name",
    type=click.Choice(["python", "direct"]),
    help="The path that runs and acts outside: direct unless given, with --comparative python.",
)
@click.option("--comparative", is_flag=True, help="Run both paths side by side, and stop where they part.")
@click.option(
    "--break-on",
    "forms",
    metavar="FORM",
    multiple=True,
    help="contract_violation, divergence, state_transition:A->B, step:NAME or an expression such as "
    "'input.amount > 10000'. Without one, every step is a stop.",
)
@click.option("--commands", metavar="FILE", help="Read commands from a file, one a line, instead of stdin.")
@runtime_options
@agent_options
@json_option
@click.pass_context
def debug(
    ctx: click.Context,
    /,
    *,
    file: str | None,
    pairs: tuple[str, ...],
    document: str | None,
    path_name: str | None,
    comparative: bool,
    forms: tuple[str, ...],
    commands: str | None,
    database: str | None,
    providers: tuple[str, ...],
    grants: tuple[str, ...],
    model: str | None,
    budget: str | None,
    as_json: bool,
) -> None:
    """Execute the node of FILE (or an id; without one, the only node here) and stop at breakpoints. Its effects are
    performed, once: of two paths one is live, and the other is answered what that one was.

    `help` at the prompt lists the commands. The exit code is 1 if the node ended with an error, or a command was wrong.
    """
    from lyra.vesper.repository.folders import repository_around
    from lyra.vesper.runtime.debugger import NodeBreakpoints, NodeDebug
    from lyra.vesper.runtime.privacy import redaction_of

    try:
        node = node_named(file or only_node())
    except SourceError as error:
        say_problems(error)
        ctx.exit(2)
    lines = None if commands is None else lines_of_file(commands, key="--commands")
    inputs = inputs_of(node, pairs, document)
    live = path_name or ("python" if comparative else "direct")
    nodes = repository_around(node.file)
    more: dict[str, Any] = {"nodes": nodes, "budget": None if budget is None else dollars(budget)}
    with runtime_of(ctx.ensure_object(Invocation), database, providers, grants, **more) as runtime:
        runtime.world.agents.update(agents_of(node, nodes, model))
        program = runtime.program(node)
        session = NodeDebug(
            node,
            program,
            lambda path: runtime.execute(node, inputs, _MODES[live], watched=path),
            live=live,
            compares=comparative or "divergence" in forms,
        )
        breakpoints = NodeBreakpoints(session)
        for form in forms:
            breakpoints.add(form)
        if comparative and "divergence" not in forms:
            breakpoints.add("divergence")
        prompt = _DebugPrompt(session, breakpoints, redaction_of(program, inputs), is_wide=comparative)
        prompt.reads_person = lines is None and sys.stdin.isatty()
        with session:
            print_answer(prompt.begin(is_stepping=not forms), prompt, as_json=as_json)
            is_done = answer_commands(prompt, ctx, sign=_SIGN, lines=lines, as_json=as_json)
        if session.outcome is None:
            session.outcome = session.result()
            print_answer(prompt.outcome_result(), prompt, as_json=as_json)
    ctx.exit(0 if is_done and session.outcome.status == "success" else 1)


class _DebugPrompt(TravelPrompt):
    """The steps that an execution has come to, as they are shown and commanded."""

    is_flat: ClassVar[bool] = True
    commands: ClassVar[Mapping[str, CommandRow]] = {
        "step": CommandRow("step [N]", "on to the next step, or N of them; also into loops and branches", ("s",)),
        "next": CommandRow("next [N]", "on to the next step that is not inside this one", ("n",)),
        "continue": CommandRow("continue", "on to the next breakpoint, or to the end", ("c",)),
        "back": MOVING["back"],
        "goto": CommandRow("goto N", "to step N; `end` is the last one that the execution has come to", ("g",)),
        "find": MOVING["find"],
        "reverse-continue": MOVING["reverse-continue"],
        "print": CommandRow("print EXPRESSION", "a value, or what an expression over values comes to", ("p",)),
        "locals": CommandRow("locals", "all values"),
        "break": CommandRow("break FORM", "stop there; the forms are those of --break-on"),
        "watch": CommandRow("watch EXPRESSION", "stop where its value has changed", ("w",)),
        "breaks": MOVING["breaks"],
        "delete": MOVING["delete"],
        "steps": MOVING["steps"],
        **ENDING,
    }

    def __init__(
        self, session: NodeDebug, breakpoints: NodeBreakpoints, redaction: Redaction, *, is_wide: bool
    ) -> None:
        super().__init__(session, breakpoints)
        self._session = session
        self._points = breakpoints
        self._redaction = redaction
        self._is_wide = is_wide
        self.reads_person = False

    def begin(self, *, is_stepping: bool) -> CommandResult:
        """Run to the first stop: a breakpoint, or the first step."""
        result = self.do_step("") if is_stepping else self.do_continue("")
        if not self._is_wide:
            return result
        return result._replace(text=f"Comparative Debugging Session\n{'=' * 40}\n\n{result.text}")

    def on_interrupt(self) -> None:
        """Ctrl-C while the execution runs on: a person has the prompt again, a script ends."""
        if not self.reads_person:
            raise KeyboardInterrupt

    # ------------------------------------------------------------------ moving

    def do_step(self, rest: str) -> CommandResult:
        return self._move(self.count(rest), passes_over=False)

    def do_next(self, rest: str) -> CommandResult:
        return self._move(self.count(rest), passes_over=True)

    def _move(self, count: int, *, passes_over: bool) -> CommandResult:
        """Move forward by a number of steps, or to the first breakpoint on the way; on request over the steps inside a
        step."""
        if self._is_at_end():
            return self._message("the execution has ended")
        hit = None
        while count and hit is None and not self._is_at_end():
            here = self.travel.step_at(self.travel.position)
            self.travel.advance(1)
            hit = self.breakpoints.stop_at(self.travel.position)
            while passes_over and hit is None and here is not None and self._session.is_inside(here.what):
                self.travel.advance(1)
                hit = self.breakpoints.stop_at(self.travel.position)
            count -= 1
        return self._show_stop(hit)

    def do_continue(self, rest: str) -> CommandResult:
        return self._message("the execution has ended") if self._is_at_end() else super().do_continue(rest)

    def _is_at_end(self) -> bool:
        return self._session.is_over and self.travel.position == len(self.travel.steps)

    def _show_stop(self, hit: Hit | None) -> CommandResult:
        return self.show_place("step" if hit is None else hit.breakpoint.kind)

    def show_place(self, message: str = "step") -> CommandResult:
        if not self.travel.position:
            return self._message("before the first step")
        step = self._session.steps[self.travel.position - 1]
        if step.kind == "end" and message == "step":
            return self.outcome_result()
        show = self._show_both if self._is_wide else self._show_one
        notes = self._notes(step, message)
        result = show(step, message, notes)
        if step.kind != "end":
            return result
        end = self.outcome_result()
        return CommandResult(f"{result.text}\n{end.text}", [result.data, end.data])

    def _notes(self, step: DebugStep, reason: str) -> list[str]:
        """Return the reason why the execution stopped, beside the breakpoint."""
        from lyra.vesper.runtime.privacy import redact_differences

        notes = [step.violation] if step.violation else []
        if step.kind == "end":
            rows = redact_differences(self._session.program, step.differences, self._redaction)
            notes += [f"{row['path']}: {row['python']} | {row['direct']}" for row in rows]
        else:
            before = self._session.steps[step.number - 2].what if step.number > 1 else "the entry"
            for row in step.differences:
                values = [self._render({row["path"]: row[path]})[row["path"]] for path in ("python", "direct")]
                notes.append(f"after {before}, {row['path']}: {' | '.join(values)}")
        if reason.startswith("watch "):
            text = reason.removeprefix("watch ")
            old, new = (self._value(text, number) for number in (step.number - 1, step.number))
            notes.append(f"{text}: {old or '(none)'} -> {new or '(none)'}")
        return [self._redaction.text(note) for note in notes]

    # ------------------------------------------------------------------ one path

    def _show_one(self, step: DebugStep, reason: str, notes: list[str]) -> CommandResult:
        values = self._values(step.views[self._session.live.name])
        written = self._render_written(step.views[self._session.live.name])
        texts = [*notes, *(f"{name}: {value}" for name, value in written.items())]
        lines = [f"break {reason}", f"Location: {step.what}", *(f"  {text}" for text in texts)]
        calls = self._session.calls(step)
        call = calls.get(self._session.live.name, "")
        if call:
            lines.append(f"About to call: {call}")
        head = {"break": reason, "step": step.number, "location": step.what}
        return CommandResult("\n".join(lines), {**head, "variables": values, "notes": notes, "calls": calls})

    # ------------------------------------------------------------------ both paths

    def _show_both(self, step: DebugStep, reason: str, notes: list[str]) -> CommandResult:
        calls = self._session.calls(step)
        data: dict[str, Any] = {"break": reason, "step": step.number, "location": step.what, "notes": notes}
        names = ("python", "direct")
        values = {}
        for name in names:
            view = step.views[name]
            values[name] = self._values(view)
            place = None if view is None else view.location
            data[name] = {"location": place, "variables": values[name], "call": calls.get(name)}
        rows = [(self._place(step.views["python"]), self._place(step.views["direct"]), True)]
        shown = {name: self._render_written(step.views[name]) for name in names}
        known = list(dict.fromkeys((*shown["python"], *shown["direct"])))
        if known:
            rows.append(("Variables:", "Variables:", True))
        for name in known:
            left, right = (shown[path].get(name) for path in names)
            texts = ("" if value is None else f"  {name}: {value}" for value in (left, right))
            rows.append((next(texts), next(texts), left == right or left is None or right is None))
        if calls:
            left, right = (f"  {calls[name]}" if name in calls else "" for name in names)
            rows += [("About to call:", "About to call:", True), (left, right, True)]
        lines = [f"break {reason}", *(f"  {note}" for note in notes), *side_by_side(rows)]
        return CommandResult("\n".join([*lines, ""]), data)

    def _place(self, view: PathView | None) -> str:
        if view is None:
            return "Location: (follows when the steps around this one are over)"
        return f"Location: {view.location}" + (" (ended)" if view.has_ended else "")

    # ------------------------------------------------------------------ values

    def do_locals(self, _: str) -> CommandResult:
        if not self.travel.position:
            return self._message("before the first step")
        step = self._session.steps[self.travel.position - 1]
        if self._is_wide:
            return self._show_both(step, "step", [])
        view = step.views[self._session.live.name]
        values, written = self._values(view), self._render_written(view)
        return CommandResult("\n".join(f"  {name}: {value}" for name, value in written.items()), {"variables": values})

    def do_print(self, text: str) -> CommandResult:
        if not text:
            raise ConfigError("print what?", hint="print EXPRESSION, such as print amount * 2")
        known: dict[str, str | None] = {}
        for name in self._session.paths:
            known[name] = self._value(text, self.travel.position, name)
        shown = list(known.values()) if self._is_wide else [known[self._session.live.name]]
        if not any(value is not None for value in shown):
            return CommandResult(f"{text} has no value here", {"variables": {text: None}})
        line = f"{text}: {' | '.join('(none)' if value is None else value for value in shown)}"
        return CommandResult(line, {"variables": {text: known if self._is_wide else shown[0]}})

    def do_watch(self, text: str) -> CommandResult:
        if not text:
            raise ConfigError("watch what?", hint="watch EXPRESSION, such as watch total")
        point = self._points.watch(text)
        return CommandResult(f"breakpoint {point}", point.to_data())

    def _value(self, text: str, position: int, path: str = "") -> str | None:
        """Return the value of a name or an expression as it is shown; None where it has none."""
        from lyra.vesper.direct.frames import names_in
        from lyra.vesper.runtime.debugger import type_expression
        from lyra.vesper.values.outcome import NodeError
        from lyra.vesper.values.redaction import REDACTED

        step = self._session.steps[position - 1] if position else None
        view = None if step is None else step.views[path or self._session.live.name]
        variables = {} if view is None else view.variables
        if text in variables:
            return self._render({text: variables[text]})[text]
        program = self._session.program
        try:
            expression = type_expression(text, self._session.node, program)
        except ConfigError:
            if text.isidentifier():
                return None
            raise
        if names_in(expression) & self._redaction.names:
            return REDACTED
        try:
            return self._render({"": self._session.evaluate(expression, variables)})[""]
        except (NodeError, KeyError):
            return None

    def _values(self, view: PathView | None) -> dict[str, str]:
        return {} if view is None else self._render(view.variables)

    def _render_written(self, view: PathView | None) -> dict[str, str]:
        """Return the values that steps have written, texts in quotes."""
        from lyra.vesper.values.redaction import REDACTED

        if view is None:
            return {}
        texts = drop_unwritten(self._session.program, self._values(view))
        plain = {
            name for name, value in view.variables.items() if isinstance(value, str) and texts.get(name) != REDACTED
        }
        return {name: json.dumps(text, ensure_ascii=False) if name in plain else text for name, text in texts.items()}

    def _render(self, variables: Mapping[str, Any]) -> dict[str, str]:
        return render_values(variables, self._redaction)

    # ------------------------------------------------------------------ words

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:
        words = "the end" if step.kind == "end" else self._session.call_words(step.what)
        return f"{'>' if is_here else ' '} {step.number}: {step.what}  {self._redaction.text(words)}"

    def choices(self, name: str, rest: str) -> Iterable[str]:
        if name not in ("break", "print", "watch") or " " in rest:
            return ()
        names = [*self._session.values_at(self.travel.position)]
        steps = [f"step:{step}" for step in self._session.enclosing]
        return [*names, "contract_violation", "divergence", *steps] if name == "break" else names

    def outcome_result(self) -> CommandResult:
        """Return how the execution ended."""
        outcome = self._session.outcome
        assert outcome is not None
        lines = outcome_lines(outcome, self._redaction)
        data = {**outcome_data(outcome, self._redaction), "trace_id": outcome.trace_id}
        return CommandResult("\n".join(lines), data)

    def _message(self, text: str) -> CommandResult:
        return CommandResult(text, {"message": text})


def side_by_side(rows: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Return lines with the Python path on the left and the direct one on the right; ≠ where they are not the same."""
    rows = [*rows]
    width = min(max(_COLUMN_MIN, *(len(left) for left, _, _ in rows)), _COLUMN_MAX)
    lines = [f"{'PYTHON RUNTIME':<{width}} | DIRECT RUNTIME", f"{'-' * (width + 1)}+{'-' * (width + 1)}"]
    for left, right, is_same in rows:
        cut = left if len(left) <= width else f"{left[: width - 1]}…"
        lines.append(f"{cut:<{width}} {'|' if is_same else '≠'} {right}".rstrip())
    return lines
