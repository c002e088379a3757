"""`lyra replay STORE PID`: look at a run as it was at any moment, forwards and backwards; fork it from there.

Without options it is a prompt, which reads one command a line from a terminal or a pipe. `--steps`, `--at` and `--json`
print and end. Looking writes nothing, also while a kernel runs the run; only `--fork-at`, `--resume` and `fork` do.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import (
    ENDING,
    MOVING,
    CommandResult,
    CommandRow,
    TravelPrompt,
    answer_commands,
    split_quoted,
)
from lyra.cli.render import document, note, printable
from lyra.cli.replay.fork import OpenedRun, ProgramFile, RunVariables, go_on, make_fork, open_run, open_stored
from lyra.errors import ConfigError, LyraError
from lyra.observe.timeline.step import RunStep, TravelStep, token_count
from lyra.observe.timeline.timeline import COMPACTED, RunTimeline
from lyra.observe.timeline.travel import Breakpoints, RunDifference, Travel, compare_runs

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange


_FORK_WORDS: Final = ("reply", "result", "prompt", "model", "system")
_FORK: Final = f'fork [{"|".join(_FORK_WORDS)} "TEXT"]'

Forker = Callable[[int, "StepChange"], dict[str, Any]]


class RunPrompt(TravelPrompt):
    """A run of processes. `fork(number, change)` makes a fork and tells the outcome of it."""

    commands: ClassVar[Mapping[str, CommandRow]] = {
        **MOVING,
        "show": CommandRow("show", "this moment: conversation, variables, budget, mailbox, tree"),
        "detail": CommandRow("detail", "this step with its whole values", ("d",)),
        "conversation": CommandRow("conversation", "what was said so far", ("c",)),
        "vars": CommandRow("vars", "what is known of the variables", ("v",)),
        "budget": CommandRow("budget", "what was used, set aside, and the limits"),
        "mailbox": CommandRow("mailbox", "the messages that wait", ("m",)),
        "tree": CommandRow("tree", "the processes as they were", ("t",)),
        "cost": CommandRow("cost", "what was spent so far, and in all"),
        "fork": CommandRow(_FORK, "run on from this step as a process of its own, with a change"),
        **ENDING,
    }

    def __init__(self, timeline: RunTimeline, variables: RunVariables, fork: Forker) -> None:
        travel = Travel(timeline.steps)
        super().__init__(travel, Breakpoints(travel))
        self.timeline = timeline
        self._variables = variables
        self._fork_run = fork

    def choices(self, name: str, rest: str) -> Iterable[str]:
        return _FORK_WORDS if name == "fork" and " " not in rest else super().choices(name, rest)

    def show_place(self, message: str = "") -> CommandResult:
        step = self._step()
        place = (
            f"> before the first of {len(self.timeline.steps)} steps" if step is None else step_line(step, is_here=True)
        )
        return _lines_prompt([message, place] if message else [place])

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:
        assert isinstance(step, RunStep)
        return step_line(step, is_here=is_here)

    def do_step(self, rest: str) -> CommandResult:
        """Continue, with a line for each step that is passed; a run that is under way may have more by now."""
        self.timeline.refresh()
        passed = self.travel.position
        if passed == len(self.timeline.steps):
            return _lines_prompt(["this is the end" if self.timeline.ended_as else "this is the last step so far"])
        super().do_step(rest)
        steps = self.timeline.page(passed, self.travel.position - passed - 1)
        return _lines_prompt([*(step_line(step) for step in steps), self.show_place().text])

    def _step(self) -> RunStep | None:
        return self.timeline.step(self.travel.position) if self.travel.position else None

    def _moment(self) -> dict[str, Any]:
        return self.timeline.moment(self.travel.position)

    # ------------------------------------------------------------------ looking

    def do_show(self, _: str) -> CommandResult:
        return _lines_prompt(moment_lines(self._variables.moment(self.travel.position), self._step()))

    def do_detail(self, _: str) -> CommandResult:
        detail = self.timeline.detail(self.travel.position)
        return _lines_prompt(
            value_lines({name: value for name, value in detail.items() if value not in (None, "", {})})
        )

    def do_conversation(self, _: str) -> CommandResult:
        return _lines_prompt(conversation_lines(self._moment()["conversation"]), "nothing was said")

    def do_vars(self, _: str) -> CommandResult:
        return _lines_prompt(variable_lines(self._variables.moment(self.travel.position)), "none are known")

    def do_budget(self, _: str) -> CommandResult:
        return _lines_prompt(budget_lines(self._moment()["budget"]), "nothing was used, and nothing is limited")

    def do_mailbox(self, _: str) -> CommandResult:
        return _lines_prompt([f"  {text}" for text in self._moment()["mailbox"]["messages"]], "empty")

    def do_tree(self, _: str) -> CommandResult:
        return _lines_prompt(tree_lines(self._moment()["tree"]), "no process yet")

    def do_cost(self, _: str) -> CommandResult:
        so_far, in_all = self.timeline.totals(self.travel.position), self.timeline.totals()
        return _lines_prompt([f"so far {cost_words(so_far)}", f"in all {cost_words(in_all)}"])

    def do_fork(self, rest: str) -> CommandResult:
        from lyra.agents.forks.change import StepChange

        words = split_quoted(rest, example='fork reply "no"')
        if words and (words[0] not in _FORK_WORDS or len(words) != 2):
            raise ConfigError("fork how?", hint=_FORK)
        if not self.travel.position:
            raise ConfigError("there is no step here to fork at", hint="go to a step first: step, goto N")
        value: Any = words[1] if words else None
        if words and words[0] == "result":
            value = result_value(value)
        change = StepChange(**({words[0]: value} if words else {}))
        return _lines_prompt(fork_lines(self._fork_run(self.travel.position, change)))


def _lines_prompt(lines: list[str], otherwise: str = "") -> CommandResult:
    return CommandResult("\n".join(lines) or otherwise)


def result_value(text: str) -> Any:
    """Return a result as it is typed: JSON, or else the text itself."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fork_lines(facts: dict[str, Any]) -> list[str]:
    """Return the outcome of a fork."""
    lines = [f"fork {facts['fork']} of {facts['of']} at step {facts['at']}: {facts['state']}"]
    if facts.get("question"):
        lines.append(f"it asks a person: {facts['question']}")
    if facts["answer"] is not None:
        lines.append(f"it came to: {facts['answer']}")
    if facts["error"]:
        lines.append(f"it failed: {facts['error']}")
    first = facts["first_difference"]
    lines.append("the runs are the same" if first is None else f"step {first} is the first that differs")
    lines.append(f"cost {cost_words(facts)}")
    return [printable(line) for line in lines]


# ---------------------------------------------------------------- words

_TEXT_SHOWN: Final = 2_000
_KIND_WIDTH: Final = 10


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.6f}".rstrip("0").rstrip(".") if micro_usd else "$0"


def step_line(step: RunStep, *, is_here: bool = False, side: str = "") -> str:
    """One step on one line: number, kind, what, the outcome of it, what it cost. `side` stands before it."""
    came = f" → {step.status}: {step.error}" if step.error else f" → {step.result}" if step.result else ""
    if step.status in ("running", "waiting", "cut_off"):
        came = f" → {step.status}"
    asked = f" {step.request}" if step.request else ""
    cost = f"  {dollars(step.micro_usd)}" if step.micro_usd else ""
    tokens = f"  {step.tokens} tokens" if step.tokens else ""
    recorded = "  (recorded)" if step.is_recorded and (step.micro_usd or step.tokens) else ""
    tries = f"  {step.tries} tries" if step.tries > 1 else ""
    head = f"{side}{'>' if is_here else ' '}{step.number:>4} {step.pid:<8} {step.kind:<{_KIND_WIDTH}}"
    # The line cut to the width of the terminal; for a pipe it is whole.
    line = printable(f"{head} {step.what}{asked}{came}{cost}{tokens}{recorded}{tries}")
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def cost_words(totals: Mapping[str, Any]) -> str:
    usage, recorded = totals["usage"], totals["recorded"]
    words = f"{dollars(usage.get('usd', 0))}, {token_count(usage)} tokens, {usage.get('llm_calls', 0)} model calls"
    if recorded:
        words += (
            f" (and {dollars(recorded.get('usd', 0))}, {token_count(recorded)} tokens in the run it was forked from)"
        )
    return words


def conversation_lines(conversation: Mapping[str, Any]) -> list[str]:
    messages = conversation["messages"]
    lines = []
    if conversation["count"] > len(messages):
        lines.append(f"  … {conversation['count'] - len(messages)} messages before these")
    for message in messages:
        if message["text"] or not (message.get("tool_calls") or message.get("tool_results")):
            lines += _indent(f"{message['role']}: {message['text']}")
        for call in message.get("tool_calls", ()):
            lines += _indent(f"{message['role']} calls {call['name']}({_json(call['arguments'])})")
        for result in message.get("tool_results", ()):
            word = "fails" if result.get("is_error") else "gives"
            outcome = "has no result yet" if result.get("is_open") else f"{word} {_json(result['output'])}"
            lines += _indent(f"tool {result['name']} {outcome}")
    return [printable(line) for line in lines]


def value_lines(values: Mapping[str, Any]) -> list[str]:
    return [printable(f"  {name} = {_json(value)[:_TEXT_SHOWN]}") for name, value in values.items()]


def variable_lines(moment: Mapping[str, Any]) -> list[str]:
    """Return the variables of the program where it is known, a function a block, and what the journal knows."""
    lines = []
    for frame in moment.get("frames", ()):
        beside = f" (beside others: {frame['branch']})" if frame["branch"] else ""
        lines.append(printable(f"  in {frame['function']}, {_short_path(frame['file'])}:{frame['line']}{beside}"))
        lines += [f"  {line}" for line in value_lines(frame["variables"])]
    known = value_lines(moment["variables"])
    return [*lines, "  from the journal", *(f"  {line}" for line in known)] if lines and known else [*lines, *known]


def _short_path(file: str) -> str:
    """Return a file below the current folder as it is called from there."""
    here = os.path.join(os.getcwd(), "")
    return file[len(here) :] if file.startswith(here) else file


def budget_lines(budget: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for scope in budget:
        names = dict.fromkeys((*scope["limits"], *scope["used"], *scope["reserved"]))
        for name in names:
            if name in ("on_exceed",):
                continue
            lines.append(f"  {scope['pid']} {name}: {_amounts(name, scope)}")
    return [printable(line) for line in lines]


def _amounts(name: str, scope: Mapping[str, Any]) -> str:
    def render_amount(amount: Any) -> str:
        return dollars(amount) if name == "usd" and isinstance(amount, int) else str(amount)

    used, reserved, limit = scope["used"].get(name, 0), scope["reserved"].get(name, 0), scope["limits"].get(name)
    recorded = scope.get("recorded", {}).get(name, 0)
    words = f"{render_amount(used)} used"
    words += f", {render_amount(reserved)} set aside" if reserved else ""
    words += f", of {render_amount(limit)}" if limit is not None else ""
    return words + (f" (recorded: {render_amount(recorded)})" if recorded else "")


def tree_lines(tree: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in tree:
        words = [
            row["name"] or row["program"],
            row["pid"],
            row["state"] + (f": {row['reason']}" if row["reason"] else ""),
        ]
        if row["starts"] > 1:
            words.append(f"start {row['starts']}")
        if row["doing"]:
            words.append(f"at {row['doing']}")
        if row["micro_usd"]:
            words.append(dollars(row["micro_usd"]))
        if row["error"]:
            words.append(row["error"])
        lines.append(printable(f"  {'  ' * row['depth']}{'  '.join(words)}"))
    return lines


def moment_lines(moment: Mapping[str, Any], step: RunStep | None) -> list[str]:
    """Everything about a moment."""
    lines = [step_line(step, is_here=True) if step is not None else "> before the first step"]
    sections = (
        ("conversation", conversation_lines(moment["conversation"])),
        ("variables", variable_lines(moment)),
        ("budget", budget_lines(moment["budget"])),
        ("mailbox", [printable(f"  {text}") for text in moment["mailbox"]["messages"]]),
        ("tree", tree_lines(moment["tree"])),
    )
    for title, part in sections:
        if part:
            lines += [f"{title}:", *part]
    return lines


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _indent(text: str) -> list[str]:
    first, *rest = text[:_TEXT_SHOWN].split("\n")
    return [f"  {first}", *(f"    {line}" for line in rest)]


_FILE: Final = click.Path(exists=True, dir_okay=False)
_CHANGES: Final = ("reply", "prompt", "model", "system", "tool_result")
_MODES: Final = ("lists_steps", "place", "fork_at", "resume")  # without one of them it is a prompt
# How the options are written, by the names that they have here.
_OPTIONS: Final = {
    **{name: f"--{name.replace('_', '-')}" for name in (*_CHANGES, "process", "after", "limit", "fork_at", "resume")},
    "lists_steps": "--steps",
    "place": "--at",
    "new_pid": "--as",
}
# Options that belong to a mode, and what is missing elsewhere.
_NEEDS: Final = {
    **dict.fromkeys((*_CHANGES, "new_pid"), (("fork_at",), "say where to fork: --fork-at N")),
    **dict.fromkeys(("after", "limit"), (("lists_steps",), "it is for a list of steps: --steps or --json")),
    "process": (("place",), "say at which step: --at N"),
}
_STEPS_LISTED: Final = 1_000


@click.command(cls=CliCommand)
@click.argument("store")
@click.argument("pid")
@click.option("--steps", "lists_steps", is_flag=True, help="Print the steps and end.")
@click.option("--at", "place", type=click.IntRange(min=0), metavar="N", help="Print the moment after step N and end.")
@click.option("--process", metavar="PID", help="With --at: of this process of the run.")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Only steps behind step N.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many steps; 1000 unless given.")
@click.option("--fork-at", type=click.IntRange(min=1), metavar="N", help="Run on from step N as a new process.")
@click.option("--reply", metavar="TEXT", help="In the fork, the model's answer at that step.")
@click.option("--tool-result", metavar="JSON", help="In the fork, the result of the tool or effect at that step.")
@click.option("--prompt", metavar="TEXT", help="In the fork, the message that was being answered at that step.")
@click.option("--model", metavar="MODEL", help="In the fork, the model from that step on.")
@click.option("--system", metavar="TEXT", help="In the fork, the system prompt from that step on.")
@click.option(
    "--load", type=_FILE, metavar="FILE.py", help="The file that declares the agents and programs of the run."
)
@click.option("--as", "new_pid", metavar="PID", help="The pid of the fork.")
@click.option("--resume", is_flag=True, help="Go on with this process, such as a fork whose command was killed.")
@json_option
@click.pass_context
def replay(ctx: click.Context, /, *, store: str, pid: str, as_json: bool, **options: Any) -> None:
    """Step through the run of an agent or a Python program both ways; fork it from any step.

    STORE is a file or a postgresql:// URL, PID a process by pid or name, or the id of a durable Vega run. `help` at the
    prompt lists what there is.
    """
    invocation = ctx.ensure_object(Invocation)
    mode = _mode(options, as_json=as_json)
    from lyra.agents.forks.change import StepChange

    given = {name: options[name] for name in _CHANGES if options[name] is not None}
    if "tool_result" in given:
        given["result"] = result_value(given.pop("tool_result"))
    change = StepChange(**given)
    with open_stored(store) as opened, open_run(opened, pid) as run:
        timeline = run.timeline
        programs = _programs(timeline, options["load"])
        if mode in ("lists_steps", "place"):
            _print(timeline, RunVariables(run, programs), options, as_json=as_json)
            return
        if mode == "prompt":
            ctx.exit(_talk(ctx, store, run, programs))
        if mode == "fork_at":
            timeline.step(options["fork_at"])
        if run.vega is not None:
            raise not_here(run, options["fork_at"])
    if mode == "resume":
        facts = go_on(invocation, store, timeline, programs=programs)
        came = facts["error"] or facts["answer"] or facts["state"]
        asks = f"; it asks a person: {facts['question']}" if facts.get("question") else ""
        lines = [printable(f"{facts['fork']}: {came}{asks}")]
    else:
        facts = make_fork(
            invocation,
            store,
            timeline,
            number=options["fork_at"],
            change=change,
            programs=programs,
            new_pid=options["new_pid"],
        )
        lines = fork_lines(facts)
    if as_json:
        document(facts)
    else:
        click.echo("\n".join(lines))
    ctx.exit(1 if facts["error"] else 0)


def _programs(timeline: RunTimeline, file: str | None) -> ProgramFile | None:
    if file is None:
        return None
    return ProgramFile(file, dict.fromkeys(step.name for step in timeline.steps if step.name))


def _mode(options: dict[str, Any], *, as_json: bool) -> str:
    """Return what the command is asked for; ConfigError for an option that would do nothing there."""
    given = [name for name in _OPTIONS if options[name] is not None and options[name] is not False]
    modes = [name for name in _MODES if name in given]
    if len(modes) > 1:
        first, second = (_OPTIONS[name] for name in modes[:2])
        raise ConfigError(f"{first} and {second} are two things to do", hint="give one of them", key=second)
    mode = modes[0] if modes else "lists_steps" if as_json else "prompt"
    for name in given:
        fitting, hint = _NEEDS.get(name, ((mode,), ""))
        if mode not in fitting:
            raise ConfigError(f"{_OPTIONS[name]} does nothing here", hint=hint, key=_OPTIONS[name])
    return mode


def _print(timeline: RunTimeline, variables: RunVariables, options: dict[str, Any], *, as_json: bool) -> None:
    place = options["place"]
    variables.add_arguments()
    if place is not None:
        step = timeline.step(place) if place else None
        moment = variables.moment(place, options["process"])
        if as_json:
            document(moment)
        else:
            click.echo("\n".join(moment_lines(moment, step)))
        return
    after = options["after"] or 0
    steps = timeline.page(after, options["limit"] or _STEPS_LISTED)
    if as_json:
        document({**timeline.summary(), "timeline": [step.to_data() for step in steps]})
        return
    if timeline.is_compacted:
        note(f"note: {COMPACTED} (--at 0)")
    for step in steps:
        click.echo(step_line(step))
    left = len(timeline.steps) - after - len(steps)
    if left > 0:
        note(f"{left} more steps; --after {after + len(steps)} shows them")


def _talk(ctx: click.Context, store: str, run: OpenedRun, programs: ProgramFile | None) -> int:
    """Read commands until the end; gives the exit code."""
    timeline, variables = run.timeline, RunVariables(run, programs)

    def fork(number: int, change: StepChange) -> dict[str, Any]:
        if run.vega is not None:
            raise not_here(run, number)
        return make_fork(
            ctx.ensure_object(Invocation), store, timeline, number=number, change=change, programs=programs
        )

    prompt = RunPrompt(timeline, variables, fork)
    variables.add_arguments()
    state = timeline.ended_as or "running"
    note(f"{timeline.name} ({timeline.program}, {state}): {len(timeline.steps)} steps, {cost_words(timeline.totals())}")
    if timeline.is_compacted:
        note(f"note: {COMPACTED}")
    click.echo(prompt.show_place().text)
    return 0 if answer_commands(prompt, ctx) else 1


# How a durable Vega run is forked or continued: by `vega replay` and `vega resume`, which `lyra replay` names.
def not_here(run: OpenedRun, number: int | None) -> ConfigError:
    """Return the mistake of asking `lyra replay` for a fork at a step, or to continue where there is none, with the
    command that does it."""
    from lyra.vega.replay.fork import replay_command

    name, path = run.timeline.name, run.timeline.location
    if number is None:
        return ConfigError(
            f"{name} is a run of a Vega program", hint=f"go on with it: {replay_command(name, path, 'resume')}"
        )
    effect = _effect(run, number)
    place = f"its effect {effect}" if effect is not None else "one of its effects"
    asked = f"fork reply {'N' if effect is None else effect} TEXT"
    return ConfigError(
        f"{name} is a run of a Vega program, which is forked at {place}",
        hint=f"{replay_command(name, path)} --live, and there: {asked}; or on its page, in the browser",
    )


def _effect(run: OpenedRun, number: int) -> int | None:
    """Return the effect of the program that a step answers; None where the program cannot be read or it is inside of
    one."""
    from lyra.vega.replay.replayed_run import ReplayedRun

    assert run.vega is not None
    try:
        effect = ReplayedRun(run.vega).effect(run.timeline.step(number))
    except LyraError:
        return None
    return None if effect is None else effect.number


_BEFORE: Final = 3  # steps before the first difference that are shown
_AFTER: Final = 40


@click.command(cls=CliCommand)
@click.argument("store")
@click.argument("left", metavar="PID")
@click.argument("right", metavar="PID")
@click.option("-a", "--all", "every", is_flag=True, help="Show all steps, also those that are the same.")
@json_option
@click.pass_context
def diff(ctx: click.Context, /, *, store: str, left: str, right: str, every: bool, as_json: bool) -> None:
    """Compare two runs step by step: the first difference, cost and tokens.

    Exit code 0 where they are the same, 1 where they differ.
    """
    with open_stored(store) as opened, open_run(opened, left) as old, open_run(opened, right) as new:
        compared = compare_runs(old.timeline, new.timeline)
        if as_json:
            document(compared.to_data())
        else:
            for line in _lines(compared, every=every):
                click.echo(line)
    ctx.exit(0 if compared.first is None else 1)


def _lines(compared: RunDifference, *, every: bool) -> list[str]:
    left, right, first = compared.left, compared.right, compared.first
    lines = [
        f"- {left.name}: {len(left.steps)} steps, {cost_words(left.totals())}",
        f"+ {right.name}: {len(right.steps)} steps, {cost_words(right.totals())}",
    ]
    if first is None:
        return [*lines, "the runs are the same"]
    begin = 1 if every else compared.begin(_BEFORE)
    end = compared.length if every else first + _AFTER
    if begin > 1:
        lines.append(f"  steps 1 to {begin - 1} are the same")
    for number, old, new in compared.pairs(begin, end):
        if number < first:
            lines += [step_line(old, side=" ")] if old is not None else []
            continue
        if number == first:
            lines.append(f"step {first} is the first that differs:")
        lines += [step_line(old, side="-")] if old is not None else []
        lines += [step_line(new, side="+")] if new is not None else []
    if end < compared.length:
        lines.append(f"  {compared.length - end} more steps; --all shows them")
    return lines
