"""`lyra replay STORE PID`: look at a run as it was at any moment, forwards and backwards; fork it from there.

Without options it is a prompt, which reads one command a line from a terminal or a pipe. `--steps`, `--at` and `--json`
print and end. Looking writes nothing, also while a kernel runs the run; only `--fork-at`, `--resume` and `fork` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import answer_commands
from lyra.cli.render import document, note, printable
from lyra.cli.replay.fork import OpenedRun, RunVariables, open_run, open_stored
from lyra.cli.replay.prompt import RunPrompt, cost_words, fork_lines, moment_lines, result_value, step_line
from lyra.errors import ConfigError, LyraError
from lyra.observe.timeline.timeline import COMPACTED

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.cli.replay.fork import ProgramFile
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.observe.timeline.travel import RunDifference


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
    change = _change(options)
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
    from lyra.cli.replay.fork import go_on, make_fork

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
    from lyra.cli.replay.fork import ProgramFile

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


def _change(options: dict[str, Any]) -> StepChange:
    from lyra.agents.forks.change import StepChange

    given = {name: options[name] for name in _CHANGES if options[name] is not None}
    if "tool_result" in given:
        given["result"] = result_value(given.pop("tool_result"))
    return StepChange(**given)


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
    from lyra.cli.replay.fork import make_fork

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
    from lyra.observe.timeline.travel import compare_runs

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
