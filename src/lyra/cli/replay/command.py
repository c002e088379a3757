"""`lyra replay STORE PID`: look at a run as it was at any moment, forwards and backwards; fork it from there.

Without options it is a prompt, which reads one command a line from a terminal or a pipe. `--steps`, `--at` and `--json`
print and end. Looking writes nothing, also while a kernel runs the run; only `--fork-at`, `--resume` and `fork` do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, note, printable
from lyra.cli.replay.opened import opened_store, timeline_of
from lyra.cli.replay.prompt import RunPrompt, fork_lines, result_value
from lyra.cli.replay.words import cost_words, moment_lines, step_line
from lyra.errors import ConfigError, LyraError
from lyra.observe.timeline.timeline import COMPACTED

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.observe.timeline.timeline import RunTimeline

__all__ = ["replay"]

_PROMPT: Final = "replay> "
_FILE: Final = click.Path(exists=True, dir_okay=False)
_CHANGES: Final = ("reply", "prompt", "model", "system", "tool_result")


@click.command(cls=CliCommand)
@click.argument("store")
@click.argument("pid")
@click.option("--steps", "lists_steps", is_flag=True, help="Print the steps and end.")
@click.option("--at", "place", type=click.IntRange(min=0), metavar="N", help="Print the moment after step N and end.")
@click.option("--process", metavar="PID", help="With --at: of this process of the run.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only steps behind step N.")
@click.option("--limit", type=click.IntRange(min=1), default=1000, metavar="N", help="At most so many steps.")
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

    STORE is a file or a postgresql:// URL, PID a process by pid or name. `help` at the prompt lists what there is.
    """
    invocation = ctx.ensure_object(Invocation)
    change = _change(options)
    with opened_store(store) as opened:
        timeline = timeline_of(opened, pid)
        if options["fork_at"] is None and not options["resume"]:
            if options["lists_steps"] or options["place"] is not None or as_json:
                _print(timeline, options, as_json=as_json)
                return
            ctx.exit(_talk(invocation, store, timeline, load=options["load"]))
        if options["fork_at"] is not None:
            timeline.step(options["fork_at"])
    from lyra.cli.replay.fork import go_on, make_fork

    if options["resume"]:
        facts = go_on(invocation, store, timeline, load=options["load"])
        lines = [printable(f"{facts['fork']}: {facts['error'] or facts['answer'] or facts['state']}")]
    else:
        facts = make_fork(
            invocation,
            store,
            timeline,
            number=options["fork_at"],
            change=change,
            load=options["load"],
            new_pid=options["new_pid"],
        )
        lines = fork_lines(facts)
    if as_json:
        document(facts)
    else:
        click.echo("\n".join(lines))
    ctx.exit(1 if facts["error"] else 0)


def _change(options: dict[str, Any]) -> StepChange:
    given = {name: options[name] for name in _CHANGES if options[name] is not None}
    if given and options["fork_at"] is None:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise ConfigError(f"{flag} changes a step of a fork", hint="say which: --fork-at N", key=flag)
    if options["process"] is not None and options["place"] is None:
        raise ConfigError("--process says of which process --at tells", hint="give --at N, too", key="--process")
    if options["new_pid"] is not None and options["fork_at"] is None:
        raise ConfigError("--as names a fork", hint="say where to fork: --fork-at N", key="--as")
    if options["resume"] and options["fork_at"] is not None:
        raise ConfigError("--resume goes on with a process, --fork-at makes another", key="--resume")
    from lyra.agents.forks.change import StepChange

    if "tool_result" in given:
        given["result"] = result_value(given.pop("tool_result"))
    return StepChange(**given)


# ---------------------------------------------------------------- printed
def _print(timeline: RunTimeline, options: dict[str, Any], *, as_json: bool) -> None:
    place = options["place"]
    if place is not None:
        step = timeline.step(place) if place else None
        moment = timeline.moment(place, options["process"])
        if as_json:
            document(moment)
        else:
            click.echo("\n".join(moment_lines(moment, step)))
        return
    steps = timeline.page(options["after"], options["limit"])
    if as_json:
        document({**timeline.summary(), "timeline": [step.to_data() for step in steps]})
        return
    if timeline.is_compacted:
        note(f"note: {COMPACTED} (--at 0)")
    for step in steps:
        click.echo(step_line(step))
    left = len(timeline.steps) - options["after"] - len(steps)
    if left > 0:
        note(f"{left} more steps; --after {options['after'] + len(steps)} shows them")


# ---------------------------------------------------------------- the prompt
def _talk(invocation: Invocation, store: str, timeline: RunTimeline, *, load: str | None) -> int:
    """Read commands until the end; gives the exit code."""
    from lyra.cli.replay.fork import make_fork

    def fork(number: int, change: StepChange) -> dict[str, Any]:
        return make_fork(invocation, store, timeline, number=number, change=change, load=load)

    prompt = RunPrompt(timeline, fork)
    state = timeline.ended_as or "running"
    note(f"{timeline.pid} ({timeline.program}, {state}): {len(timeline.steps)} steps, {cost_words(timeline.totals())}")
    if timeline.is_compacted:
        note(f"note: {COMPACTED}")
    click.echo("\n".join(prompt.here()))
    is_person, failed = sys.stdin.isatty(), False
    for line in _typed(is_person=is_person):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            lines = prompt.do(line)
        except LyraError as error:
            note(f"error: {error.message}")
            if error.hint:
                note(f"  hint: {error.hint}")
            failed = True
            continue
        if lines:
            click.echo("\n".join(lines))
        if prompt.is_over:
            break
    return 1 if failed and not is_person else 0


def _typed(*, is_person: bool) -> Iterator[str]:
    while True:
        if not is_person:
            line = sys.stdin.readline()
            if not line:
                return
            yield line.rstrip("\n")
            continue
        try:
            yield input(_PROMPT)
        except EOFError:
            click.echo("", err=True)
            return
        except KeyboardInterrupt:  # of a line that was begun
            click.echo("", err=True)
